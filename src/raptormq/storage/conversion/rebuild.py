"""Builds the queues of one topic a second time, as those of the other type, while the first ones serve.

Two hands fill the new queues of a :class:`QueueConversion`. :meth:`QueueConversion.copy` brings the items of the old
ones over, slice by slice. The dispatch, in which the conversion is one more builder, adds what comes in to those that
have caught up. Both are calls on the thread of the store, so a queue that has caught up stays so, and the switch is a
moment between two turns of the loop.

A message of its own becomes a batch of one, whose time of storage is read from its record. A batch of one becomes a
message, unless it is stored as an inner batch, which no reader of SimpleCQ takes apart. What comes out is what a build
from the log would give.

:class:`QueueRows` reads the items of a queue as rows that are the same for both types of queue, for those who compare
or convert them.

Neighbours: :mod:`~raptormq.storage.conversion.manager` says when what is done,
:mod:`~raptormq.storage.conversion.verify` whether it is right. Consumers are answered by
:mod:`~raptormq.storage.read.queue_reader` and :mod:`~raptormq.storage.read.batch_reader`.
"""

from __future__ import annotations

from raptormq.errors import ConversionRefused
from raptormq.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, SYS_FLAG_AT, SysFlag
from raptormq.storage.fs import Buffer, Extent, PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import (
    BATCH_ITEM_BYTES,
    FILLER_SIZE,
    ITEM,
    ITEM_BYTES,
    AppendedLists,
    AppendResult,
    BatchConsumeQueue,
    BatchItem,
    ConsumeQueue,
    QueueTable,
    encode_topic_field,
    message_count,
    unpack_item,
)
from raptormq.storage.records import peek, peek_physical_offset, peek_store_timestamp


