"""Parses and validates stored records, as far as recovery and searches need them.

The layout is that of :mod:`raptormq.protocol.record`, whose ``decode_record`` returns complete messages. This parser
handles a million records in a few seconds.

:func:`to_pending_record` also recomputes the tag code of a record. The queue of timer messages (topic
rmq_sys_wheel_timer) has a :class:`TimerCode` instead of a tag code, which says when the message is due::

    code = time in ms (property TIMER_OUT_MS) * 2 + 1 for a recall (property TIMER_DEL_UNIQKEY), + 0 for a message

So pending timer messages are found from the queue alone, without reading the log. Apache RocketMQ stores the hash of
the tags as the tag code and ignores it (``TimerMessageStore.enqueue``). Hashes are smaller than any timer code after
1970.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from isal.isal_zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import TAGS, find_property
from raptormq.protocol.record import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, SysFlag
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import TIMER_TOPIC
from raptormq.storage.fs import Buffer
from raptormq.storage.queue import PendingRecord

_DUE_DIGITS = 17
_FIRST_CODE = 1 << 33
"""Smallest value that counts as a timer code. It stands for a day in 1970 and is larger than any hash of tags."""
_LAST_CODE = 1 << 62


class TimerCode(NamedTuple):
    """A decoded timer code: the due time, and whether the message recalls another message that is due then."""

    due_ms: int
    recall: bool


def encode_timer_code(properties: str) -> int:
    """Return the code of a message with these properties (text form), 0 if they have no time."""
    due = parse_natural(find_property(properties, names.TIMER_OUT_MS), _DUE_DIGITS)
    if due is None:
        return 0
    return due * 2 + (find_property(properties, names.TIMER_DELETE_KEY) is not None)


def decode_timer_code(code: int) -> TimerCode | None:
    """Decode a code; return None if it is not a timer code but, for example, the hash of a tag."""
    return TimerCode(code >> 1, bool(code & 1)) if _FIRST_CODE <= code < _LAST_CODE else None


_INNER_BATCH = int(SysFlag.INNER_BATCH)
_V6_HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_PEEK = struct.Struct(">ii")
_SYS_FLAG = struct.Struct(">i")
_LONG = struct.Struct(">q")
_FIXED = {
    flags: struct.Struct(
        f">iiIiiqqiq{20 if flags & SysFlag.BORN_HOST_V6 else 8}sq{20 if flags & SysFlag.STORE_HOST_V6 else 8}siqi"
    )
    for flags in (0, int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6), _V6_HOSTS)
}
_CHECKED = struct.Struct(">iiI16xqi44xi")
"""Size, magic, CRC, log offset, flags and body length of a record with IPv4 hosts: all fields that are checked."""
_BODY_AT = {flags: fixed.size for flags, fixed in _FIXED.items()}
_TIMESTAMP_AT = {flags: 68 if flags & SysFlag.BORN_HOST_V6 else 56 for flags in _FIXED}


class ParsedRecord(NamedTuple):
    """A record without its body."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    born_timestamp: int
    sys_flag: int
    properties: bytes
    """The properties in their text form, which is valid UTF-8."""
    body: bytes = b""
    """The body of the wrapper of an inner batch; empty for all other records."""
    prepared_transaction_offset: int = 0


def peek(data: Buffer, at: int) -> tuple[int, int]:
    """Return the first two fields, size and magic, unchecked."""
    size, magic = _PEEK.unpack_from(data, at)
    return size, magic


def peek_store_timestamp(data: Buffer, at: int = 0) -> int:
    """Return the store time of a valid record, in ms."""
    (sys_flag,) = _SYS_FLAG.unpack_from(data, at + SYS_FLAG_AT)
    (timestamp,) = _LONG.unpack_from(data, at + _TIMESTAMP_AT[sys_flag & _V6_HOSTS])
    return int(timestamp)


def peek_physical_offset(data: Buffer) -> int:
    """Return the PHYSICALOFFSET of a record."""
    (offset,) = _LONG.unpack_from(data, PHYSICAL_OFFSET_AT)
    return int(offset)


def peek_prepared_offset(data: Buffer, at: int) -> int:
    """Return the PREPAREDTRANSACTIONOFFSET of a valid record."""
    (sys_flag,) = _SYS_FLAG.unpack_from(data, at + SYS_FLAG_AT)
    (offset,) = _LONG.unpack_from(data, at + _BODY_AT[sys_flag & _V6_HOSTS] - 12)
    return int(offset)


def belongs_to_queue(data: Buffer, topic_field: bytes, queue_id: int, queue_offset: int) -> bool:
    """Return whether the fields of a record name this topic, queue and queue offset. ``topic_field`` is the topic with
    its length.
    """
    try:
        (sys_flag,) = _SYS_FLAG.unpack_from(data, SYS_FLAG_AT)
        fixed = _FIXED[sys_flag & _V6_HOSTS]
        _, _, _, its_queue_id, _, its_offset, *_, body_length = fixed.unpack_from(data)
    except struct.error:
        return False
    topic_at = fixed.size + body_length
    is_its = (its_queue_id, its_offset) == (queue_id, queue_offset)
    return is_its and bytes(data[topic_at : topic_at + len(topic_field)]) == topic_field


