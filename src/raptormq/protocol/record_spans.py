"""Finds the messages of a pull response without decoding all of them.

A plain record holds one message as it was sent: neither compressed nor encrypted, no inner batch, IPv4 hosts, a short
topic. Plain records get all checks of `record.decode_view`, and only their positions are kept. All others, including
damaged ones, are left to `decode_view`, which is the reference for this module and reports what is wrong. `batch_spans`
does the same for the messages of an inner batch.
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32

from raptormq.protocol import properties as names
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES
from raptormq.protocol.record import MAGIC_V1, MIN_RECORD_BYTES

BODY_AT = 88
"""Position of the body in a record with IPv4 hosts."""
_HEAD = struct.Struct(">iiI8xq8xi44xi")
_NOT_PLAIN = 0x1 | 0x30 | 0xC0
"""Bits of SYSFLAG of records that are not plain: compressed, IPv6 hosts, inner batch."""
_ENCRYPTED = (names.ENCRYPTION_KEY_ID + names.NAME_SEPARATOR).encode()

RecordSpan = tuple[int, int, int, int]
"""The position of one record: its queue offset, its start, the end of its body, its end."""


def locate_records(data: memoryview, position: int) -> tuple[list[RecordSpan], int]:
    """Return the positions of the plain records from `position` on, and the position of the first record that is not
    plain, or the end. Only topics and properties are copied, for validation.
    """
    places: list[RecordSpan] = []
    add, unpack, end = places.append, _HEAD.unpack_from, len(data)
    while position + MIN_RECORD_BYTES <= end:
        size, magic, crc, offset, sys_flag, body_length = unpack(data, position)
        body_at = position + BODY_AT
        body_end = body_at + body_length
        after = position + size
        if magic != MAGIC_V1 or sys_flag & _NOT_PLAIN or body_length < 0 or body_end + 3 > after or after > end:
            break
        tail = bytes(data[body_end:after])
        if not _is_plain_tail(tail) or crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc:
            break
        add((offset, position, body_end, after))
        position = after
    return places, position


def _is_plain_tail(tail: bytes) -> bool:
    """Whether topic and properties, each after its length, are valid text, fill the bytes, and do not mark the body as
    encrypted.
    """
    length_at = 1 + tail[0]
    length = len(tail) - length_at - 2
    if not 0 <= length <= MAX_PROPERTIES_BYTES or tail[length_at] << 8 | tail[length_at + 1] != length:
        return False
    if _ENCRYPTED in tail:
        return False
    if not tail.isascii():  # a length byte may be the reason
        try:
            tail[1:length_at].decode()
            tail[length_at + 2 :].decode()
        except UnicodeDecodeError:
            return False
    return True
