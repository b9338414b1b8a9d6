"""Makes the one record of a batch that is sent to a BatchCQ topic (RIP-26, ``SendMessageProcessor.sendBatchMessage``).

Neighbour: :mod:`.admission` has checked the request. The body stays as it came, compressed or not; every length in
it is checked once, here, since consumers rely on it. What the broker adds to the properties are its own (as to any
message), INNER_NUM, and TAGS when the producer named none for the batch and all messages have the same: without it
subscribers to that tag would not find the batch. INNER_BASE comes with the queue offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.encryption import is_sealed
from raptormq.protocol.inner_batch import inner_count
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import SysFlag

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_COMPRESSED = int(SysFlag.COMPRESSED)
_ROOM_FOR_BASE = 40
"""Bytes that INNER_BASE takes at most."""


class Wrapper(NamedTuple):
    """What the record of a batch needs."""

    properties: bytes
    messages: int


def wrap(body: bytes, text: str, common: bytes, sys_flag: int) -> Wrapper:
    """Return the properties of the record for a batch with ``body`` whose own properties are ``text``; ``common`` are
    those that every message gets.

    The number of messages of a compressed or encrypted batch is what the producer says (INNER_NUM): brokers inflate
    nothing that need not be, and have no keys.

    Raises:
        RecordError: the batch is empty, too large, damaged, nests another one, or says a wrong number.
    """
    said = find_property(text, names.INNER_NUM)
    if sys_flag & _COMPRESSED or is_sealed(body):
        count, tag = inner_count(text), None
    else:
        count, tag = _examine(body, wants_tag=find_property(text, names.TAGS) is None)
        if said is not None and inner_count(text) != count:
            raise RecordError(f"the batch says that it holds {said} messages, and holds {count}")
    if text and text[-1] != names.PAIR_SEPARATOR:
        text += names.PAIR_SEPARATOR
    number = "" if said is not None else f"{names.INNER_NUM}\x01{count}\x02"
    properties = text.encode() + common + number.encode()
    if tag:
        properties += b"TAGS\x01%b\x02" % tag
    if len(properties) > names.MAX_PROPERTIES_BYTES - _ROOM_FOR_BASE:
        raise RecordError(f"the properties of the batch have {len(properties)} bytes, too many to be stored")
    return Wrapper(properties, count)


def _examine(body: bytes, *, wants_tag: bool) -> tuple[int, bytes | None]:
    """Return the number of messages and, if asked for, the tag that all of them have."""
    unpack_head, unpack_short = _HEAD.unpack_from, _SHORT.unpack_from
    may_nest = b"INNER_NUM\x01" in body
    wants_tag = wants_tag and b"TAGS\x01" in body
    tags: set[bytes] = set()
    count, position, end = 0, 0, len(body)
    try:
        while position < end:
            size, _, crc, _, length = unpack_head(body, position)
            properties_at = position + 20 + length
            at, position = position, position + size
            if length < 0 or size < OVERHEAD_BYTES or position > end:
                raise RecordError(f"message {count} of the batch is cut or lies about its size")
            if unpack_short(body, properties_at)[0] != position - properties_at - 2:
                raise RecordError(f"message {count} of the batch has lengths that do not add up")
            if crc and crc != crc32(body[at + 20 : properties_at]) & 0x7FFFFFFF:
                raise RecordError(f"message {count} of the batch does not have its CRC")
            if wants_tag:
                tags.add(_value(body[properties_at + 2 : position], b"TAGS\x01"))
            if may_nest and _value(body[properties_at + 2 : position], b"INNER_NUM\x01"):
                raise RecordError(f"message {count} of the batch is a batch")
            count += 1
    except struct.error:
        raise RecordError(f"message {count} of the batch is cut") from None
    if not 0 < count <= MAX_BATCH_RECORDS:
        raise RecordError(f"a batch of {count} messages: it may hold 1 to {MAX_BATCH_RECORDS}")
    return count, tags.pop() if len(tags) == 1 else None


def _value(properties: bytes, name: bytes) -> bytes:
    """Return the value of a property of a text form; empty without."""
    at = properties.rfind(name)
    while at > 0 and properties[at - 1] != 2:  # the end of a longer name
        at = properties.rfind(name, 0, at)
    if at < 0:
        return b""
    start = at + len(name)
    end = properties.find(b"\x02", start)
    return properties[start:end] if end >= 0 else properties[start:]