def peek_body_at(data: Buffer) -> int:
    """Return the position of the body of a valid record."""
    (sys_flag,) = _SYS_FLAG.unpack_from(data, SYS_FLAG_AT)
    return _BODY_AT[sys_flag & _V6_HOSTS]


def peek_body_bytes(data: Buffer) -> int:
    """Return the size of the body that the head of a record states, unchecked."""
    body_at = peek_body_at(data)
    return int.from_bytes(data[body_at - 4 : body_at], "big", signed=True)


def peek_properties(data: Buffer) -> Buffer:
    """Return the text form of the properties of a record; empty if its lengths are inconsistent."""
    try:
        (sys_flag,) = _SYS_FLAG.unpack_from(data, SYS_FLAG_AT)
        body_at = _FIXED[sys_flag & _V6_HOSTS].size
        topic_at = body_at + int.from_bytes(data[body_at - 4 : body_at], "big")
        name_at = topic_at + (1 if _PEEK.unpack_from(data, 0)[1] == MAGIC_V1 else 2)
    except struct.error:
        return b""
    length_at = name_at + int.from_bytes(data[topic_at:name_at], "big")
    length = int.from_bytes(data[length_at : length_at + 2], "big")
    return data[length_at + 2 : length_at + 2 + length]


def are_valid_records(data: Buffer, offset: int) -> bool:
    """Return whether ``data``, read from log offset ``offset``, consists of complete records with correct CRCs."""
    at, end = 0, len(data)
    view = memoryview(data)
    unpack = _CHECKED.unpack_from
    try:
        while at < end:
            size, magic, crc, place, sys_flag, body_length = unpack(data, at)
            body_at = at + _CHECKED.size
            if sys_flag & _V6_HOSTS:
                fixed = _FIXED[sys_flag & _V6_HOSTS]
                body_at, body_length = at + fixed.size, fixed.unpack_from(data, at)[-1]
            stop, body_end = at + size, body_at + body_length
            if (
                place != offset + at
                or (magic != MAGIC_V1 and magic != MAGIC_V2)  # noqa: PLR1714 - half the time of a tuple
                or not body_at <= body_end <= stop <= end
                or crc32(view[body_at:body_end]) & 0x7FFFFFFF != crc
            ):
                return False
            at = stop
    except struct.error:
        return False
    return True


def parse_record(data: bytes, at: int, offset: int) -> ParsedRecord:
    """Parse the record of log offset ``offset``, which is at ``at`` of ``data``. Size and magic have been checked.

    Raises:
        RecordError: the record belongs to another offset, its lengths are inconsistent, or its body has a wrong CRC.
    """
    try:
        fixed = _FIXED[_SYS_FLAG.unpack_from(data, at + SYS_FLAG_AT)[0] & _V6_HOSTS]
        (
            size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag, born_timestamp, _, store_timestamp,
            _, _, prepared_offset, body_length
        ) = fixed.unpack_from(data, at)  # fmt: skip
        body_at = at + fixed.size
        topic_at = body_at + body_length
        if physical_offset != offset or not 0 <= body_length < size:
            raise RecordError(f"the record has the physical offset {physical_offset} and a body of {body_length} bytes")
        topic_length_bytes = 1 if magic == MAGIC_V1 else 2
        name_at = topic_at + topic_length_bytes
        length_at = name_at + int.from_bytes(data[topic_at:name_at], "big")
        properties = data[length_at + 2 : at + size]
        if length_at + 2 > at + size or int.from_bytes(data[length_at : length_at + 2], "big") != len(properties):
            raise RecordError("the lengths of the record are inconsistent")
        if crc32(memoryview(data)[body_at:topic_at]) & 0x7FFFFFFF != crc:
            raise RecordError("the body has a wrong CRC")
        topic = data[name_at:length_at].decode()
        # The CRC covers only the body: zeros after a torn write must not count as the rest of the record.
        if not topic or "\0" in topic or properties.decode().endswith("\0"):
            raise RecordError("the topic or the properties were not written")
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(f"the record is damaged: {error}") from error
    body = data[body_at:topic_at] if sys_flag & _INNER_BATCH else b""
    return ParsedRecord(
        offset, size, topic, queue_id, queue_offset, store_timestamp, born_timestamp, sys_flag, properties, body,
        prepared_offset,
    )  # fmt: skip


def to_pending_record(record: ParsedRecord) -> PendingRecord:
    """Convert a record of the log into the form that it had before the append, which builders take."""
    text = record.properties.decode()
    return PendingRecord(
        record.topic,
        record.queue_id,
        record.body,
        record.properties,
        encode_timer_code(text) if record.topic == TIMER_TOPIC else tag_hash(find_property(text, TAGS)),
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
    )
