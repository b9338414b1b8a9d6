"""What goes into the log and what comes out of it: groups of records, in columns.

Columns instead of one object per record keep the append cheap; the same batch is the answer to the broker, the unit of
dispatch after an append and the unit that recovery reads back from the log. Lists of messages for one queue, which
producers send in one piece, stay in one piece until their bytes are in the log: what all messages of a list have in
common is done once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from raptormq.protocol.batch import BatchRow

if TYPE_CHECKING:
    from raptormq.storage.queue.consume_queue import ConsumeQueue


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


class PendingBatch(PendingRecord):
    """A batch that is stored whole, whose messages somebody has looked at already."""

    messages: int = 0
    """How many, as far as somebody has counted them."""
    texts: Sequence[bytes] = ()
    """Properties of each message."""
    keys: bytes = b""
    """Instead of them, when there are no other keys: the unique keys of all messages and, last, of the batch, back to
    back, ASCII and all of one length."""


class PendingList(NamedTuple):
    """Messages for one queue on their way into the log, in the bytes that their producer sent; each becomes a record
    of its own. The same limits hold as for :class:`PendingRecord`.
    """

    topic: str
    queue_id: int
    batch: bytes
    """Records of :mod:`raptormq.protocol.batch`, back to back."""
    rows: Sequence[BatchRow]
    """All records of ``batch``; at least one."""
    tag_codes: Sequence[int]
    """One for each row."""
    common_properties: bytes = b""
    """What every message gets behind its own properties."""
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    sys_flag: int = 0


class AppendResult:
    """A group of records at consecutive places of the log; all columns have one entry per record.

    ``queue_offsets[i]`` is 0 and ``queues[i]`` None for a record that no queue shows (a prepared or rolled back
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
        """First byte after the group: acknowledge under SYNC_FLUSH when the log is flushed up to here."""
        self.message_count = len(records)
        """Messages of the group; the wrapper of a batch is one record and as many messages as it holds."""
        self.store_timestamps = store_timestamps
        self.physical_offsets: list[int] = []
        self.sizes: list[int] = []
        self.queue_offsets: list[int] = []
        self.queues: list[ConsumeQueue | None] = []

    @property
    def store_timestamp(self) -> int:
        """Time of the last record, in ms since 1970; all records of one append have the same."""
        return self.store_timestamps[-1]

    def bytes_by_topic(self) -> dict[str, int]:
        """Return how many bytes of log each topic took."""
        topics = {record[0] for record in self.records}
        if len(topics) == 1:
            return {topics.pop(): sum(self.sizes)}
        found = dict.fromkeys(topics, 0)
        for record, size in zip(self.records, self.sizes, strict=True):
            found[record[0]] += size
        return found

    def drop_topic(self, topic: str) -> None:
        """Let the messages of a topic that was deleted stay out of everything derived."""
        for index, record in enumerate(self.records):
            if record.topic == topic:
                self.queues[index] = None

    def arrivals(self) -> list[Arrival]:
        """Return what became visible with this group."""
        return [
            (record[0], record[1], offset + 1, record[4])
            for record, queue, offset in zip(self.records, self.queues, self.queue_offsets, strict=True)
            if queue is not None
        ]


class AppendedLists:
    """Lists at consecutive places of the log; the columns have one entry per message."""

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
        """First byte after the group, as in :class:`AppendResult`."""
        self.store_timestamp = store_timestamp
        self.physical_offsets: list[int] = []
        self.sizes: list[int] = []
        self.queue_offsets: list[int] = []
        self.queues: list[ConsumeQueue | None] = []
        """One for each list; None for a topic that has been deleted since."""

    @property
    def message_count(self) -> int:
        """Messages of the group."""
        return len(self.sizes)

    def parts(self) -> Iterator[tuple[PendingList, ConsumeQueue | None, int, int]]:
        """Yield each list that has a queue already with it and the range of its messages in the columns."""
        first = 0
        for pending, queue in zip(self.lists, self.queues, strict=False):
            after = first + len(pending.rows)
            yield pending, queue, first, after
            first = after

    def bytes_by_topic(self) -> dict[str, int]:
        """Return how many bytes of log each topic took."""
        found: dict[str, int] = {}
        for pending, _, first, after in self.parts():
            found[pending.topic] = found.get(pending.topic, 0) + sum(self.sizes[first:after])
        return found

    def drop_topic(self, topic: str) -> None:
        """Let the lists of a topic that was deleted stay out of everything derived."""
        for index, pending in enumerate(self.lists):
            if pending.topic == topic:
                self.queues[index] = None

    def arrivals(self) -> list[Arrival]:
        """Return what became visible with this group."""
        return [
            (pending.topic, pending.queue_id, self.queue_offsets[after - 1] + 1, tag_code)
            for pending, queue, _, after in self.parts()
            if queue is not None
            for tag_code in set(pending.tag_codes)
        ]


Appended = AppendResult | AppendedLists
Arrival = tuple[str, int, int, int]
"""Messages that consumers can see now: topic, queue id, next offset of the queue, tag code; wakes the pulls held for
its queue. Of a list there is one for each of its tag codes.
"""
