"""What goes into the log and what comes out of it: groups of records, in columns.

Columns instead of one object per record keep the append cheap; the same batch is the answer to the broker, the unit of
dispatch after an append and the unit that recovery reads back from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from raptormq.storage.consume_queue import ConsumeQueue


class PendingRecord(NamedTuple):
    """One message on its way into the log; the store adds offsets, store time, sizes and CRC.

    Nothing is copied or checked: the caller keeps to the limits (topic <= 65,535, properties <= 32,767 bytes, numbers
    within their fields).
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    """As stored, maybe compressed; whoever passes a view keeps its buffer unchanged until the append returns."""
    properties: bytes = b""
    """Text form, UTF-8."""
    tag_code: int = 0
    """What the consume queue keeps for filters: hash of the TAGS property, 0 without one."""
    born_timestamp: int = 0
    """Ms since 1970."""
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    """ip (4 or 16 bytes) and port (4); the host bits of ``sys_flag`` follow its length."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class AppendResult:
    """A group of records at consecutive places of the log; all columns have one entry per record.

    ``queue_offsets[i]`` is 0 and ``queues[i]`` None for a record that no queue shows (a prepared or rolled back
    transaction).
    """

    __slots__ = (
        "end_offset",
        "physical_offsets",
        "queue_offsets",
        "queues",
        "records",
        "sizes",
        "start_offset",
        "store_timestamps",
    )

    def __init__(self, records: Sequence[PendingRecord], start_offset: int, store_timestamps: Sequence[int]) -> None:
        self.records = records
        self.start_offset = start_offset
        self.end_offset = start_offset
        """First byte after the group: acknowledge under SYNC_FLUSH when the log is flushed up to here."""
        self.store_timestamps = store_timestamps
        self.physical_offsets: list[int] = []
        self.sizes: list[int] = []
        self.queue_offsets: list[int] = []
        self.queues: list[ConsumeQueue | None] = []

    @property
    def store_timestamp(self) -> int:
        """Time of the last record, in ms since 1970; all records of one append have the same."""
        return self.store_timestamps[-1]


Arrival = tuple[str, int, int, int]
"""A message that consumers can see now: topic, queue id, next offset of the queue,
tag code; wakes the pulls held for its queue.
"""
