"""Ranges of the log as bytes: what a copy of the log sends to another one, and checks before it writes it.

A range begins and ends where a record does. It may go over the ends of segments, each of which is a filler or a record
that fills its segment (layout: :mod:`raptormq.protocol.record`)::

    | record | record | filler to the end of the segment | record | ...
    ^ begin                                              ^ a multiple of the segment size    ^ end

A walk through the log (:mod:`~raptormq.storage.records.scanner`) steps over damage, because what follows is all there
is. Here damage is an error: a copy asks for the range again.
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
    """Return the size of the record or filler at ``data[at]``, which is at ``offset`` of the log; only its head is
    looked at.

    Raises:
        RecordError: it is neither.
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
    """Return the offset behind the last whole record or filler of ``data``, which begins at ``offset``; ``offset``
    itself where the first one is cut.

    Raises:
        RecordError: something else is in between.
    """
    at = 0
    while at + BLANK_BYTES <= len(data):
        size = next_record_end(data, at, offset + at, segment_size)
        if at + size > len(data):
            break
        at += size
    return offset + at


def parse_range(data: bytes, offset: int, segment_size: int, with_bodies: str = "") -> AppendResult:
    """Return the records of a range, each of which has been checked with its CRC; ``queues`` is left for the caller to
    fill in. Records have no bodies, but for batches and those of the topic ``with_bodies``.

    Raises:
        RecordError: something in it is no record of this place, or it does not end with one.
    """
    timestamps: list[int] = []
    batch = AppendResult([], offset, timestamps)
    records = []
    at = 0
    while at < len(data):
        size = next_record_end(data, at, offset + at, segment_size)
        if at + size > len(data):
            raise RecordError(f"the record at offset {offset + at} is cut")
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
