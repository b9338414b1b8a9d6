"""Reads the items of a queue as rows that are the same for both types of queue, for those who compare or convert them.

Neighbours: :mod:`~raptormq.storage.message_reader` and :mod:`~raptormq.storage.batch_reader` answer consumers.
"""

from __future__ import annotations

from raptormq.errors import ConversionRefused
from raptormq.storage.batch_queue import BATCH_ITEM_BYTES, BatchConsumeQueue, BatchItem, unpack_item
from raptormq.storage.commit_log import CommitLog
from raptormq.storage.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES, ConsumeQueue
from raptormq.storage.queue_table import QueueTable


class QueueRows:
    """Reads; every method takes ``wait`` and without it raises PagesMissing where the disk would be waited for."""

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
        number = self._table.batch_search.with_offset(queue, offset, wait=wait)
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
        sound = [row for row in rows if row.is_sound and low <= row.physical and row.physical + row.size <= high]
        if strict and len(sound) < len(rows):
            raise ConversionRefused(
                f"an item of queue {queue.queue_id} of {queue.topic} is damaged; a broker that is started without the "
                "folders consumequeue and batchconsumequeue builds all queues again"
            )
        return sound
