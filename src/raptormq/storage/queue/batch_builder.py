"""Appends items to BatchCQ queues, in the order of the log.

:mod:`~raptormq.storage.queue.table` calls the builder for records of BatchCQ topics and writes the tails. Source:
Apache RocketMQ ``BatchConsumeQueue.putBatchMessagePositionInfo``, ``truncateDirtyLogicFiles``.
"""

from __future__ import annotations

from collections import deque

from raptormq.logs import get_logger
from raptormq.storage.queue.batch_queue import (
    BATCH_ITEM,
    BATCH_ITEM_BYTES,
    NOT_COMPACTED,
    BatchConsumeQueue,
    BatchItem,
)
from raptormq.storage.queue.batch_search import BatchSearch
from raptormq.storage.queue.consume_queue import ConsumeQueue
from raptormq.storage.queue.files import QueueFiles

logger = get_logger(__name__)

MAX_GAP = 32_767_000
"""Largest gap between offsets in the middle of a queue. A larger gap means that the offset is damaged."""


class BatchQueueBuilder:
    """Appends items to queues. A queue that gets its first unwritten item is added to ``dirty``."""

    def __init__(self, files: QueueFiles, dirty: deque[ConsumeQueue]) -> None:
        self._files = files
        self._search = BatchSearch(files)
        self._dirty = dirty

    def add_next(
        self, queue: BatchConsumeQueue, physical: int, size: int, tag_code: int, stored: int, base: int, messages: int
    ) -> None:
        """Add the item of a record just appended. Like :meth:`add`, without creating a BatchItem."""
        if base != queue.max_offset or physical <= queue.max_physical:
            self.add(queue, BatchItem(physical, size, tag_code, stored, base, messages))
            return
        self._append(queue, physical, size, tag_code, stored, base, messages)

    def add(self, queue: BatchConsumeQueue, item: BatchItem) -> None:
        """Add ``item``, unless the queue has it already."""
        if item.physical <= queue.max_physical:
            return
        if item.base != queue.max_offset and not self._make_room(queue, item):
            return
        self._append(queue, *item)

    def _append(
        self, queue: BatchConsumeQueue, physical: int, size: int, tag_code: int, stored: int, base: int, messages: int
    ) -> None:
        tail = queue.tail
        if tail is None:
            tail = queue.tail = bytearray()
            self._dirty.append(queue)
        tail += BATCH_ITEM.pack(physical, size, tag_code, stored, base, messages, NOT_COMPACTED, 0)
        queue.max_offset = base + messages
        queue.max_physical = physical

    def _make_room(self, queue: BatchConsumeQueue, item: BatchItem) -> bool:
        """Prepare the queue for an item that does not follow the last one, which happens only in recovery. Return False
        to reject the item.
        """
        if not queue.max_offset:
            queue.min_offset = item.base
            return True
        if item.base > queue.max_offset:
            if item.base - queue.max_offset <= MAX_GAP:
                return True
            where = item.base, item.physical, queue.max_offset
            logger.warning("queue offset %d of the record at log offset %d does not follow %d", *where)
            return False
        self._truncate_to(queue, item.base)
        return True

    def _truncate_to(self, queue: BatchConsumeQueue, offset: int) -> None:
        """Make ``offset`` the next offset, because the later record in the log is authoritative.

        A topic that was deleted and created again starts at 0. In any other case one of the records is damaged.
        """
        if offset <= queue.min_offset:
            self.reset(queue)
            queue.min_offset = offset
            return
        logger.warning(
            "the queue %s/%d is truncated from offset %d to %d", queue.topic, queue.queue_id, queue.max_offset, offset
        )
        number = self._search.find_by_offset(queue, offset - 1, wait=True) + 1
        if number >= queue.written and queue.tail is not None:
            del queue.tail[(number - queue.written) * BATCH_ITEM_BYTES :]
        else:
            queue.tail = None
            queue.written = number
            self._files.truncate(queue, self._files.offsets(queue))
        queue.max_offset = offset
        queue.last_read = (-1, 0)

    def reset(self, queue: BatchConsumeQueue) -> None:
        """Empty ``queue`` and remove its files."""
        self._files.remove_queue(queue)
        queue.tail = None
        queue.min_offset = queue.max_offset = queue.next_offset = 0
        queue.written = queue.first_live_item = 0
        queue.last_read = (-1, 0)
        queue.min_checked_at = 0
        queue.has_expired_files = False
        queue.max_physical = -1
