"""Reads messages from a queue: its items, filtered by tag hash, then their records. Resident records are not copied.

Damaged records and queue items are skipped and logged; consumers get the messages before and after them. A record that
another copy of the log may repair is not skipped: the read ends before it, or fails if it is the first one.

Source of the outcomes and limits: Apache RocketMQ ``DefaultMessageStore.getMessage``.
"""

from __future__ import annotations

import struct

from raptormq.protocol.record import MIN_RECORD_BYTES
from raptormq.storage.fs import Buffer, Extent, PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import FILLER_SIZE, ITEM, ITEM_BYTES, BatchConsumeQueue, ConsumeQueue, QueueTable
from raptormq.storage.read.batch_reader import BatchReader
from raptormq.storage.read.batch_unpacker import BatchUnpacker
from raptormq.storage.read.known_damage import KnownDamage
from raptormq.storage.read.options import GetResult, GetStatus, PropertyFilter, ReadOptions, scan_properties
from raptormq.storage.read.skipped_records import SkippedRecords
from raptormq.storage.records import are_valid_records, peek_store_timestamp

_MAX_IN_ROW = 64
_ROW_FORMATS = [">" + "qiq" * count for count in range(_MAX_IN_ROW + 1)]
SCAN_ITEMS = 800
"""A filtered read looks at least at this many items, as in Apache RocketMQ (16,000 bytes)."""


