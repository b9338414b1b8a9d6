"""Restores damaged items of a BatchCQ queue from the log.

The nearest valid items before and after the damaged one bound the part of the log that holds its record. Every record
of a queue has one item, so counting identifies the record. A thread scans that part, at most 1 GiB. It uses its own
descriptors, because retention may delete the first files of the log meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple

from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.storage.fs import PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import BatchConsumeQueue, BatchItem, BatchSearch, QueueFiles, message_count
from raptormq.storage.records import NOT_IN_QUEUE, LogScanner

logger = get_logger(__name__)

MAX_BYTES = 1 << 30
MAX_ITEMS = 1024
"""Maximum distance in items from a damaged item to the nearest valid ones. A damaged page has 90 items."""
_CACHE_BATCHES = 8192


class _Neighbour(NamedTuple):
    number: int
    item: BatchItem


class _Bounds(NamedTuple):
    """State of a queue when a scan begins. Parts that were not read are None."""

    first_live_item: int | None
    item_count: int | None
    max_offset: int


_Key = tuple[BatchConsumeQueue, int]


class ItemRepairer:
    """Repairs items of the queues in ``files``."""

    def __init__(self, log: CommitLog, files: QueueFiles, search: BatchSearch) -> None:
        self._log = log
        self._files = files
        self._search = search
        self._found_items: OrderedDict[_Key, dict[int, BatchItem]] = OrderedDict()
        """Results of scans by item. A result without a correction is kept too, so that the scan is not repeated."""

    def repair(self, queue: BatchConsumeQueue, number: int, *, wait: bool) -> BatchItem | None:
        """Return the correct item ``number``, None when the log does not determine it. The item and its damaged
        neighbours are rewritten.

        Raises:
            PagesMissing: a scan is needed, regardless of ``wait``. The ``work`` of the exception is the scan.
            StorageError: the items cannot be read or written.
        """
        key = queue, number
        if number >= queue.written:
            return None  # the item is not on disk yet
        items = self._found_items.get(key)
        if items is None:
            before = self._neighbours_before(queue, number, wait)
            behind = self._neighbours_after(queue, number, wait)
            bounds = _Bounds(
                queue.first_live_item if number - MAX_ITEMS <= queue.first_live_item else None,
                queue.item_count if number + MAX_ITEMS + 1 >= queue.item_count else None,
                queue.max_offset,
            )
            raise PagesMissing([], [partial(self._scan_for_items, key, before, behind, bounds, self._log.detached())])
        changed = [each for each, item in items.items() if self._rewrite(queue, each, item, wait)]
        if changed:
            del self._found_items[key]
            where = queue.topic, queue.queue_id, changed[0], changed[-1]
            logger.warning("%d items of %s/%d, %d to %d, were damaged and have been rewritten", len(changed), *where)
        while len(self._found_items) > _CACHE_BATCHES:
            self._found_items.popitem(last=False)
        return items.get(number)

    def _rewrite(self, queue: BatchConsumeQueue, number: int, item: BatchItem, wait: bool) -> bool:
        """Rewrite the item unless it is already correct; return whether it was rewritten."""
        if number >= queue.written or self._search.item(queue, number, wait=wait) == item:
            return False
        self._files.rewrite(queue, number, item.pack())
        return True

    def _neighbours_before(self, queue: BatchConsumeQueue, number: int, wait: bool) -> list[_Neighbour]:
        """Return the valid items before ``number``, the nearest first. The messages of each have to follow those of the
        item before it, because an item that was written to the wrong place would look valid.
        """
        first = max(queue.first_live_item, number - MAX_ITEMS)
        items = self._items(queue, first, number, wait)
        follow = [first == queue.first_live_item, *(left.end == right.base for left, right in pairwise(items))]
        return self._valid_neighbours(items, follow, first)[::-1]

    def _neighbours_after(self, queue: BatchConsumeQueue, number: int, wait: bool) -> list[_Neighbour]:
        """Return the valid items after ``number``, the nearest first. The messages of each have to precede those of the
        next item without a gap.
        """
        first, end = number + 1, min(queue.item_count, number + 1 + MAX_ITEMS)
        items = self._items(queue, first, end, wait)
        is_last = end == queue.item_count and bool(items) and items[-1].end == queue.max_offset
        precede = [*(left.end == right.base for left, right in pairwise(items)), is_last]
        return self._valid_neighbours(items, precede, first)

    def _items(self, queue: BatchConsumeQueue, first: int, end: int, wait: bool) -> list[BatchItem]:
        return list(islice(self._search.items(queue, first, end - first, wait=wait), end - first))

    def _valid_neighbours(self, items: list[BatchItem], fit: list[bool], first: int) -> list[_Neighbour]:
        return [
            _Neighbour(number, item)
            for number, (item, fits) in enumerate(zip(items, fit, strict=False), first)
            if fits and item.is_valid and self._log.contains(item.physical, item.size)
        ]

    def _scan_for_items(
        self, key: _Key, before: list[_Neighbour], behind: list[_Neighbour], bounds: _Bounds, log: CommitLog
    ) -> None:
        """Scan the log, in a thread, for item ``key`` and its damaged neighbours, starting from the nearest valid
        items.

        Raises:
            StorageError: the log cannot be read at the moment; the next reader tries again.
        """
        queue, number = key
        if key in self._found_items:
            return  # another reader has scanned for the item meanwhile
        try:
            scanner = LogScanner(log, 0)
            last = next((each for each in before if _has_record(scanner, queue, each.item)), None)
            first = next((each for each in behind if _has_record(scanner, queue, each.item)), None)
            found = _items_around(log, queue, last, first, bounds)
        except OSError as error:
            raise StorageError(f"cannot scan the log: {error.strerror or error}") from error
        finally:
            log.close()
        self._found_items[key] = found
        if not found:  # the other items between the same neighbours cannot be restored either
            begin = last.number + 1 if last is not None else max(0, number - MAX_ITEMS)
            end = first.number if first is not None else number + 1 + MAX_ITEMS
            self._found_items.update(((queue, each), found) for each in range(begin, end))


def _items_around(
    log: CommitLog, queue: BatchConsumeQueue, last: _Neighbour | None, first: _Neighbour | None, bounds: _Bounds
) -> dict[int, BatchItem]:
    """Return the items between ``last``, a valid one before, and ``first``, a valid one after. Return none when the log
    does not determine them: the number of records has to match, and each has to begin where the previous one ends.
    """
    begin = last.number + 1 if last is not None else bounds.first_live_item
    end = first.number if first is not None else bounds.item_count
    if begin is None or end is None or (last is None and first is None):
        return {}
    low = last.item.physical + last.item.size if last is not None else log.min_offset
    high = first.item.physical if first is not None else log.end_offset
    if not 0 < high - low <= MAX_BYTES:
        return {}
    scanner = LogScanner(log, low)
    items = list(_items_between(scanner, queue, high))
    if last is None:
        if scanner.damaged:
            return {}
        items = items[begin - end :]  # the first ones may be of an older topic with the same name
    items = items[: end - begin]  # the last ones may not be in the queue yet
    ends = [last.item.end if last is not None else items[0].base if items else 0, *(item.end for item in items)]
    bases = [*(item.base for item in items), first.item.base if first is not None else bounds.max_offset]
    return dict(enumerate(items, begin)) if len(items) == end - begin and ends == bases else {}


def _has_record(scanner: LogScanner, queue: BatchConsumeQueue, item: BatchItem) -> bool:
    record = scanner.record_at(item.physical)
    where = (queue.topic, queue.queue_id, item.base, item.size)
    return record is not None and (record.topic, record.queue_id, record.queue_offset, record.size) == where


def _items_between(scanner: LogScanner, queue: BatchConsumeQueue, high: int) -> Iterable[BatchItem]:
    """Yield the items of all records of ``queue`` from the position of ``scanner`` to before ``high``."""
    for group in scanner.batches():
        columns = (group.physical_offsets, group.sizes, group.store_timestamps, group.queue_offsets)
        for record, physical, size, stored, base in zip(group.records, *columns, strict=True):
            if physical >= high:
                return
            is_its = record.topic == queue.topic and record.queue_id == queue.queue_id
            if is_its and not record.sys_flag & NOT_IN_QUEUE:
                yield BatchItem(physical, size, record.tag_code, stored, base, message_count(record))