class QueueRows:
    """Reads the items of queues of both types as rows.

    Every method takes ``wait`` and without it raises PagesMissing where the disk would be waited for.
    """

    def __init__(self, log: CommitLog, table: QueueTable) -> None:
        self._log = log
        self._table = table

    def first_offset(self, queue: ConsumeQueue, *, wait: bool) -> int:
        """Return the offset of the first message that the log still has."""
        return self._table.min_offset(queue, self._log.min_offset, wait=wait)

    def last(self, queue: ConsumeQueue, *, wait: bool) -> BatchItem:
        """Return the last row of a queue that ever had a message; the log may not have its message any more."""
        if isinstance(queue, BatchConsumeQueue):
            return self._table.batch_search.item(queue, queue.item_count - 1, wait=wait)
        physical, size, tag_code = self._table.item(queue, queue.max_offset - 1, wait=wait)
        return BatchItem(physical, size, tag_code, 0, queue.max_offset - 1, 1)

    def read(
        self, queue: ConsumeQueue, offset: int, count: int, *, wait: bool, strict: bool = False
    ) -> tuple[list[BatchItem], int]:
        """Return up to ``count`` rows from the one with message ``offset`` on, and the offset behind them.

        ``offset`` lies between minimum and maximum of the queue. Rows of a SimpleCQ queue are of one message and say
        nothing of the time. Fillers are left out, and so are items that cannot have been written so, unless ``strict``.

        Raises:
            ConversionRefused: with ``strict``, one of the items cannot have been written so.
        """
        if isinstance(queue, BatchConsumeQueue):
            return self._read_batches(queue, offset, count, wait=wait, strict=strict)
        data = self._table.files.read(queue, offset, min(count, queue.max_offset - offset), wait=wait)
        whole = memoryview(data)[: len(data) // ITEM_BYTES * ITEM_BYTES]
        rows = [
            BatchItem(physical, size, tag_code, 0, base, 1)
            for base, (physical, size, tag_code) in enumerate(ITEM.iter_unpack(whole), offset)
            if size != FILLER_SIZE
        ]
        return self._sound(queue, rows, strict), offset + len(whole) // ITEM_BYTES

    def _read_batches(
        self, queue: BatchConsumeQueue, offset: int, count: int, *, wait: bool, strict: bool
    ) -> tuple[list[BatchItem], int]:
        number = self._table.batch_search.find_by_offset(queue, offset, wait=wait)
        while number < queue.item_count:
            data = self._table.files.read(queue, number, min(count, queue.item_count - number), wait=wait)
            whole = range(0, len(data) // BATCH_ITEM_BYTES * BATCH_ITEM_BYTES, BATCH_ITEM_BYTES)
            items = self._sound(queue, [unpack_item(data, at) for at in whole], strict)
            rows = [item for item in items if item.end > offset]
            if rows:
                return rows, rows[-1].end
            number += len(whole)
        return [], queue.max_offset

    def _sound(self, queue: ConsumeQueue, rows: list[BatchItem], strict: bool) -> list[BatchItem]:
        """Return the rows that point into the log, or raise when there are others."""
        low, high = self._log.min_offset, self._log.end_offset
        sound = [row for row in rows if row.is_valid and low <= row.physical and row.physical + row.size <= high]
        if strict and len(sound) < len(rows):
            raise ConversionRefused(
                f"an item of queue {queue.queue_id} of {queue.topic} is damaged; a broker that is started without the "
                "folders consumequeue and batchconsumequeue builds all queues again"
            )
        return sound


SLICE_ROWS = 128
"""Items that are brought over in one step: less than a millisecond."""
_TAIL_BYTES = 1 << 16
"""A tail that has become so long is written; the others wait for the timer."""
_INNER_BATCH = int(SysFlag.INNER_BATCH)


class QueueConversion:
    """The new queues of ``topic``; an IndexBuilder of the dispatch while they are made."""

    def __init__(self, topic: str, log: CommitLog, table: QueueTable, *, to_batch: bool) -> None:
        self.topic = topic
        self.to_batch = to_batch
        self.queues: dict[int, ConsumeQueue] = {}
        """By queue id; their files are where those of the type belong."""
        self.rows = QueueRows(log, table)
        self.refusal = ""
        """Why the queues cannot be converted, once that is known."""
        self._log = log
        self._table = table
        self._lagging: dict[int, int] = {}
        """Queues with old items that are to be brought over, and up to where they have been read."""
        self._topic_field = encode_topic_field(topic)
        self.is_switched = False
        """Whether the new queues are those of the topic."""

    # --- from the dispatch ---

    def build(self, batch: AppendResult) -> None:
        """Add the records of ``batch`` to queues that have caught up."""
        topic = self.topic
        for record, queue, offset, physical, size, stored in zip(
            batch.records, batch.queues, batch.queue_offsets, batch.physical_offsets, batch.sizes,
            batch.store_timestamps, strict=True,
        ):  # fmt: skip
            if record.topic == topic and queue is not None:
                item = BatchItem(physical, size, record.tag_code, stored, offset, message_count(record))
                self._apply(queue, item, is_inner=bool(record.sys_flag & _INNER_BATCH))

    def build_lists(self, batch: AppendedLists) -> None:
        """The same for lists that have just been appended."""
        for pending, queue, first, after in batch.parts():
            if pending.topic == self.topic and queue is not None:
                offset = batch.queue_offsets[first]
                for at in range(first, after):
                    place, size, code = batch.physical_offsets[at], batch.sizes[at], pending.tag_codes[at - first]
                    self._apply(queue, BatchItem(place, size, code, batch.store_timestamp, offset + at - first, 1))

    def _apply(self, source: ConsumeQueue, item: BatchItem, *, is_inner: bool = False) -> None:
        if source.is_batch is self.to_batch:
            return  # made since the switch, and a second queue with its name would outlive the topic
        queue = self._queue(source)
        if item.base != queue.max_offset:
            if not self.is_switched:
                self._lagging.setdefault(source.queue_id, 0)
        elif self.to_batch or not is_inner:
            self._table.add(queue, item)
        else:
            self._lagging.setdefault(source.queue_id, 0)
            self.refusal = _refusal(source, item)

    def _queue(self, source: ConsumeQueue) -> ConsumeQueue:
        """Return the new queue that stands for ``source``, made when there is none yet."""
        return self.queues.get(source.queue_id) or self.make(source.queue_id)

    def make(self, queue_id: int) -> ConsumeQueue:
        """Make an empty new queue."""
        kind = BatchConsumeQueue if self.to_batch else ConsumeQueue
        queue = self.queues[queue_id] = kind(self.topic, queue_id, self._topic_field)
        return queue

    # --- from the old queues ---

    def begin(self) -> None:
        """Look at all queues of the topic: the old ones have to be there, and any of the new ones may be."""
        for queue_id in self._table.queue_ids(self.topic):
            self._lagging[queue_id] = 0
        for queue_id in self.queues.keys() - self._lagging.keys():
            self._table.reset(self.queues.pop(queue_id))

    def restart_queue(self, queue_id: int) -> None:
        """Throw away what there is of a queue."""
        self._table.reset(self.queues[queue_id])
        self._lagging[queue_id] = 0

    @property
    def is_lagging(self) -> bool:
        """Whether :meth:`copy` has something to do."""
        return bool(self._lagging)

    def copy(self, *, wait: bool = False) -> bool:
        """Bring one slice over, or find that a queue has caught up; True when all have.

        Raises:
            PagesMissing: without ``wait``, when the disk would have to be waited for.
            ConversionRefused: there is an inner batch, and the new queues cannot hold it.
            StorageError: the disk cannot read an item or a record.
            OSError: the disk cannot write the new queues.
        """
        if self.refusal:
            raise ConversionRefused(self.refusal)
        queue_id = next(iter(self._lagging), None)
        if queue_id is None:
            return True
        source = self._table.get(self.topic, queue_id)
        if source is None or self._catch_up(source, wait):
            del self._lagging[queue_id]
        return not self._lagging

    def _catch_up(self, source: ConsumeQueue, wait: bool) -> bool:
        """Bring one slice of a queue over; True when there was nothing left."""
        queue = self._queue(source)
        first = self.rows.first_offset(source, wait=wait) if source.max_offset else 0
        if queue.max_offset > source.max_offset or 0 < queue.max_offset < first:
            self._table.reset(queue)  # what it holds is gone from the log, or never came into it
            self._lagging[source.queue_id] = 0
        if queue.max_offset == source.max_offset:
            return True
        if first == source.max_offset:
            self._copy_last_item(source, queue, wait)
            return True
        start = max(first, queue.max_offset, self._lagging[source.queue_id])
        if start >= source.max_offset:
            raise ConversionRefused(f"the end of queue {source.queue_id} of {self.topic} is damaged")
        rows, end = self.rows.read(source, start, SLICE_ROWS, wait=wait, strict=True)
        self._add(source, queue, rows, start, wait)
        self._lagging[source.queue_id] = end
        if queue.tail is not None and len(queue.tail) >= _TAIL_BYTES:
            self._table.files.write_tail(queue)
        return False

    def _copy_last_item(self, source: ConsumeQueue, queue: ConsumeQueue, wait: bool) -> None:
        """Take over the last item of a queue whose messages are all gone: it tells which offset comes next."""
        last = self.rows.last(source, wait=wait)
        self._table.add(queue, last if self.to_batch else last._replace(base=last.end - 1, messages=1))

    def _add(self, source: ConsumeQueue, queue: ConsumeQueue, rows: list[BatchItem], start: int, wait: bool) -> None:
        heads = self._record_headers(rows, wait)
        stored = 0
        for row, head in zip(rows, heads, strict=True):
            is_record = _is_record(head, row)
            if self.to_batch:
                stored = peek_store_timestamp(head) if is_record else stored
                item = row._replace(stored=stored)
            elif row.messages > 1 or (is_record and _sys_flag(head) & _INNER_BATCH):
                raise ConversionRefused(_refusal(source, row))
            else:
                item = row
            if item.base >= start:
                self._table.add(queue, item)

    def _record_headers(self, rows: list[BatchItem], wait: bool) -> list[Buffer]:
        """Return the beginnings of the records that ``rows`` point to."""
        heads: list[Buffer] = []
        missing: list[Extent] = []
        for row in rows:
            try:
                heads.append(self._log.read(row.physical, MIN_RECORD_BYTES, wait=wait))
            except PagesMissing as error:
                missing += error.extents
        if missing:
            raise PagesMissing(missing)
        return heads

    # --- the switch ---

    def has_caught_up(self) -> bool:
        """Whether every message that consumers may see is in the new queues."""
        if self._lagging or self.refusal:
            return False
        return all(self._queue(source).max_offset == source.max_offset for source in self._table.queues_of(self.topic))

    def switch(self) -> list[ConsumeQueue]:
        """Let the new queues, which have caught up, be those of the topic; return the old ones.

        What has been appended and is not confirmed yet belongs to the old ones; this goes on following the dispatch
        until all of it has come.
        """
        self.is_switched = True
        return self._table.replace(self.topic, self.queues, is_batch=self.to_batch)

    def discard(self) -> None:
        """Forget the new queues; their files stay."""
        for queue in self.queues.values():
            queue.deleted = True
            queue.tail = None
            self._table.files.close_queue(queue)
        self.queues.clear()

    def progress(self) -> tuple[int, int]:
        """Return how many messages are in the new queues and how many there are in all."""
        done = total = 0
        queues = self.queues
        for source in self._table.queues_of(self.topic):
            low, high = source.min_offset, source.max_offset
            total += high - low
            queue = queues.get(source.queue_id)
            if queue is not None and queue.max_offset > low:
                done += min(queue.max_offset, high) - low
        return done, total


def _is_record(head: Buffer, row: BatchItem) -> bool:
    """False where a disk has damaged the record."""
    return peek(head, 0)[1] in (MAGIC_V1, MAGIC_V2) and peek_physical_offset(head) == row.physical


def _sys_flag(head: Buffer) -> int:
    return int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")


def _refusal(source: ConsumeQueue, item: BatchItem) -> str:
    return (
        f"queue {source.queue_id} of {source.topic} holds an inner batch of {item.messages} messages at offset "
        f"{item.base}, and queues of SimpleCQ hold none"
    )
