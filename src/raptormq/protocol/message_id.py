"""The two message ids (Apache RocketMQ ``MessageDecoder.createMessageId``, ``MessageClientIDSetter``).

Offset id, made by the broker: upper-case hex of ``ip (4 or 16) | port i32 | physical offset i64``. It identifies the
broker and the position of the record. Unique id, made by the client: upper-case hex of ``ip (4 or 16) | pid u16 | class
loader hash i32 | ms since the month began i32 | counter u16``. Tools read the time from it.
"""

from __future__ import annotations

import binascii
import ipaddress
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from raptormq.errors import MessageError

_PLACE = struct.Struct(">iq")
_HEX = [f"{number:02X}" for number in range(256)]


@dataclass(frozen=True, slots=True)
class OffsetId:
    """A decoded offset id."""

    host: str
    port: int
    physical_offset: int


def encode_host(host: str, port: int) -> bytes:
    """Return ``ip | port i32`` as in records and ids: 8 bytes for IPv4 and 20 for IPv6.

    Raises:
        MessageError: ``host`` is not an address (names have to be resolved before).
    """
    try:
        return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")
    except ValueError as error:
        raise MessageError(f"{host!r} is not an IP address") from error


def decode_host(data: bytes) -> tuple[str, int]:
    """Return ``(host, port)`` of 8 or 20 bytes."""
    return str(ipaddress.ip_address(bytes(data[:-4]))), int.from_bytes(data[-4:], "big", signed=True)


def offset_id(host_bytes: bytes, physical_offset: int) -> str:
    """Return the offset id of the record at ``physical_offset`` of the broker with these host bytes (8 or 20)."""
    return f"{host_bytes.hex()}{physical_offset:016x}".upper()


def parse_offset_id(text: str) -> OffsetId:
    """Decode an offset id.

    Raises:
        MessageError: the text does not consist of 32 or 56 hexadecimal digits.
    """
    if len(text) not in (32, 56):
        raise MessageError(f"an offset message id must have 32 or 56 hexadecimal digits, not {text[:60]!r}")
    try:
        data = binascii.unhexlify(text)  # bytes.fromhex would skip spaces
    except ValueError as error:
        raise MessageError(f"not an offset message id: {text[:60]!r}") from error
    port, physical_offset = _PLACE.unpack(data[-12:])
    return OffsetId(str(ipaddress.ip_address(data[:-12])), port, physical_offset)


def ids_from(first: str, count: int) -> list[str]:
    """Return ``count`` consecutive unique ids, beginning with ``first``."""
    return _numbered(first[:-4], int(first[-4:], 16), count)


def _numbered(prefix: str, counter: int, count: int) -> list[str]:
    """Return unique ids with a common prefix; 256 at a time differ only in their last two digits."""
    end = counter + count
    ids: list[str] = []
    while counter < end:
        low = counter & 0xFF
        longer = f"{prefix}{counter >> 8 & 0xFF:02X}"
        tails = _HEX[low : low + end - counter]
        ids += [longer + tail for tail in tails]
        counter += len(tails)
    return ids


class UniqueIdFactory:
    """Creates unique ids: a prefix per process, the time and a counter.

    ``now_ms`` is passed to each call, so that the caller owns the clock. The 16-bit counter wraps: within one
    millisecond 65,536 ids are distinct.
    """

    __slots__ = ("_counter", "_month_start_ms", "_next_month_ms", "_now_ms", "_prefix", "_prefix_now", "id_length")

    def __init__(self, ip: bytes, pid: int, salt: int) -> None:
        self._prefix = (ip + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()
        self._counter = 0
        self._month_start_ms = self._next_month_ms = 0
        self._now_ms = -1
        self._prefix_now = ""
        self.id_length = len(self._prefix) + 12
        """Length of an id in characters."""

    def next_id(self, now_ms: int) -> str:
        """Return a new id, 32 (IPv4) or 56 (IPv6) hexadecimal digits."""
        if now_ms != self._now_ms:
            self._enter(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix_now}{counter:04X}"

    def next_ids(self, now_ms: int, count: int) -> list[str]:
        """Return several new ids, at most 65,536."""
        if now_ms != self._now_ms:
            self._enter(now_ms)
        first = self._counter + 1
        self._counter = (first + count - 1) & 0xFFFF
        return _numbered(self._prefix_now, first, count)

    def _enter(self, now_ms: int) -> None:
        """Compute the common prefix of all ids of one millisecond."""
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._enter_month(now_ms)
        self._now_ms = now_ms
        self._prefix_now = f"{self._prefix}{(now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}"

    def _enter_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._next_month_ms = int(following.timestamp() * 1000)
