"""Builds queues of the other type for one topic, while the old queues stay in use.

The new queues of a :class:`QueueConversion` are filled from two sources. :meth:`QueueConversion.copy` copies the items
of the old queues, slice by slice. The dispatcher, with the conversion as one more builder, adds new records to queues
that have caught up. Both run on the thread of the store. Therefore a queue that has caught up never falls behind again,
and the switch takes place between two event loop iterations.

A single message becomes a batch item of one message, whose store time is read from its record. A batch item of one
message becomes a message, unless its record is an inner batch, which readers of SimpleCQ do not unpack. The result is
the same as after a rebuild from the log.

:class:`QueueRows` reads the items of a queue as rows that are the same for both types, for conversion and comparison.

See also: :mod:`~raptormq.storage.conversion.manager` controls the steps, :mod:`~raptormq.storage.conversion.verify`
compares the results. Consumers are served by :mod:`~raptormq.storage.read.queue_reader` and
:mod:`~raptormq.storage.read.batch_reader`.
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

    If ``wait`` is false, every method raises PagesMissing instead of blocking on the disk.
    """

    def __init__(self, log: CommitLog, table: QueueTable) -> None:
        self._log = log
        self._table = table

    def first_offset(self, queue: ConsumeQueue, *, wait: bool) -> int:
        """Return the queue offset of the first message whose record is still in the log."""
        return self._table.min_offset(queue, self._log.min_offset, wait=wait)

    def last(self, queue: ConsumeQueue, *, wait: bool) -> BatchItem:
        """Return the last row of a queue that ever had a message; its record may be deleted."""
        if isinstance(queue, BatchConsumeQueue):
            return self._table.batch_search.item(queue, queue.item_count - 1, wait=wait)
        physical, size, tag_code = self._table.item(queue, queue.max_offset - 1, wait=wait)
        return BatchItem(physical, size, tag_code, 0, queue.max_offset - 1, 1)

    def read(
        self, queue: ConsumeQueue, offset: int, count: int, *, wait: bool, strict: bool = False
    ) -> tuple[list[BatchItem], int]:
        """Return up to ``count`` rows, beginning with the one that holds ``offset``, and the offset after them.

        ``offset`` lies between minimum and maximum of the queue. A row of a SimpleCQ queue has one message and no store
        time. Fillers are skipped. Invalid items are skipped too, unless ``strict``.

        Raises:
            ConversionRefused: with ``strict``, an item is invalid.
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
        return self._valid_rows(queue, rows, strict), offset + len(whole) // ITEM_BYTES

    def _read_batches(
        self, queue: BatchConsumeQueue, offset: int, count: int, *, wait: bool, strict: bool
    ) -> tuple[list[BatchItem], int]:
        number = self._table.batch_search.find_by_offset(queue, offset, wait=wait)
        while number < queue.item_count:
            data = self._table.files.read(queue, number, min(count, queue.item_count - number), wait=wait)
            whole = range(0, len(data) // BATCH_ITEM_BYTES * BATCH_ITEM_BYTES, BATCH_ITEM_BYTES)
            items = self._valid_rows(queue, [unpack_item(data, at) for at in whole], strict)
            rows = [item for item in items if item.end > offset]
            if rows:
                return rows, rows[-1].end
            number += len(whole)
        return [], queue.max_offset

    def _valid_rows(self, queue: ConsumeQueue, rows: list[BatchItem], strict: bool) -> list[BatchItem]:
        """Return the valid rows, which point into the log; with ``strict``, raise when there are others."""
        low, high = self._log.min_offset, self._log.end_offset
        valid = [row for row in rows if row.is_valid and low <= row.physical and row.physical + row.size <= high]
        if strict and len(valid) < len(rows):
            raise ConversionRefused(
                f"an item of queue {queue.queue_id} of {queue.topic} is damaged; a broker that is started without the "
                "folders consumequeue and batchconsumequeue builds all queues again"
            )
        return valid


SLICE_ROWS = 128
"""Maximum number of items copied in one step, which takes less than a millisecond."""
_TAIL_BYTES = 1 << 16
"""Size in bytes from which the tail of a new queue is written immediately. A timer writes shorter tails."""
_INNER_BATCH = int(SysFlag.INNER_BATCH)


class QueueConversion:
    """The new queues of ``topic``. The dispatcher uses the object as a builder until the conversion ends."""

    def __init__(self, topic: str, log: CommitLog, table: QueueTable, *, to_batch: bool) -> None:
        self.topic = topic
        self.to_batch = to_batch
        self.queues: dict[int, ConsumeQueue] = {}
        """New queues by queue id. Their files are in the folder of their type."""
        self.rows = QueueRows(log, table)
        self.refusal = ""
        """Reason why the queues cannot be converted; empty while they can."""
        self._log = log
        self._table = table
        self._lagging: dict[int, int] = {}
        """Queues with items left to copy, each with the offset up to which its old items have been read."""
        self._topic_field = encode_topic_field(topic)
        self.is_switched = False
        """Whether the new queues have replaced the old ones."""

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
        """Add lists that have just been appended to queues that have caught up."""
        for pending, queue, first, after in batch.parts():
            if pending.topic == self.topic and queue is not None:
                offset = batch.queue_offsets[first]
                for at in range(first, after):
                    place, size, code = batch.physical_offsets[at], batch.sizes[at], pending.tag_codes[at - first]
                    self._apply(queue, BatchItem(place, size, code, batch.store_timestamp, offset + at - first, 1))

    def _apply(self, source: ConsumeQueue, item: BatchItem, *, is_inner: bool = False) -> None:
        if source.is_batch is self.to_batch:
            return  # created after the switch; a second queue of this name would remain after a deletion of the topic
        queue = self._queue(source)
        if item.base != queue.max_offset:
            if not self.is_switched:
                self._lagging.setdefault(source.queue_id, 0)
        elif self.to_batch or not is_inner:
            self._table.add(queue, item)
        else:
            self._lagging.setdefault(source.queue_id, 0)
            self.refusal = _inner_batch_refusal(source, item)

    def _queue(self, source: ConsumeQueue) -> ConsumeQueue:
        """Return the new queue for ``source``; create it when it does not exist."""
        return self.queues.get(source.queue_id) or self.make(source.queue_id)

    def make(self, queue_id: int) -> ConsumeQueue:
        """Create an empty new queue."""
        kind = BatchConsumeQueue if self.to_batch else ConsumeQueue
        queue = self.queues[queue_id] = kind(self.topic, queue_id, self._topic_field)
        return queue

    # --- from the old queues ---

    def begin(self) -> None:
        """Start with all queues of the topic, and discard new queues without an old one."""
        for queue_id in self._table.queue_ids(self.topic):
            self._lagging[queue_id] = 0
        for queue_id in self.queues.keys() - self._lagging.keys():
            self._table.reset(self.queues.pop(queue_id))

    def restart_queue(self, queue_id: int) -> None:
        """Discard a new queue and copy it again."""
        self._table.reset(self.queues[queue_id])
        self._lagging[queue_id] = 0

    @property
    def is_lagging(self) -> bool:
        """Whether :meth:`copy` has work left."""
        return bool(self._lagging)

    def copy(self, *, wait: bool = False) -> bool:
        """Copy one slice, or mark a queue as caught up. Return True when all queues have caught up.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
            ConversionRefused: an inner batch does not fit the new queues.
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
        """Copy one slice of a queue; return True when nothing is left."""
        queue = self._queue(source)
        first = self.rows.first_offset(source, wait=wait) if source.max_offset else 0
        if queue.max_offset > source.max_offset or 0 < queue.max_offset < first:
            self._table.reset(queue)  # the records of the queue are deleted, or were never in the log
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
        """Copy the last item of a queue whose messages are all deleted: it determines the next offset."""
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
                raise ConversionRefused(_inner_batch_refusal(source, row))
            else:
                item = row
            if item.base >= start:
                self._table.add(queue, item)

    def _record_headers(self, rows: list[BatchItem], wait: bool) -> list[Buffer]:
        """Return the headers of the records of ``rows``."""
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
        """Return whether every message visible to consumers is in the new queues."""
        if self._lagging or self.refusal:
            return False
        return all(self._queue(source).max_offset == source.max_offset for source in self._table.queues_of(self.topic))

    def switch(self) -> list[ConsumeQueue]:
        """Replace the queues of the topic by the new ones, which must have caught up. Return the old ones.

        Records that are appended but not confirmed were assigned to the old queues. The conversion stays attached to
        the dispatcher until all of them are dispatched.
        """
        self.is_switched = True
        return self._table.replace(self.topic, self.queues, is_batch=self.to_batch)

    def discard(self) -> None:
        """Close the new queues; their files stay."""
        for queue in self.queues.values():
            queue.deleted = True
            queue.tail = None
            self._table.files.close_queue(queue)
        self.queues.clear()

    def progress(self) -> tuple[int, int]:
        """Return the number of messages in the new queues and in all queues."""
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
    """Return False when the record is damaged."""
    return peek(head, 0)[1] in (MAGIC_V1, MAGIC_V2) and peek_physical_offset(head) == row.physical


def _sys_flag(head: Buffer) -> int:
    return int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")


def _inner_batch_refusal(source: ConsumeQueue, item: BatchItem) -> str:
    return (
        f"queue {source.queue_id} of {source.topic} holds an inner batch of {item.messages} messages at offset "
        f"{item.base}, which SimpleCQ queues cannot hold"
    )
