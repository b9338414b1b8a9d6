"""Groups of records that are appended, dispatched, or read by recovery, in columns.

Columns instead of one object per record keep the append cheap. The result of an append, the unit of dispatch, and the
unit that recovery reads from the log are the same type. Messages for one queue that a producer sends in one request
stay together as a list until their bytes are in the log, so that their common fields are packed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from raptormq.protocol.batch import BatchRow

if TYPE_CHECKING:
    from raptormq.storage.queue.consume_queue import ConsumeQueue


class PendingRecord(NamedTuple):
    """One message to append. The store adds offsets, store time, sizes and CRC.

    Nothing is copied or checked. The caller ensures the limits: topic <= 65,535 bytes, properties <= 32,767 bytes,
    numbers within their fields.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    """The body as stored, possibly compressed. The buffer of a view must not change until the append returns."""
    properties: bytes = b""
    """The properties in their UTF-8 text form."""
    tag_code: int = 0
    """The tag code of the queue item: hash of the TAGS property, 0 without one."""
    born_timestamp: int = 0
    """Time at which the producer created the message, in ms since 1970."""
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    """IP (4 or 16 bytes) and port (4) of the producer. Their length determines the host bits of ``sys_flag``."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class PendingBatch(PendingRecord):
    """A batch to store whole, with the results of parsing its messages."""

    messages: int = 0
    """Number of messages; 0 if not counted."""
    texts: Sequence[bytes] = ()
    """Properties of each message."""
    keys: bytes = b""
    """Replaces ``texts`` if the messages have no other keys: the unique keys of all messages and, last, of the batch,
    concatenated; ASCII, all of the same length.
    """


class PendingList(NamedTuple):
    """Messages to append to one queue, in the bytes that their producer sent. Each message becomes one record. The
    limits of :class:`PendingRecord` apply.
    """

    topic: str
    queue_id: int
    batch: bytes
    """Records of :mod:`raptormq.protocol.batch`, back to back."""
    rows: Sequence[BatchRow]
    """The parsed messages of ``batch``, at least one."""
    tag_codes: Sequence[int]
    """Tag codes of the queue items, one per row."""
    common_properties: bytes = b""
    """Properties that are appended to those of every message."""
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    sys_flag: int = 0


class AppendResult:
    """A group of records at consecutive places of the log. All columns have one entry per record.

    ``queue_offsets[i]`` is 0 and ``queues[i]`` is None for a record that belongs to no queue (a prepared or rolled back
    transaction).
    """

    __slots__ = (
        "end_offset",
        "message_count",
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
        """First byte after the group. Under SYNC_FLUSH the group is acknowledged when the log is flushed up to here."""
        self.message_count = len(records)
        """Number of messages. The wrapper of a batch is one record that counts as many messages as it holds."""
        self.store_timestamps = store_timestamps
        self.physical_offsets: list[int] = []
        self.sizes: list[int] = []
        self.queue_offsets: list[int] = []
        self.queues: list[ConsumeQueue | None] = []

    @property
    def store_timestamp(self) -> int:
        """Store time of the last record, in ms since 1970; the same for all records of one append."""
        return self.store_timestamps[-1]

    def bytes_by_topic(self) -> dict[str, int]:
        """Return the bytes of log per topic."""
        topics = {record[0] for record in self.records}
        if len(topics) == 1:
            return {topics.pop(): sum(self.sizes)}
        found = dict.fromkeys(topics, 0)
        for record, size in zip(self.records, self.sizes, strict=True):
            found[record[0]] += size
        return found

    def drop_topic(self, topic: str) -> None:
        """Exclude the records of a deleted topic from queues and indexes."""
        for index, record in enumerate(self.records):
            if record.topic == topic:
                self.queues[index] = None

    def arrivals(self) -> list[Arrival]:
        """Return the messages that became visible with this group."""
        return [
            (record[0], record[1], offset + 1, record[4])
            for record, queue, offset in zip(self.records, self.queues, self.queue_offsets, strict=True)
            if queue is not None
        ]


class AppendedLists:
    """Lists at consecutive places of the log. The columns have one entry per message."""

    __slots__ = (
        "end_offset",
        "lists",
        "physical_offsets",
        "queue_offsets",
        "queues",
        "sizes",
        "start_offset",
        "store_timestamp",
    )

    def __init__(self, lists: Sequence[PendingList], start_offset: int, store_timestamp: int) -> None:
        self.lists = lists
        self.start_offset = start_offset
        self.end_offset = start_offset
        """First byte after the group, see :class:`AppendResult`."""
        self.store_timestamp = store_timestamp
        self.physical_offsets: list[int] = []
        self.sizes: list[int] = []
        self.queue_offsets: list[int] = []
        self.queues: list[ConsumeQueue | None] = []
        """Queue of each list; None if its topic was deleted meanwhile."""

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return len(self.sizes)

    def parts(self) -> Iterator[tuple[PendingList, ConsumeQueue | None, int, int]]:
        """Yield each packed list, its queue, and the range of its messages in the columns."""
        first = 0
        for pending, queue in zip(self.lists, self.queues, strict=False):
            after = first + len(pending.rows)
            yield pending, queue, first, after
            first = after

    def bytes_by_topic(self) -> dict[str, int]:
        """Return the bytes of log per topic."""
        found: dict[str, int] = {}
        for pending, _, first, after in self.parts():
            found[pending.topic] = found.get(pending.topic, 0) + sum(self.sizes[first:after])
        return found

    def drop_topic(self, topic: str) -> None:
        """Exclude the lists of a deleted topic from queues and indexes."""
        for index, pending in enumerate(self.lists):
            if pending.topic == topic:
                self.queues[index] = None

    def arrivals(self) -> list[Arrival]:
        """Return the messages that became visible with this group."""
        return [
            (pending.topic, pending.queue_id, self.queue_offsets[after - 1] + 1, tag_code)
            for pending, queue, _, after in self.parts()
            if queue is not None
            for tag_code in set(pending.tag_codes)
        ]


Appended = AppendResult | AppendedLists
Arrival = tuple[str, int, int, int]
"""Messages that became visible to consumers: topic, queue id, next offset of the queue, tag code. An arrival wakes the
long-polling pulls of the queue. A list has one arrival for each of its tag codes.
"""
