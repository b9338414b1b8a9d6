"""Parses a piece of the log in a process of its own, for the concurrent build of queues and index.

What goes over is bytes, what comes back are columns: a column of small integers or of one repeated topic costs a tenth
of what objects would. Neighbour: :mod:`~raptormq.storage.concurrent_scanner`.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.errors import RecordError
from raptormq.storage.log_batch import PendingRecord
from raptormq.storage.record_parser import parse_record, peek, pending_of


class ParsedBlock(NamedTuple):
    """Records of a block in columns, up to the first that is not valid."""

    sizes: tuple[int, ...]
    queue_offsets: tuple[int, ...]
    store_timestamps: tuple[int, ...]
    columns: tuple[tuple[object, ...], ...]
    """One for each field of :class:`~raptormq.storage.log_batch.PendingRecord`."""

    def records(self) -> list[PendingRecord]:
        """Return the records as the builders take them."""
        return list(map(PendingRecord._make, zip(*self.columns, strict=True)))


def parse_block(data: bytes, offset: int) -> ParsedBlock:
    """Parse records back to back, the first of which is at ``offset`` of the log."""
    rows: list[tuple[int, int, int]] = []
    records: list[PendingRecord] = []
    topics: dict[str, str] = {}
    at = 0
    while at < len(data):
        try:
            record = parse_record(data, at, offset + at)
        except RecordError:
            break
        pending = pending_of(record)
        records.append(pending._replace(topic=topics.setdefault(record.topic, record.topic)))
        rows.append((record.size, record.queue_offset, record.store_timestamp))
        at += peek(data, at)[0]
    sizes, queue_offsets, timestamps = zip(*rows, strict=True) if rows else ((), (), ())
    return ParsedBlock(sizes, queue_offsets, timestamps, tuple(zip(*records, strict=True)))
