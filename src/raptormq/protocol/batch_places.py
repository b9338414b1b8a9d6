"""Where the messages of a batch are, for those who do not want all of them decoded at once.

The layout is drawn in `batch`, whose decoder is the reference for this one; inner batches are in `inner_batch`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import OVERHEAD_BYTES
from raptormq.protocol.properties import find_value
from raptormq.protocol.record import Bytes

_SIZE_FLAG_LENGTH = struct.Struct(">i8xii")
_SHORT = struct.Struct(">h")
_CRC = struct.Struct(">i")
_CRC_BEFORE_BODY = 12
_INNER_NUM = f"{names.INNER_NUM}{names.NAME_SEPARATOR}".encode()

Place = tuple[int, int, int, int]
"""Where one message of a batch is: flag, start and end of its body, end of its properties. They begin 2 bytes after the
body, behind their length."""


def locate_messages(data: Bytes, count: int) -> list[Place]:
    """Return the places of all messages of a batch (its body, decompressed), without copying anything.

    Raises:
        RecordError: a message is cut, its lengths do not add up, or there are not ``count`` of them.
    """
    places: list[Place] = []
    add = places.append
    position, end = 0, len(data)
    unpack, unpack_short = _SIZE_FLAG_LENGTH.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            size, flag, body_length = unpack(data, position)
            body_at = position + 20
            body_end = body_at + body_length
            position += size
            if (
                body_length < 0
                or size < OVERHEAD_BYTES
                or position > end
                or unpack_short(data, body_end)[0] != size - body_length - OVERHEAD_BYTES
            ):
                raise RecordError(f"message {len(places)} of the batch is cut or has lengths that do not add up")
            add((flag, body_at, body_end, position))
    except struct.error as error:
        raise RecordError(f"message {len(places)} of the batch is cut") from error
    if len(places) != count:
        raise RecordError(f"the batch says that it holds {count} messages, and holds {len(places)}")
    return places


def check_messages(data: bytes, places: Sequence[Place]) -> None:
    """Look at what brokers look at when a batch comes that they can read: for one that was compressed or encrypted it
    is the reader who has to.

    Raises:
        RecordError: a message does not have the CRC that it names, or is a batch itself.
    """
    unpack = _CRC.unpack_from
    may_nest = _INNER_NUM in data
    for number, (_, body_at, body_end, end) in enumerate(places):
        (crc,) = unpack(data, body_at - _CRC_BEFORE_BODY)
        if crc and crc != crc32(data[body_at:body_end]) & 0x7FFFFFFF:
            raise RecordError(f"message {number} of the batch does not have its CRC")
        if may_nest and find_value(data[body_end + 2 : end], _INNER_NUM):
            raise RecordError(f"message {number} of the batch is a batch")
