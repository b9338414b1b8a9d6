"""The body of SEND_BATCH_MESSAGE and of an inner batch: client records back to back (RIP-26,
``MessageDecoder.encodeMessages``).

One record, big-endian, no padding::

    TOTALSIZE i32 | MAGIC i32 = 0 | BODYCRC i32 = 0 | FLAG i32 | BODYLEN i32 | body | PROPLEN i16 | properties UTF-8

Batches of messages of one size have records with identical lengths. They are decoded by one ``struct`` call instead of
one step per record, which takes a third of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from raptormq.errors import MessageError, RecordError
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, without_broker_only

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
OVERHEAD_BYTES = _HEAD.size + _SHORT.size
"""Size of a record without body and properties."""
MAX_BATCH_RECORDS = 32_767
"""Maximum messages of a batch that is stored whole: its queue item counts them in a signed 16-bit integer."""


_SIZE_AND_BODY_LENGTH = struct.Struct(">i12xi")
_PROPERTIES = itemgetter(3)
_LAYOUTS = 64
MAX_UNIFORM_RECORDS = 256
"""Maximum records of a batch that are decoded by one call: a cached layout takes 300 bytes per record."""


class BatchRecord(NamedTuple):
    """One message of a batch; ``properties`` are the UTF-8 bytes of the text form."""

    flag: int
    body: bytes
    properties: bytes


BatchRow = tuple[int, int, int, bytes]
"""A record of a batch: its flag, start and end of the body, and the properties."""


def encode_batch(records: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode ``(flag, body, properties bytes)`` triples.

    Raises:
        MessageError: the properties are too long.
    """
    parts: list[bytes] = []
    pack_head, pack_short = _HEAD.pack, _SHORT.pack
    for flag, body, properties in records:
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")
        size = OVERHEAD_BYTES + len(body) + len(properties)
        parts += pack_head(size, 0, 0, flag, len(body)), body, pack_short(len(properties)), properties
    return b"".join(parts)


class _Layout(NamedTuple):
    """The positions of all fields in a batch of records with the same lengths."""

    unpack: Callable[[bytes], tuple[Any, ...]]
    """Returns size, CRC, flag, length of the body, length of the properties and properties of each record."""
    sizes: tuple[int, ...]
    no_crcs: tuple[int, ...]
    body_lengths: tuple[int, ...]
    properties_lengths: tuple[int, ...]
    body_begins: range
    body_ends: range


@lru_cache(maxsize=_LAYOUTS)
def _layout(count: int, size: int, body_length: int) -> _Layout:
    properties_length, end = size - OVERHEAD_BYTES - body_length, count * size
    return _Layout(
        struct.Struct(">" + f"i4xiii{body_length}xh{properties_length}s" * count).unpack,
        (size,) * count,
        (0,) * count,
        (body_length,) * count,
        (properties_length,) * count,
        range(_HEAD.size, end, size),
        range(_HEAD.size + body_length, end, size),
    )


class UniformRecords(NamedTuple):
    """All records of a batch, in columns."""

    flags: tuple[int, ...]
    body_begins: range
    body_ends: range
    properties: tuple[bytes, ...]


def scan_uniform(data: bytes) -> UniformRecords | None:
    """Find all records of a batch if they have the same lengths and no CRC, the usual case. None if the records differ;
    such a batch may be valid or damaged.
    """
    length = len(data)
    if length < OVERHEAD_BYTES:
        return None
    size, body_length = _SIZE_AND_BODY_LENGTH.unpack_from(data)
    if size < OVERHEAD_BYTES or not 0 <= body_length <= size - OVERHEAD_BYTES or length % size:
        return None
    count = length // size
    if not 0 < count <= MAX_UNIFORM_RECORDS:
        return None
    unpack, sizes, no_crcs, body_lengths, properties_lengths, begins, ends = _layout(count, size, body_length)
    values = unpack(data)
    if (
        values[0::6] != sizes
        or values[1::6] != no_crcs
        or values[3::6] != body_lengths
        or values[4::6] != properties_lengths
    ):
        return None
    return UniformRecords(values[2::6], begins, ends, values[5::6])


def scan_batch(data: bytes, max_records: int | None = None, *, check_crc: bool = False) -> list[BatchRow]:
    """Find all records of a batch without copying their bodies.

    Clients leave BODYCRC 0; ``check_crc`` verifies any other value.

    Raises:
        RecordError: a record is truncated, its lengths or CRC are wrong, or there are more than ``max_records``.
    """
    alike = scan_uniform(data)
    if alike is not None and (max_records is None or len(alike.flags) <= max_records):
        return list(zip(*alike, strict=True))
    rows: list[BatchRow] = []
    append, most = rows.append, len(data) if max_records is None else max_records
    position, end = 0, len(data)
    unpack_head, unpack_short = _HEAD.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            size, _, crc, flag, body_length = unpack_head(data, position)
            body_at = position + 20
            properties_at = body_at + body_length
            position += size
            if body_length < 0 or position > end or properties_at + 2 > position:
                raise RecordError(f"record {len(rows)} of the batch is truncated or has a wrong size")
            if unpack_short(data, properties_at)[0] != position - properties_at - 2:
                raise RecordError(f"record {len(rows)} of the batch has inconsistent lengths")
            if crc and check_crc and crc != crc32(data[body_at:properties_at]) & 0x7FFFFFFF:
                raise RecordError(f"record {len(rows)} of the batch has a wrong CRC")
            if len(rows) >= most:  # the rest is not parsed
                raise RecordError(f"the batch holds more than {max_records} records")
            append((flag, body_at, properties_at, data[properties_at + 2 : position]))
    except struct.error as error:
        raise RecordError(f"record {len(rows)} of the batch is truncated") from error
    return rows


def with_valid_utf8(rows: list[BatchRow]) -> list[BatchRow]:
    """Return the records with invalid UTF-8 in their properties replaced, as the broker of Apache RocketMQ does."""
    if b"".join(map(_PROPERTIES, rows)).isascii():
        return rows
    return [
        (flag, body_at, body_end, properties.decode("utf-8", "replace").encode())
        for flag, body_at, body_end, properties in rows
    ]


def without_broker_only_properties(data: bytes) -> bytes:
    """Return a batch whose messages have no properties that only brokers set. Invalid UTF-8 in properties is replaced.

    Raises:
        RecordError: see :func:`scan_batch`.
    """
    return encode_batch(
        (flag, data[body_at:body_end], without_broker_only(properties.decode("utf-8", "replace")).encode())
        for flag, body_at, body_end, properties in scan_batch(data)
    )


def decode_batch(data: bytes, max_records: int | None = None, *, check_crc: bool = False) -> list[BatchRecord]:
    """Decode all records of a batch.

    Raises:
        RecordError: see :func:`scan_batch`.
    """
    return [
        BatchRecord(flag, data[body_at:body_end], properties)
        for flag, body_at, body_end, properties in scan_batch(data, max_records, check_crc=check_crc)
    ]
