"""Finds items of a BatchCQ queue by queue offset, place in the log, or time, by bisection over all files.

:mod:`~raptormq.storage.queue.batch_queue` draws the layout, :mod:`~raptormq.storage.queue.files` reads the files.
Source: Apache RocketMQ ``BatchConsumeQueue.getBatchMsgIndexBuffer``, ``getOffsetInQueueByTime``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from raptormq.storage.queue.batch_queue import BATCH_ITEM_BYTES, BatchConsumeQueue, BatchItem, unpack_item
from raptormq.storage.queue.files import QueueFiles


class BatchSearch:
    """Searches queues whose items are in ``files``.

    All methods have a parameter ``wait``. If it is false, they raise PagesMissing instead of blocking on the disk.
    """

    def __init__(self, files: QueueFiles) -> None:
        self._files = files

    def item(self, queue: BatchConsumeQueue, number: int, *, wait: bool = True) -> BatchItem:
        """Return an existing item."""
        return unpack_item(self._files.read(queue, number, 1, wait=wait))

    def items(self, queue: BatchConsumeQueue, number: int, at_a_time: int, *, wait: bool) -> Iterator[BatchItem]:
        """Yield the items from ``number`` to the end of the queue, reading ``at_a_time`` of them at once."""
        while number < queue.item_count:
            items = self._files.read(queue, number, at_a_time, wait=wait)
            if len(items) < BATCH_ITEM_BYTES:
                return
            for at in range(0, len(items) - BATCH_ITEM_BYTES + 1, BATCH_ITEM_BYTES):
                yield unpack_item(items, at)
            number += len(items) // BATCH_ITEM_BYTES

    def find_by_offset(self, queue: BatchConsumeQueue, offset: int, *, wait: bool) -> int:
        """Return the number of the item that contains ``offset``, which lies between minimum and maximum of the queue.

        For an offset without a message this is the item before it.
        """
        seen_offset, seen_item = queue.last_read
        if seen_offset == offset and queue.first_live_item <= seen_item < queue.item_count:
            return seen_item
        number = self._first(queue, lambda item: item.base > offset, wait=wait) - 1
        return number if self._contains(queue, number, offset, wait) else self._scan_for(queue, number, offset, wait)

    def _contains(self, queue: BatchConsumeQueue, number: int, offset: int, wait: bool) -> bool:
        item = self.item(queue, number, wait=wait) if number >= queue.first_live_item else None
        return item is not None and item.is_valid and item.base <= offset < item.end

    def _scan_for(self, queue: BatchConsumeQueue, number: int, offset: int, wait: bool) -> int:
        """Return the last valid item that begins at or before ``offset``, searching linearly from ``number``.

        Called only if there is a gap, or if the bisection has met a damaged item.
        """
        low, high = queue.first_live_item, queue.item_count
        number = max(low, number)
        while number > low and not self._begins_by(queue, number, offset, wait):
            number -= 1
        ahead = number + 1
        while ahead < high and (
            self._begins_by(queue, ahead, offset, wait) or not self._is_plausible(queue, ahead, wait)
        ):
            number = ahead if self._is_plausible(queue, ahead, wait) else number
            ahead += 1
        return number

    def _begins_by(self, queue: BatchConsumeQueue, number: int, offset: int, wait: bool) -> bool:
        item = self.item(queue, number, wait=wait)
        return item.is_valid and item.base <= offset

    def _is_plausible(self, queue: BatchConsumeQueue, number: int, wait: bool) -> bool:
        return self.item(queue, number, wait=wait).is_valid

    def first_live_item(self, queue: BatchConsumeQueue, log_min: int, *, wait: bool) -> int:
        """Return the number of the first item whose record still exists in a log that starts at ``log_min``.

        The record of a damaged item counts as existing, unless the record of the next item is deleted.
        """

        def is_alive(item: BatchItem) -> bool:
            return not item.is_valid or item.physical >= log_min

        number = self._first(queue, is_alive, wait=wait)
        while (
            number + 1 < queue.item_count
            and not self._is_plausible(queue, number, wait)
            and not is_alive(self.item(queue, number + 1, wait=wait))
        ):
            number = self._first(queue, is_alive, low=number + 1, wait=wait)
        return number

    def offset_by_time(self, queue: BatchConsumeQueue, timestamp: int, *, upper: bool, wait: bool) -> int:
        """Return the offset of the first message stored at or after ``timestamp`` (ms). With ``upper``, return the last
        one stored at or before it. At the ends of the queue the results are those of SimpleCQ queues.
        """
        if upper:
            after = self._first(queue, lambda item: item.stored > timestamp, wait=wait)
            if after == queue.first_live_item:
                return queue.min_offset
            return self.item(queue, after - 1, wait=wait).end - 1
        found = self._first(queue, lambda item: item.stored >= timestamp, wait=wait)
        return self.item(queue, found, wait=wait).base if found < queue.item_count else queue.max_offset

    def _first(
        self, queue: BatchConsumeQueue, fits: Callable[[BatchItem], bool], *, low: int | None = None, wait: bool
    ) -> int:
        """Return the number of the first live item for which ``fits`` is true, or the item count if there is none.
        ``fits`` is monotonic: once true, it is true for all following items.

        Items in the tail are searched first: most readers are there, and no file is read.
        """
        low, high = queue.first_live_item if low is None else low, queue.item_count
        tail, written = queue.tail, queue.written
        if tail is not None and written >= low:
            if not fits(unpack_item(tail)):
                places = range(0, len(tail), BATCH_ITEM_BYTES)
                return written + bisect_left(places, True, key=lambda at: fits(unpack_item(tail, at)))
            high = written
        return bisect_left(range(high), True, lo=low, key=lambda number: fits(self.item(queue, number, wait=wait)))
