"""All consume queues of a store by topic and queue id. Dispatch fills them, and slices write them to their files.

:mod:`~raptormq.storage.queue.files` accesses the files, :mod:`~raptormq.storage.recovery.queue_loading` loads the state
at a start. The table belongs to one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from raptormq.logs import get_logger
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.queue.append_batches import AppendedLists, AppendResult
from raptormq.storage.queue.batch_builder import BatchQueueBuilder
from raptormq.storage.queue.batch_queue import BatchConsumeQueue, BatchItem, message_count
from raptormq.storage.queue.batch_search import BatchSearch
from raptormq.storage.queue.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES, ConsumeQueue, encode_topic_field
from raptormq.storage.queue.files import QueueFiles
from raptormq.storage.queue.topic_state import ConversionEntry

logger = get_logger(__name__)

MAX_GAP_ITEMS = 1_000_000
"""Largest gap between offsets in the middle of a queue. A larger gap means that the offset is damaged."""


class QueueTable:
    """The queues of a store, and the list of those with unwritten items."""

    def __init__(self, files: QueueFiles, delays_ms: tuple[int, ...] = ()) -> None:
        """``delays_ms`` are the delays of the queues of SCHEDULE_TOPIC_XXXX
        (:mod:`~raptormq.protocol.delay_levels`)."""
        self.files = files
        self._delays_ms = delays_ms
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._dirty: deque[ConsumeQueue] = deque()
        self._batch_builder = BatchQueueBuilder(files, self._dirty)
        self.batch_search = BatchSearch(files)
        self.batch_topics: set[str] = set()
        """Topics whose queues are created as BatchCQ."""
        self.conversions: dict[str, ConversionEntry] = {}
        """Topics that may have files of both types (:mod:`~raptormq.storage.queue.topic_state`)."""
        self.topic_tombstones: dict[str, int] = {}
        """Log offsets below which the records of a topic belong to a deleted topic of that name
        (:mod:`~raptormq.storage.queue.topic_state`).
        """

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, or None if it never had a message."""
        queues = self._topics.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def is_at_end(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether ``offset`` is the next offset of a non-empty queue, so that a read would find nothing."""
        queues = self._topics.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        return queue is not None and offset == queue.max_offset > 0

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, creating it if it does not exist."""
        queues = self._topics.get(topic)
        if queues is None:
            queues = self._topics[topic] = {}
        queue = queues.get(queue_id)
        if queue is None:
            sibling = next(iter(queues.values()), None)
            field = sibling.topic_field if sibling else encode_topic_field(topic)
            kind = BatchConsumeQueue if topic in self.batch_topics else ConsumeQueue
            queue = queues[queue_id] = kind(sibling.topic if sibling else topic, queue_id, field)
            if topic == SCHEDULE_TOPIC and 0 <= queue_id < len(self._delays_ms):
                queue.delay_ms = self._delays_ms[queue_id]
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in self._topics.values():
            yield from queues.values()

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def topics(self) -> list[str]:
        """Return the names of all topics that have a queue."""
        return list(self._topics)

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queue ids of ``topic``, ascending."""
        return sorted(self._topics.get(topic, ()))

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of ``topic``."""
        return list(self._topics.get(topic, {}).values())

    def build(self, batch: AppendResult) -> None:
        """Add the items of ``batch`` to their queues. Items that exist already are skipped."""
        pack, dirty = ITEM.pack, self._dirty
        for record, queue, offset, physical, size, stored in zip(
            batch.records, batch.queues, batch.queue_offsets, batch.physical_offsets, batch.sizes,
            batch.store_timestamps, strict=True,
        ):  # fmt: skip
            if queue is None or queue.deleted:
                continue
            if isinstance(queue, BatchConsumeQueue):
                self._batch_builder.add_next(queue, physical, size, record[4], stored, offset, message_count(record))
                continue
            tag_code = record[4] if queue.delay_ms is None else stored + queue.delay_ms
            if offset != queue.max_offset or physical <= queue.max_physical:
                self._insert(queue, offset, physical, size, tag_code)
                continue
            tail = queue.tail
            if tail is None:
                tail = queue.tail = bytearray()
                dirty.append(queue)
            tail += pack(physical, size, tag_code)
            queue.max_offset = offset + 1
            queue.max_physical = physical

    def build_lists(self, batch: AppendedLists) -> None:
        """Add the items of lists just appended to their queues."""
        for pending, queue, first, after in batch.parts():
            if queue is None or queue.deleted:
                continue
            places, sizes = batch.physical_offsets[first:after], batch.sizes[first:after]
            offset = batch.queue_offsets[first]
            if queue.is_batch:
                for base, place, size, code in zip(
                    range(offset, offset + len(places)), places, sizes, pending.tag_codes, strict=True
                ):
                    self._add_batch(queue, BatchItem(place, size, code, batch.store_timestamp, base, 1))
                continue
            if offset != queue.max_offset or places[0] <= queue.max_physical:
                for item in zip(range(offset, offset + len(places)), places, sizes, pending.tag_codes, strict=True):
                    self._insert(queue, *item)
                continue
            if queue.tail is None:
                queue.tail = bytearray()
                self._dirty.append(queue)
            queue.tail += b"".join(map(ITEM.pack, places, sizes, pending.tag_codes))
            queue.max_offset = offset + len(places)
            queue.max_physical = places[-1]

    def _add_batch(self, queue: ConsumeQueue, item: BatchItem) -> None:
        assert isinstance(queue, BatchConsumeQueue)
        self._batch_builder.add(queue, item)

    def _insert(self, queue: ConsumeQueue, offset: int, physical: int, size: int, tag_code: int) -> None:
        """Add an item that does not follow the last one, which happens only in recovery."""
        if physical <= queue.max_physical:
            return
        if offset - queue.max_offset > MAX_GAP_ITEMS and queue.max_offset:
            logger.warning(
                "queue offset %d of the record at log offset %d does not follow %d", offset, physical, queue.max_offset
            )
            return
        if offset < queue.max_offset:
            self._truncate_to(queue, offset)
        if queue.max_offset == 0 and offset > 0:
            self.files.start_at(queue, offset)
            if queue.tail is not None:
                self._dirty.append(queue)
        if queue.tail is None:
            queue.tail = bytearray()
            self._dirty.append(queue)
        queue.tail += ITEM.pack(physical, FILLER_SIZE, 0) * (offset - queue.max_offset)
        queue.tail += ITEM.pack(physical, size, tag_code)
        queue.max_offset = offset + 1
        queue.max_physical = physical

    def _truncate_to(self, queue: ConsumeQueue, offset: int) -> None:
        """Make ``offset`` the next item, because the later record in the log is authoritative.

        A topic that was deleted and created again starts at 0. In any other case one of the records is damaged.
        """
        if offset <= queue.min_offset:
            self.reset(queue)
            return
        logger.warning(
            "the queue %s/%d is truncated from offset %d to %d", queue.topic, queue.queue_id, queue.max_offset, offset
        )
        if offset >= queue.written and queue.tail is not None:
            del queue.tail[(offset - queue.written) * ITEM_BYTES :]
        else:
            queue.tail = None
            queue.written = offset
            self.files.truncate(queue, self.files.offsets(queue))
        queue.max_offset = offset

    def reset(self, queue: ConsumeQueue) -> None:
        """Empty ``queue`` and remove its files."""
        if isinstance(queue, BatchConsumeQueue):
            self._batch_builder.reset(queue)
            return
        self.files.remove_queue(queue)
        queue.tail = None
        queue.min_offset = queue.max_offset = queue.next_offset = queue.written = 0
        queue.min_checked_at = 0
        queue.has_expired_files = False
        queue.max_physical = -1

    def begin_at(self, topic: str, queue_id: int, offset: int) -> None:
        """Start a queue that never had a message on this replica at ``offset``. Earlier messages were deleted on the
        other replicas.

        Raises:
            OSError: the file of the queue cannot be written.
        """
        queue = self.get_or_create(topic, queue_id)
        if queue.max_offset or not offset:
            return
        if isinstance(queue, BatchConsumeQueue):
            queue.min_offset = queue.max_offset = offset
        else:
            self.files.start_at(queue, offset)
            if queue.tail is not None:
                self._dirty.append(queue)
        queue.next_offset = offset

    def flush(self, limit: int) -> bool:
        """Write the tails of up to ``limit`` queues. Return whether all tails are written.

        Raises:
            OSError: a file could not be written; nothing is lost, the next call tries the queue again.
        """
        dirty = self._dirty
        for _ in range(min(limit, len(dirty))):
            queue = dirty[0]
            self.files.write_tail(queue)
            dirty.popleft()
        return not dirty

    def add(self, queue: ConsumeQueue, item: BatchItem) -> None:
        """Add an item to a queue of a conversion, unless the queue has the item already. An item for a SimpleCQ queue
        has one message.
        """
        if queue.is_batch:
            self._add_batch(queue, item)
        else:
            self._insert(queue, item.base, item.physical, item.size, item.tag_code)

    def replace(self, topic: str, queues: dict[int, ConsumeQueue], *, is_batch: bool) -> list[ConsumeQueue]:
        """Replace the queues of ``topic`` by ``queues``, which hold the same messages. Return the old ones. Their files
        are kept.
        """
        old = self._topics.get(topic, {})
        for queue_id, queue in old.items():
            queues[queue_id].next_offset = queue.next_offset
            queues[queue_id].min_checked_at = -1
            queue.deleted = True
            queue.tail = None
        if queues:
            self._topics[topic] = queues
        self.set_type(topic, is_batch=is_batch)
        return list(old.values())

    def set_type(self, topic: str, *, is_batch: bool) -> None:
        """Set the type of queues of ``topic`` that are created from now on."""
        if is_batch:
            self.batch_topics.add(topic)
        else:
            self.batch_topics.discard(topic)

    def clear(self) -> None:
        """Remove all queues from the table. Their files are kept."""
        self._topics.clear()
        self._dirty.clear()
        self.files.close()

    def remove_topic(self, topic: str) -> None:
        """Remove the queues of ``topic`` and their files."""
        queues = self._topics.pop(topic, {}).values()
        for queue in queues:
            queue.deleted = True
            queue.tail = None
        self.batch_topics.discard(topic)
        self.files.remove_topic(topic, queues)

    def forget_empty(self) -> None:
        """Remove the queues that have had no message, so that they are created again in the type of their topic."""
        topics = {
            topic: {key: each for key, each in queues.items() if each.max_offset}
            for topic, queues in self._topics.items()
        }
        self._topics = {topic: queues for topic, queues in topics.items() if queues}

    def min_offset(self, queue: ConsumeQueue, log_min: int, *, wait: bool) -> int:
        """Return the first offset of ``queue`` whose record still exists in the log, which starts at ``log_min``.

        Raises:
            PagesMissing: ``wait`` is false and the read would block on the disk.
        """
        if queue.min_checked_at != log_min:
            before, per_file = queue.first_item, self.files.format(queue).items_per_file
            if isinstance(queue, BatchConsumeQueue):
                self._update_first_live_item(queue, log_min, wait)
            else:
                queue.min_offset = self._first_at_or_after(queue, log_min, wait)
            queue.has_expired_files |= queue.first_item // per_file > before // per_file
            queue.min_checked_at = log_min
        return queue.min_offset

    def _update_first_live_item(self, queue: BatchConsumeQueue, log_min: int, wait: bool) -> None:
        found = self.batch_search.first_live_item(queue, log_min, wait=wait)
        if found == queue.item_count:
            queue.min_offset = queue.max_offset
        elif found > queue.first_live_item:
            queue.min_offset = self._first_offset(queue, found, wait)
        queue.first_live_item = found

    def _first_offset(self, queue: BatchConsumeQueue, number: int, wait: bool) -> int:
        """Return the offset at which item ``number`` begins or, if it is damaged, at which the item before it ends."""
        item = self.batch_search.item(queue, number, wait=wait)
        if item.is_valid:
            return item.base
        before = self.batch_search.item(queue, number - 1, wait=wait)
        return before.end if before.is_valid else queue.min_offset

    def _first_at_or_after(self, queue: ConsumeQueue, log_min: int, wait: bool) -> int:
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self.item(queue, middle, wait=wait)
            if (size > 0 and 0 <= physical < log_min) or (
                size == FILLER_SIZE and physical == 0
            ):  # otherwise the record exists or the item is damaged
                low = middle + 1
            else:
                high = middle
        return low

    def item(self, queue: ConsumeQueue, offset: int, *, wait: bool = True) -> tuple[int, int, int]:
        """Return physical offset, size and tag code of the item at ``offset``, which lies between minimum
        and maximum.
        """
        physical, size, tag_code = ITEM.unpack(self.files.read(queue, offset, 1, wait=wait)[:ITEM_BYTES])
        return physical, size, tag_code