class QueueReader:
    """Answers reads from ``queues`` and ``log``."""

    def __init__(self, log: CommitLog, queues: QueueTable, unpacker: BatchUnpacker, damage: KnownDamage) -> None:
        self._log = log
        self._queues = queues
        self._damage = damage
        self.skipped = SkippedRecords()
        self._batches = BatchReader(log, queues.files, queues.batch_search, self.skipped, unpacker, damage)

    def get(self, topic: str, queue_id: int, offset: int, options: ReadOptions, *, wait: bool) -> GetResult:
        """Return the messages that ``options`` select, from ``offset`` on.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
            RecordsDamaged: the first record is damaged, and another copy of the log may repair it.
            StorageError: the disk cannot read the records.
        """
        max_count, max_bytes, tag_filter = options.max_count, options.max_bytes, options.tags
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0)
        low, high = self._queues.min_offset(queue, self._log.min_offset, wait=wait), queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, [], 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, [], low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, [], offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, [], high, low, high)
        if isinstance(queue, BatchConsumeQueue):
            return self._batches.get(queue, offset, (low, high), options, wait=wait)
        if options.properties is not None:
            return self._get_filtered(queue, offset, (low, high), options, options.properties, wait)
        count = max_count if tag_filter is None else max(max_count, SCAN_ITEMS)
        items = self._queues.files.read(queue, offset, count, wait=wait)
        places, next_offset, found, size = self._select(items, offset, max_count, max_bytes, tag_filter, merge=True)
        if not found:
            return GetResult(self._why_nothing(items, tag_filter), [], next_offset, low, high)
        are_copies = not self._log.is_resident(
            places[0][0]
        )  # all records of a queue are at or after the beginning of the log
        if are_copies and not options.copies:
            raise PagesMissing([], size=size)
        buffers = self._read(places, wait)
        if None in buffers or not self._damage.is_empty:
            places, *_ = self._select(items, offset, max_count, max_bytes, tag_filter, merge=False)
            buffers = self._read(places, wait)
            count = self._damage.readable_count(places, buffers)
            places, next_offset, found, size = self._select(items, offset, count, max_bytes, tag_filter, merge=False)
            buffers = buffers[:count]
        intact = self._without_damaged(queue, offset, buffers)
        if len(intact) < len(buffers):
            found, size = len(intact), sum(map(len, intact))
        status = GetStatus.FOUND if intact else GetStatus.MESSAGE_WAS_REMOVING
        copied_bytes = size if are_copies else 0
        return GetResult(status, intact, next_offset, low, high, found, size, copied_bytes=copied_bytes)

    def _without_damaged(self, queue: ConsumeQueue, offset: int, buffers: list[Buffer | None]) -> list[Buffer]:
        """Return the intact records among ``buffers``, and count the others as skipped."""
        intact = [buffer for buffer in buffers if buffer is not None]
        if skipped := len(buffers) - len(intact):
            where = queue.topic, queue.queue_id, offset
            self.skipped.count(skipped, "skipped %d damaged records of %s/%d from offset %d on", *where)
        return intact

    def _get_filtered(
        self,
        queue: ConsumeQueue,
        offset: int,
        bounds: tuple[int, int],
        options: ReadOptions,
        wanted: PropertyFilter,
        wait: bool,
    ) -> GetResult:
        """As :meth:`get`, with a filter by properties."""
        items = self._queues.files.read(queue, offset, min(SCAN_ITEMS, wanted.max_scanned), wait=wait)
        are_copies = not self._log.is_resident(ITEM.unpack_from(items)[0])
        if are_copies and not options.copies:
            raise PagesMissing([])
        found, done, size = scan_properties(
            self._log, items, options.max_count, options.max_bytes, wanted, self._damage, wait=wait
        )
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        copied_bytes = size if are_copies else 0
        return GetResult(status, found, offset + done, *bounds, len(found), size, copied_bytes=copied_bytes)

    def _select(
        self,
        items: Buffer,
        offset: int,
        max_count: int,
        max_bytes: int,
        tag_filter: frozenset[int] | None,
        *,
        merge: bool,
    ) -> tuple[list[list[int]], int, int, int]:
        """Return ``[offset, size]`` of each run of adjacent records, the next queue offset, the number of messages and
        their bytes.
        """
        if merge and tag_filter is None and (row := self._single_run(items, max_count, max_bytes)) is not None:
            count, first, size = row
            return [[first, size]], offset + count, count, size
        log_min, segment_size = self._log.min_offset, self._log.segment_size
        places: list[list[int]] = []
        run = [0, 0]
        run_end = found = total = 0
        for physical, size, tag_code in ITEM.iter_unpack(memoryview(items)[: len(items) // ITEM_BYTES * ITEM_BYTES]):
            if physical < log_min or size == FILLER_SIZE or (tag_filter is not None and tag_code not in tag_filter):
                offset += 1
                continue
            if found == max_count or (total + size > max_bytes and found):
                break
            if merge and physical == run_end and physical % segment_size:
                run[1] += size
            else:
                run = [physical, size]
                places.append(run)
            run_end = physical + size
            total += size
            found += 1
            offset += 1
        return places, offset, found, total

    def _single_run(self, items: Buffer, max_count: int, max_bytes: int) -> tuple[int, int, int] | None:
        """Return number, log offset and bytes of the first ``max_count`` records if they are adjacent and all fit. This
        is the most frequent case, because batched sends write adjacent records. It takes a fifth of the time of the
        general case.
        """
        count = min(len(items) // ITEM_BYTES, max_count)
        if not 0 < count <= _MAX_IN_ROW:
            return None
        row = struct.unpack_from(_ROW_FORMATS[count], items)
        first, end, size = row[0], row[-3] + row[-2], sum(row[1::3])
        segment_size = self._log.segment_size
        if end - first != size or size > max_bytes or first < self._log.min_offset:
            return None
        return (count, first, size) if first // segment_size == (end - 1) // segment_size else None

    def _why_nothing(self, items: Buffer, tag_filter: frozenset[int] | None) -> GetStatus:
        last_physical = ITEM.unpack_from(items, len(items) - ITEM_BYTES)[0]
        removed = tag_filter is None or last_physical < self._log.min_offset
        return GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE

    def _read(self, places: list[list[int]], wait: bool) -> list[Buffer | None]:
        """Return the bytes at ``places``; None for those that are not intact records.

        Resident bytes were written by this process. All other bytes come from a disk and are checked.
        """
        log = self._log
        buffers: list[Buffer | None] = []
        missing: list[Extent] = []
        for physical, size in places:
            if not log.contains(physical, size):
                buffers.append(None)
                continue
            try:
                data = log.read(physical, size, wait=wait)
            except PagesMissing as error:
                missing += error.extents
                continue
            buffers.append(data if log.is_resident(physical) or are_valid_records(data, physical) else None)
        if missing:
            raise PagesMissing(missing, size=sum(size for _, size in places))
        return buffers

    def items(self, topic: str, queue_id: int, offset: int, count: int, *, wait: bool) -> list[tuple[int, int, int]]:
        """Return up to ``count`` items of a queue (log offset, size, tag code); an empty list when ``offset`` is
        outside the queue.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return []
        if not self._queues.min_offset(queue, self._log.min_offset, wait=wait) <= offset < queue.max_offset:
            return []
        if isinstance(queue, BatchConsumeQueue):
            return self._batches.items(queue, offset, count, wait=wait)
        items = self._queues.files.read(queue, offset, count, wait=wait)
        return list(ITEM.iter_unpack(memoryview(items)[: len(items) // ITEM_BYTES * ITEM_BYTES]))

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, *, upper: bool, wait: bool) -> int:
        """Return the offset of the first message stored at or after ``timestamp`` (ms); with ``upper``, of the last
        message stored at or before it.

        The result lies between minimum and maximum of the queue: the maximum when all messages are older, the minimum
        when all are younger.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
        """
        first = self._queues.min_offset(queue, self._log.min_offset, wait=wait)
        if isinstance(queue, BatchConsumeQueue):
            return self._queues.batch_search.offset_by_time(queue, timestamp, upper=upper, wait=wait)
        low, high = first, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if self._is_before(queue, middle, timestamp, upper=upper, wait=wait):
                low = middle + 1
            else:
                high = middle
        return max(low - 1, first) if upper else low

    def _is_before(self, queue: ConsumeQueue, offset: int, timestamp: int, *, upper: bool, wait: bool) -> bool:
        physical, size, _ = self._queues.item(queue, offset, wait=wait)
        if size == FILLER_SIZE and physical < self._log.min_offset:
            return True
        # The record is damaged; the next one has nearly the same store time.
        while not self._log.contains(physical, size):
            offset += 1
            if offset == queue.max_offset:
                return False
            physical, size, _ = self._queues.item(queue, offset, wait=wait)
        stored = peek_store_timestamp(self._log.read(physical, MIN_RECORD_BYTES, wait=wait))
        return stored <= timestamp if upper else stored < timestamp
