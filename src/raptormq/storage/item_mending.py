"""Finds out from the log what a damaged item of a BatchCQ queue said, and writes it again.

The nearest items before and behind it whose records are there bound the part of the log that its record must be in; as
every record of a queue has one item, counting says which record it is. A walk through that part takes a thread: 1 GiB
of it at most, and with descriptors of its own, as the log may lose its first files meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from raptormq.errors import StorageError
from raptormq.storage.batch_queue import BATCH_ITEM_BYTES, BatchConsumeQueue, BatchItem, message_count, unpack_item
from raptormq.storage.commit_log import CommitLog
from raptormq.storage.log_scanner import LogScanner
from raptormq.storage.page_cache import PagesMissing
from raptormq.storage.queue_files import QueueFiles
from raptormq.storage.record_packer import NOT_IN_QUEUE

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 30
MOST_ITEMS = 1024
"""How far away the next sound item is looked for; a damaged page has 90."""
_KEPT = 4096


class _Neighbour(NamedTuple):
    number: int
    item: BatchItem


_Key = tuple[BatchConsumeQueue, int]


class ItemMender:
    """Mends items of the queues in ``files``."""

    def __init__(self, log: CommitLog, files: QueueFiles) -> None:
        self._log = log
        self._files = files
        self._known: OrderedDict[_Key, BatchItem | None] = OrderedDict()
        """What walks have come to, until it is in the file; what turned out to be right there already stays known."""

    def mended(self, queue: BatchConsumeQueue, number: int, *, wait: bool) -> BatchItem | None:
        """Return what item ``number`` must say, after writing it again; None when the log does not tell.

        Raises:
            PagesMissing: without ``wait``; its work is the walk.
            StorageError: the item cannot be read.
        """
        key = queue, number
        if number >= queue.written:
            return None  # no disk has seen it yet
        if key not in self._known:
            before = self._before(queue, number, wait)
            behind = self._behind(queue, number, wait)
            walk = partial(self._walk, key, before, behind, self._log.detached())
            if not wait:
                raise PagesMissing([], [walk])
            walk()
        item = self._known.get(key)
        if item is not None and self._read(queue, number, wait) != item:
            self._files.rewrite(queue, number, item.pack())
            del self._known[key]
            logger.warning("item %d of %s/%d was damaged and is written again", number, queue.topic, queue.queue_id)
        return item

    def _read(self, queue: BatchConsumeQueue, number: int, wait: bool) -> BatchItem:
        return unpack_item(self._files.read(queue, number, 1, wait=wait))

    def _before(self, queue: BatchConsumeQueue, number: int, wait: bool) -> list[_Neighbour]:
        """Return the items before ``number``, the nearest first, that are sound and follow the one before them: another
        item in the place of one would pass for sound.
        """
        first = max(queue.live_item, number - MOST_ITEMS)
        items = self._items(queue, first, number, wait)
        follow = [first == queue.live_item, *(left.end == right.base for left, right in pairwise(items))]
        return self._sound(items, follow, first)[::-1]

    def _behind(self, queue: BatchConsumeQueue, number: int, wait: bool) -> list[_Neighbour]:
        """The same behind ``number``, whose end is where the next one begins."""
        first, end = number + 1, min(queue.item_count, number + 1 + MOST_ITEMS)
        items = self._items(queue, first, end, wait)
        is_last = end == queue.item_count and bool(items) and items[-1].end == queue.max_offset
        precede = [*(left.end == right.base for left, right in pairwise(items)), is_last]
        return self._sound(items, precede, first)

    def _items(self, queue: BatchConsumeQueue, first: int, end: int, wait: bool) -> list[BatchItem]:
        found: list[BatchItem] = []
        while first < end:
            data = self._files.read(queue, first, end - first, wait=wait)
            found += [unpack_item(data, at) for at in range(0, len(data) - BATCH_ITEM_BYTES + 1, BATCH_ITEM_BYTES)]
            first += len(data) // BATCH_ITEM_BYTES
        return found

    def _sound(self, items: list[BatchItem], fit: list[bool], first: int) -> list[_Neighbour]:
        return [
            _Neighbour(number, item)
            for number, (item, fits) in enumerate(zip(items, fit, strict=False), first)
            if fits and item.is_sound and self._log.holds(item.physical, item.size)
        ]

    def _walk(self, key: _Key, before: list[_Neighbour], behind: list[_Neighbour], log: CommitLog) -> None:
        """In a thread: note what item ``key`` says, and those that are damaged with it. The nearest neighbours come
        first.
        """
        queue, number = key
        found: dict[int, BatchItem] = {}
        try:
            with contextlib.suppress(OSError, StorageError):
                found = _items_around(log, queue, number, before, behind)
        finally:
            log.close()
        self._known[key] = None
        for each, item in found.items():
            self._known[queue, each] = item
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _items_around(
    log: CommitLog, queue: BatchConsumeQueue, number: int, before: list[_Neighbour], behind: list[_Neighbour]
) -> dict[int, BatchItem]:
    """Return item ``number`` and those between the same neighbours; none when the log does not tell."""
    scanner = LogScanner(log, 0)
    last = next((each for each in before if _has_record(scanner, queue, each.item)), None)
    first = next((each for each in behind if _has_record(scanner, queue, each.item)), None)
    low = last.item.physical + last.item.size if last is not None else log.min_offset
    high = first.item.physical if first is not None else log.end_offset
    if not 0 < high - low <= MOST_BYTES:
        return {}
    items = list(_items_between(log, queue, low, high))
    if last is not None and first is not None and len(items) != first.number - last.number - 1:
        return {}  # a record of them is damaged, too: which one, nobody knows
    if last is not None:
        begin = last.number + 1
    elif first is not None and len(items) == first.number - queue.live_item:
        begin = queue.live_item
    else:
        return {}
    return {begin + place: item for place, item in enumerate(items) if begin + place < queue.item_count}


def _has_record(scanner: LogScanner, queue: BatchConsumeQueue, item: BatchItem) -> bool:
    record = scanner.record_at(item.physical)
    where = (queue.topic, queue.queue_id, item.base, item.size)
    return record is not None and (record.topic, record.queue_id, record.queue_offset, record.size) == where


def _items_between(log: CommitLog, queue: BatchConsumeQueue, low: int, high: int) -> Iterable[BatchItem]:
    """The items of all records of ``queue`` in a part of the log."""
    for group in LogScanner(log, low).batches():
        columns = (group.physical_offsets, group.sizes, group.store_timestamps, group.queue_offsets)
        for record, physical, size, stored, base in zip(group.records, *columns, strict=True):
            if physical >= high:
                return
            is_its = record.topic == queue.topic and record.queue_id == queue.queue_id
            if is_its and not record.sys_flag & NOT_IN_QUEUE:
                yield BatchItem(physical, size, record.tag_code, stored, base, message_count(record))
