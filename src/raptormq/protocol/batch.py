"""The body of SEND_BATCH_MESSAGE and of an inner batch: client records back to back (RIP-26,
``MessageDecoder.encodeMessages``).

One record, big-endian, no padding::

    TOTALSIZE i32 | MAGIC i32 = 0 | BODYCRC i32 = 0 | FLAG i32 | BODYLEN i32 | body | PROPLEN i16 | properties UTF-8
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from raptormq.errors import MessageError, RecordError
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
OVERHEAD_BYTES = _HEAD.size + _SHORT.size
"""Bytes of a record besides body and properties."""
MAX_BATCH_RECORDS = 32_767
"""Messages of a batch that is stored whole: its index item counts them in 16 bits with a sign."""


class BatchRecord(NamedTuple):
    """One message of a batch; ``properties`` are the UTF-8 bytes of the text form."""

    flag: int
    body: bytes
    properties: bytes


BatchRow = tuple[int, int, int, bytes]
"""A record of a batch: its flag, the first byte of the body, the one behind the body, and the properties."""


def encode_batch(records: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode ``(flag, body, properties bytes)`` triples.

    Raises:
        MessageError: properties that do not fit.
    """
    parts: list[bytes] = []
    pack_head, pack_short = _HEAD.pack, _SHORT.pack
    for flag, body, properties in records:
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")
        size = OVERHEAD_BYTES + len(body) + len(properties)
        parts += pack_head(size, 0, 0, flag, len(body)), body, pack_short(len(properties)), properties
    return b"".join(parts)


def scan_batch(data: bytes, max_records: int | None = None, *, check_crc: bool = False) -> list[BatchRow]:
    """Find all records of a batch without copying their bodies. Clients leave BODYCRC 0; ``check_crc`` compares any
    other.

    Raises:
        RecordError: a record is cut, its lengths or CRC are wrong, or there are more than ``max_records``.
    """
    rows: list[BatchRow] = []
    append = rows.append
    position, end = 0, len(data)
    unpack_head, unpack_short = _HEAD.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            size, _, crc, flag, body_length = unpack_head(data, position)
            body_at = position + 20
            properties_at = body_at + body_length
            position += size
            if body_length < 0 or position > end or properties_at + 2 > position:
                raise RecordError(f"record {len(rows)} of the batch is cut or lies about its size")
            if unpack_short(data, properties_at)[0] != position - properties_at - 2:
                raise RecordError(f"record {len(rows)} of the batch has lengths that do not add up")
            if crc and check_crc and crc != crc32(data[body_at:properties_at]) & 0x7FFFFFFF:
                raise RecordError(f"record {len(rows)} of the batch does not have its CRC")
            append((flag, body_at, properties_at, data[properties_at + 2 : position]))
    except struct.error as error:
        raise RecordError(f"record {len(rows)} of the batch is cut") from error
    if max_records is not None and len(rows) > max_records:
        raise RecordError(f"the batch holds more than {max_records} records")
    return rows


def decode_batch(data: bytes, max_records: int | None = None) -> list[BatchRecord]:
    """Decode all records of a batch.

    Raises:
        RecordError: as :func:`scan_batch`.
    """
    return [
        BatchRecord(flag, data[body_at:body_end], properties)
        for flag, body_at, body_end, properties in scan_batch(data, max_records)
    ]
