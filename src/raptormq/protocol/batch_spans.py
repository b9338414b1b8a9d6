"""Finds the messages of a batch without decoding all of them.

``batch`` describes the layout, and its decoder is the reference for this module. ``inner_batch`` describes inner
batches. Messages with the same lengths are found by one ``struct`` call, as in ``batch``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_UNIFORM_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.properties import find_value
from raptormq.protocol.record import Bytes

_SIZE_FLAG_LENGTH = struct.Struct(">i8xii")
_SHORT = struct.Struct(">h")
_CRC = struct.Struct(">i")
_BODY_AT = 20
_CRC_BEFORE_BODY = 12
_INNER_NUM = f"{names.INNER_NUM}{names.NAME_SEPARATOR}".encode()
_LAYOUTS = 64


class MessageSpans(NamedTuple):
    """The positions of the messages of a batch, in columns with one entry per message."""

    flags: Sequence[int]
    bodies: Sequence[slice]
    body_ends: Sequence[int]
    ends: Sequence[int]
    """End of the properties. They begin 2 bytes after the body, after their length."""

    def select(self, numbers: Sequence[int]) -> MessageSpans:
        """Return the entries with these numbers."""
        flags, bodies, body_ends, ends = self
        return MessageSpans(
            [flags[number] for number in numbers],
            [bodies[number] for number in numbers],
            [body_ends[number] for number in numbers],
            [ends[number] for number in numbers],
        )

    def starting_at(self, first: int) -> MessageSpans:
        """Return the entries from `first` on."""
        flags, bodies, body_ends, ends = self
        return MessageSpans(flags[first:], bodies[first:], body_ends[first:], ends[first:]) if first else self


class _Layout(NamedTuple):
    """The positions of all fields in a batch of messages with the same lengths."""

    unpack: Callable[[Bytes], tuple[int, ...]]
    """Returns size, flag, length of the body and length of the properties of each message."""
    sizes: tuple[int, ...]
    body_lengths: tuple[int, ...]
    properties_lengths: tuple[int, ...]
    bodies: tuple[slice, ...]
    body_ends: range
    ends: range


@lru_cache(maxsize=_LAYOUTS)
def _layout(count: int, size: int, body_length: int) -> _Layout:
    properties_length, end = size - OVERHEAD_BYTES - body_length, count * size
    body_ends = range(_BODY_AT + body_length, end, size)
    return _Layout(
        struct.Struct(">" + f"i8xii{body_length}xh{properties_length}x" * count).unpack,
        (size,) * count,
        (body_length,) * count,
        (properties_length,) * count,
        tuple(map(slice, range(_BODY_AT, end, size), body_ends)),
        body_ends,
        range(size, end + 1, size),
    )


def locate_messages(data: Bytes, count: int) -> MessageSpans:
    """Return the positions of all messages of a batch (its decompressed body), without copying anything.

    Raises:
        RecordError: a message is truncated, its lengths are inconsistent, or there are not ``count`` messages.
    """
    return _located_at_once(data, count) or _located(data, count)


def _located_at_once(data: Bytes, count: int) -> MessageSpans | None:
    """Return the positions if all messages have the same lengths, the usual case. None if the lengths differ; such a
    batch may be valid or damaged.
    """
    length = len(data)
    if not 0 < count <= MAX_UNIFORM_RECORDS or length < OVERHEAD_BYTES:
        return None
    size, _, body_length = _SIZE_FLAG_LENGTH.unpack_from(data)
    if size * count != length or not 0 <= body_length <= size - OVERHEAD_BYTES:
        return None
    layout = _layout(count, size, body_length)
    values = layout.unpack(data)
    if values[0::4] != layout.sizes or values[2::4] != layout.body_lengths or values[3::4] != layout.properties_lengths:
        return None
    return MessageSpans(values[1::4], layout.bodies, layout.body_ends, layout.ends)


def _located(data: Bytes, count: int) -> MessageSpans:
    """Find the messages one by one. Raises RecordError."""
    flags: list[int] = []
    bodies: list[slice] = []
    body_ends: list[int] = []
    ends: list[int] = []
    position, end = 0, len(data)
    unpack, unpack_short = _SIZE_FLAG_LENGTH.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            size, flag, body_length = unpack(data, position)
            body_at = position + _BODY_AT
            body_end = body_at + body_length
            position += size
            if (
                body_length < 0
                or size < OVERHEAD_BYTES
                or position > end
                or unpack_short(data, body_end)[0] != size - body_length - OVERHEAD_BYTES
            ):
                raise RecordError(f"message {len(flags)} of the batch is truncated or has inconsistent lengths")
            flags.append(flag)
            bodies.append(slice(body_at, body_end))
            body_ends.append(body_end)
            ends.append(position)
    except struct.error as error:
        raise RecordError(f"message {len(flags)} of the batch is truncated") from error
    if len(flags) != count:
        raise RecordError(f"the batch declares {count} messages and holds {len(flags)}")
    return MessageSpans(flags, bodies, body_ends, ends)


def check_messages(data: bytes, places: MessageSpans) -> None:
    """Check the messages of a batch as brokers check readable batches. Brokers cannot check a batch that is compressed
    or encrypted as a whole, so its reader checks it.

    Raises:
        RecordError: a message has a wrong CRC, or is a batch itself.
    """
    unpack = _CRC.unpack_from
    may_nest = _INNER_NUM in data
    for number, (body, body_end, end) in enumerate(zip(places.bodies, places.body_ends, places.ends, strict=True)):
        (crc,) = unpack(data, body.start - _CRC_BEFORE_BODY)
        if crc and crc != crc32(data[body]) & 0x7FFFFFFF:
            raise RecordError(f"message {number} of the batch has a wrong CRC")
        if may_nest and find_value(data[body_end + 2 : end], _INNER_NUM):
            raise RecordError(f"message {number} of the batch is itself a batch")
