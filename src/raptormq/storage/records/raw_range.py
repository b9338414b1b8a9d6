"""Byte ranges of the log, which the leader sends and a follower validates before it writes them.

A range begins and ends at record boundaries. It may span segments. Each segment ends with a filler, or with a record
that fills it exactly (layout: :mod:`raptormq.protocol.record`)::

    | record | record | filler to the end of the segment | record | ...
    ^ begin                                              ^ a multiple of the segment size    ^ end

:mod:`~raptormq.storage.records.scanner` skips damaged records, because no other replica can provide them. Here a
damaged record is an error, because the follower can request the range again.
"""

from __future__ import annotations

from raptormq.errors import RecordError
from raptormq.protocol.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    decode_record,
)
from raptormq.storage.fs import Buffer
from raptormq.storage.queue import AppendResult
from raptormq.storage.records.parser import parse_record, peek, to_pending_record


def next_record_end(data: Buffer, at: int, offset: int, segment_size: int) -> int:
    """Return the size in bytes of the record or filler at ``data[at]``. ``offset`` is its log offset. Only its first 8
    bytes are read.

    Raises:
        RecordError: neither a record nor a filler begins there.
    """
    left = segment_size - offset % segment_size
    if at + BLANK_BYTES <= len(data):
        size, magic = peek(data, at)
        if magic == BLANK_MAGIC and size == left:
            return size
        if magic in (MAGIC_V1, MAGIC_V2) and MIN_RECORD_BYTES <= size <= left:
            return size
    raise RecordError(f"no record begins at offset {offset}")


def last_record_end(data: Buffer, offset: int, segment_size: int) -> int:
    """Return the log offset after the last complete record or filler of ``data``, which begins at log offset
    ``offset``. Return ``offset`` if the first record is incomplete.

    Raises:
        RecordError: the bytes between are neither a record nor a filler.
    """
    at = 0
    while at + BLANK_BYTES <= len(data):
        size = next_record_end(data, at, offset + at, segment_size)
        if at + size > len(data):
            break
        at += size
    return offset + at


def valid_end(data: bytes, offset: int, segment_size: int) -> tuple[int, bool]:
    """Return the log offset after the last valid record or filler of ``data``, which begins at log offset ``offset``,
    and whether ``data`` ends within the record after it. If it does not, and more bytes follow, that record is damaged.
    """
    at, size = 0, len(data)
    try:
        while at < size:
            if at + BLANK_BYTES > size:
                return offset + at, True
            length = next_record_end(data, at, offset + at, segment_size)
            if peek(data, at)[1] != BLANK_MAGIC:
                if at + length > size:
                    return offset + at, True
                parse_record(data, at, offset + at)
            at += length
    except RecordError:
        pass
    return offset + at, False


def parse_range(data: bytes, offset: int, segment_size: int, with_bodies: str = "") -> AppendResult:
    """Parse the records of a range and verify their CRCs. The caller sets ``queues`` of the result. Bodies are included
    only for batches and for records of the topic ``with_bodies``.

    Raises:
        RecordError: a record is damaged or has another log offset, or the range does not end at a record boundary.
    """
    timestamps: list[int] = []
    batch = AppendResult([], offset, timestamps)
    records = []
    at = 0
    while at < len(data):
        size = next_record_end(data, at, offset + at, segment_size)
        if at + size > len(data):
            raise RecordError(f"the record at offset {offset + at} is incomplete")
        if peek(data, at)[1] != BLANK_MAGIC:
            record = parse_record(data, at, offset + at)
            pending = to_pending_record(record)
            if record.topic == with_bodies:
                pending = pending._replace(body=decode_record(data, at, check_crc=False).body)
            records.append(pending)
            timestamps.append(record.store_timestamp)
            batch.physical_offsets.append(record.physical_offset)
            batch.sizes.append(record.size)
            batch.queue_offsets.append(record.queue_offset)
        at += size
    batch.records = records
    batch.message_count = len(records)
    batch.end_offset = offset + at
    return batch
