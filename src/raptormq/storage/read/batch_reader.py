"""Reads messages from a queue of a BatchCQ topic.

:class:`BatchReader` answers the reads. :class:`ReadProgress` holds what one read has collected so far and decides
whether more fits.

A client that supports inner batches gets them as they are stored, as slices of the log. All other clients get messages.
A batch is unpacked (:mod:`~raptormq.storage.read.batch_unpacker`) in four cases: the client does not support batches,
its offset is in the middle of the batch, it filters by properties, or it filters by tags and the batch has no tag of
its own. Some batches cannot be unpacked:

=========  ==========================  =================================  ==============
Batch      RaptorMQ's clients          others that support inner batches  all others
=========  ==========================  =================================  ==============
encrypted  whole                       refused                            refused
too large  whole                       whole                              skipped
damaged    whole: they report it       skipped                            skipped
=========  ==========================  =================================  ==============

A refusal stops the client permanently. It is used for encrypted batches, because a client without the key would miss
every message of the topic. A batch that no client can read is skipped, counted and logged.

Clients drop unrequested messages of a whole batch: those with other tags and, in RaptorMQ's clients, those before the
requested offset. The Java client receives the latter again, as from Apache RocketMQ. A client with a filter by
properties belongs to "all others".

Source of the outcomes: Apache RocketMQ ``DefaultMessageStore.getMessage``, which returns whole batches only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from raptormq.protocol.properties import TAGS, find_property
from raptormq.protocol.record import StoredMessage, decode_record, encode_record
from raptormq.protocol.tags import tag_hash
from raptormq.storage.fs import Buffer, Extent, PagesMissing
from raptormq.storage.log import CommitLog
from raptormq.storage.queue import BATCH_ITEM, BATCH_ITEM_BYTES, BatchConsumeQueue, BatchItem, BatchSearch, QueueFiles
from raptormq.storage.read.batch_unpacker import (
    MAX_INLINE_BYTES,
    MAX_UNPACKED_BYTES,
    BatchUnpacker,
    UnpackedBatch,
    encrypted_batch_error,
    is_encrypted,
    is_wrapper,
)
from raptormq.storage.read.item_repair import MAX_ITEMS, ItemRepairer
from raptormq.storage.read.known_damage import KnownDamage, records_damaged
from raptormq.storage.read.options import MAX_SCAN_BYTES, GetResult, GetStatus, PropertyFilter, ReadOptions
from raptormq.storage.read.skipped_records import SkippedRecords
from raptormq.storage.records import are_valid_records, belongs_to_queue, peek_properties


class ReadProgress:
    """State of one read, which begins at ``offset`` in item ``number``."""

    def __init__(self, queue: BatchConsumeQueue, offset: int, number: int) -> None:
        self.queue = queue
        self.number = number
        """Number of the next item to read."""
        self.is_damaged = False
        """Whether the record of the current item is not at its log offset."""
        self.is_repairable = False
        """Whether the record of the current item is damaged, and another copy of the log may repair it."""
        self.damaged_items = 0
        """Number of items that are damaged, or whose records are damaged, and that cannot be repaired."""
        self.unreadable_batches = 0
        """Number of batches that cannot be unpacked for this reader."""
        self.is_repaired = False
        """Whether an item was repaired."""
        self.buffers: list[Buffer] = []
        self.next_offset = offset
        self.messages = 0
        self.bytes = 0
        self.scanned_bytes = 0
        """Total size in bytes of the unpacked records."""
        self.unpacked_bytes = 0
        """Total size in bytes of the messages unpacked from these records."""
        self.filtered_messages = 0
        """Number of messages to which the property filter was applied."""
        self.filtered_bytes = 0
        """Total size in bytes of the properties of these messages."""
        self.missing: list[Extent] = []
        self.copied_bytes = 0
        """Bytes of :attr:`buffers` that are copies in memory."""
        self.needs_copy = False
        """Whether a record was omitted because it requires a copy."""
        self.is_size_unknown = False
        """Whether an omitted record may be a batch, whose unpacked size is unknown."""

    def raise_if_repairable(self, item: BatchItem) -> None:
        """Raise RecordsDamaged if the record of ``item``, the first one, may be repaired from another copy."""
        if self.is_repairable:
            raise records_damaged(item.physical)

    def has_room(self, options: ReadOptions, size: int) -> bool:
        """Return whether one more message or whole batch of ``size`` bytes fits. The first message always fits."""
        if not self.messages:
            return True
        return len(self.buffers) < options.max_count and self.bytes + size <= options.max_bytes

    def exceeds_filter_limits(self, wanted: PropertyFilter, size: int) -> bool:
        """Return True when properties of ``size`` bytes exceed the limits of the filter; otherwise count them."""
        too_long = self.filtered_messages > 0 and self.filtered_bytes + size > wanted.max_scanned_bytes
        if too_long or self.filtered_messages >= wanted.max_scanned:
            return True
        self.filtered_messages += 1
        self.filtered_bytes += size
        return False

    def count(self, messages: int, size: int, end: int) -> None:
        """Count messages that were added, up to the offset ``end``."""
        self.messages += messages
        self.bytes += size
        self.next_offset = end


SCAN_ITEMS = 347
"""A filtered read looks at least at this many items, as in Apache RocketMQ (16,000 bytes)."""
_CLOSED = (
    "%d batches of %s/%d from offset %d on are skipped for a reader that wants messages: damaged, or larger than "
    f"{MAX_UNPACKED_BYTES} bytes once they are unpacked"
)
_NO_TAG = 0
_MAX_SEARCHES = 64
"""Maximum number of searches of one read. Each search but the first follows the repair of an item."""


class BatchReader:
    """Answers reads from BatchCQ queues."""

    def __init__(
        self,
        log: CommitLog,
        files: QueueFiles,
        search: BatchSearch,
        skipped: SkippedRecords,
        unpacker: BatchUnpacker,
        damage: KnownDamage,
    ) -> None:
        self._log = log
        self._damage = damage
        self._files = files
        self._search = search
        self._skipped = skipped
        self._unpacker = unpacker
        self._repairer = ItemRepairer(log, files, search)

    def get(
        self, queue: BatchConsumeQueue, offset: int, bounds: tuple[int, int], options: ReadOptions, *, wait: bool
    ) -> GetResult:
        """Return messages from ``offset`` on, which lies within ``bounds``.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk; it names all extents of the read.
            BatchEncrypted: the next batch is encrypted, and the reader wants messages.
            RecordsDamaged: the next record is damaged, and another copy of the log may repair it.
            StorageError: the disk cannot read the records.
        """
        number = self._search.find_by_offset(queue, offset, wait=wait)
        if options.whole and options.tags is None and options.properties is None:
            resident = self._resident_batches(queue, number, offset, bounds, options, wait)
            if resident is not None:
                return resident
        progress = self._read_from(queue, number, offset, options, wait)
        if progress.missing or progress.needs_copy:
            raise PagesMissing(progress.missing, size=0 if progress.is_size_unknown else progress.bytes)
        where = queue.topic, queue.queue_id, offset
        if progress.damaged_items:
            self._skipped.count(
                progress.damaged_items, "skipped %d damaged items or records of %s/%d from offset %d on", *where
            )
        if progress.unreadable_batches:
            self._skipped.count(progress.unreadable_batches, _CLOSED, *where)
        if progress.next_offset <= offset:  # all items of the read are damaged
            progress.number, progress.next_offset = self._next_valid(queue, progress.number, offset, wait)
        queue.last_read = progress.next_offset, progress.number
        if progress.next_offset == offset:  # the damaged items lie before the requested offset, where the search began
            return self.get(queue, offset, bounds, options, wait=wait)
        status = GetStatus.FOUND
        if not progress.buffers:
            filtered = options.tags is not None or options.properties is not None
            status = GetStatus.NO_MATCHED_MESSAGE if filtered else GetStatus.MESSAGE_WAS_REMOVING
        return GetResult(
            status,
            progress.buffers,
            progress.next_offset,
            *bounds,
            progress.messages,
            progress.bytes,
            copied_bytes=progress.copied_bytes,
        )

    def _resident_batches(
        self,
        queue: BatchConsumeQueue,
        number: int,
        offset: int,
        bounds: tuple[int, int],
        options: ReadOptions,
        wait: bool,
    ) -> GetResult | None:
        """Return whole records from item ``number`` on, up to the first record that is not resident, does not continue
        the previous one, or is encrypted for a reader that cannot decrypt it. Return None if that is the first record.
        Nearly all reads take this path, at a third of the cost of :meth:`get`.
        """
        max_count, max_bytes = options.max_count, options.max_bytes
        items = self._files.read(queue, number, max_count, wait=wait)
        whole = len(items) - len(items) % BATCH_ITEM_BYTES
        buffers: list[Buffer] = []
        next_offset, total = offset, 0
        for physical, size, _, _, base, messages, _, _ in BATCH_ITEM.iter_unpack(memoryview(items)[:whole]):
            if base != next_offset or messages <= 0:
                break
            if buffers and total + size > max_bytes:
                break
            record = None if self._damage.covers(physical, size) else self._log.resident_record(physical, size)
            if record is None or (not options.encrypted and is_encrypted(record)):
                break
            buffers.append(record)
            next_offset += messages
            total += size
        if not buffers:
            return None
        queue.last_read = next_offset, number + len(buffers)
        return GetResult(GetStatus.FOUND, buffers, next_offset, *bounds, next_offset - offset, total)

    def _read_from(
        self, queue: BatchConsumeQueue, number: int, offset: int, options: ReadOptions, wait: bool
    ) -> ReadProgress:
        """Return what can be read from item ``number`` on. If the read found no message because of damaged items,
        repeat it after their repair.
        """
        for _ in range(_MAX_SEARCHES):
            progress = ReadProgress(queue, offset, number)
            try:
                self._collect(queue, offset, options, progress, wait)
            except PagesMissing:
                if progress.next_offset == offset:  # the read has a result; the next read continues
                    raise
            if not progress.is_repaired or progress.next_offset > offset:
                break
            number = self._search.find_by_offset(queue, offset, wait=wait)
        return progress

    def _collect(
        self, queue: BatchConsumeQueue, offset: int, options: ReadOptions, progress: ReadProgress, wait: bool
    ) -> None:
        """Collect from item ``progress.number`` on. An item that does not fit its neighbours is checked against the
        log.
        """
        filtered = options.tags is not None or options.properties is not None
        count = max(options.max_count, SCAN_ITEMS) if filtered else options.max_count
        for each, fits in self._with_neighbours(queue, progress.number, count, wait):
            number, item = progress.number, each if self._is_plausible(each) else None
            if item is None or not fits:
                item = self._repairer.repair(queue, number, wait=wait) or item
                if item is not None and item != each:
                    progress.is_repaired = True
                    if item.base > progress.next_offset == offset:
                        return
            if item is not None and item.end > offset and item.physical >= self._log.min_offset:
                if not self._add_item(item, offset, options, progress, wait):
                    return
                if progress.is_repairable and progress.next_offset > offset:
                    return
                progress.raise_if_repairable(item)
                if progress.is_damaged:
                    progress.is_damaged = False
                    if self._repairer.repair(queue, number, wait=wait) not in (None, item):
                        progress.is_repaired = True
                        return
                    item = None
            progress.number += 1
            if item is not None:
                progress.next_offset = max(progress.next_offset, item.end)
                count -= item.end > offset
            else:
                progress.damaged_items += 1
            if not count or progress.damaged_items == MAX_ITEMS:
                return

    def _is_plausible(self, item: BatchItem) -> bool:
        """Return False if the item is damaged: it is invalid, or its record is not within one segment of the log."""
        end = item.physical + item.size
        segment_size = self._log.segment_size
        in_log = end <= self._log.end_offset and item.physical // segment_size == (end - 1) // segment_size
        return item.is_valid and in_log

    def _next_valid(self, queue: BatchConsumeQueue, number: int, offset: int, wait: bool) -> tuple[int, int]:
        """Return the number and the offset of the first valid item from ``number`` on that begins at or after
        ``offset``.
        """
        for each in range(number, queue.item_count):
            item = self._search.item(queue, each, wait=wait)
            if self._is_plausible(item) and item.base >= offset:
                return each, item.base
        return queue.item_count, queue.max_offset

    def items(self, queue: BatchConsumeQueue, offset: int, count: int, *, wait: bool) -> list[tuple[int, int, int]]:
        """Return log offset, size and tag code of up to ``count`` items, beginning with the one that holds
        ``offset``.
        """
        number = self._search.find_by_offset(queue, offset, wait=wait)
        return [
            (item.physical, item.size, item.tag_code)
            for item in islice(self._search.items(queue, number, count, wait=wait), count)
        ]

    def _with_neighbours(
        self, queue: BatchConsumeQueue, number: int, count: int, wait: bool
    ) -> Iterator[tuple[BatchItem, bool]]:
        """Yield up to ``count`` items from ``number`` on, loaded with one read. The second value is true if there is no
        gap between the messages of the item and those of the items before and after it.
        """
        before = self._search.item(queue, number - 1, wait=wait) if number > queue.first_live_item else None
        items = self._search.items(queue, number, count + 1, wait=wait)
        item = next(items, None)
        while item is not None:
            behind = next(items, None)
            next_base = queue.max_offset if behind is None else behind.base
            yield item, (before is None or before.end == item.base) and item.end == next_base
            before, item = item, behind

    def _add_item(self, item: BatchItem, offset: int, options: ReadOptions, progress: ReadProgress, wait: bool) -> bool:
        """Add the selected messages of ``item``. Return False if the read ends before the end of the item."""
        tags = options.tags
        is_wanted = tags is None or item.tag_code in tags
        if not is_wanted and item.tag_code != _NO_TAG:
            return True
        if is_wanted and options.whole and options.properties is None and item.base >= offset:
            return self._add_whole(item, options, progress, wait)
        scanned_bytes = max(
            progress.scanned_bytes + item.size,
            progress.unpacked_bytes,
            progress.unreadable_batches * MAX_UNPACKED_BYTES,
        )
        if not progress.has_room(options, 1) or (progress.scanned_bytes and scanned_bytes > MAX_SCAN_BYTES):
            return False
        progress.scanned_bytes += item.size
        record = self._read(item, options, progress, wait)
        if record is None:
            progress.is_size_unknown = True
            return True
        if not is_wrapper(record):
            if is_wanted and (options.properties is None or options.properties.wants(bytes(peek_properties(record)))):
                if not progress.has_room(options, len(record)):
                    return False
                self._append_record(item, record, progress)
                progress.count(1, len(record), item.end)
            return True
        if is_encrypted(record):
            return self._add_encrypted(item, record, options, progress)
        if not options.copies:
            progress.needs_copy = progress.is_size_unknown = True
            progress.count(item.messages, item.size, item.end)
            return True
        batch = self._unpack(item, record, offset, progress, wait)
        if batch is None:
            return False
        if not batch.messages:
            return self._add_unreadable(item, record, options, progress, is_too_large=batch.is_too_large)
        return self._add_messages(batch.messages, offset, options, progress)

    def _add_whole(self, item: BatchItem, options: ReadOptions, progress: ReadProgress, wait: bool) -> bool:
        if not progress.has_room(options, item.size):
            return False
        record = self._read(item, options, progress, wait)
        if record is None:
            return True
        if not options.encrypted and is_encrypted(record):
            return self._add_encrypted(item, record, options, progress)
        self._append_record(item, record, progress)
        progress.count(item.messages, item.size, item.end)
        return True

    def _append_record(self, item: BatchItem, record: Buffer, progress: ReadProgress) -> None:
        """Add the record as it is stored."""
        progress.buffers.append(record)
        if not self._log.is_resident(item.physical):
            progress.copied_bytes += len(record)

    def _add_encrypted(self, item: BatchItem, record: Buffer, options: ReadOptions, progress: ReadProgress) -> bool:
        """Add the encrypted batch whole for readers that can decrypt it; raise BatchEncrypted for all others."""
        if options.whole and options.encrypted and options.properties is None:
            return self._add_as_stored(item, record, options, progress)
        if progress.messages:
            return False
        raise encrypted_batch_error(decode_record(record, check_crc=False).body, item.base, item.messages)

    def _add_unreadable(
        self, item: BatchItem, record: Buffer, options: ReadOptions, progress: ReadProgress, *, is_too_large: bool
    ) -> bool:
        """Add a batch that the broker cannot unpack: whole for readers that may be able to unpack it. Skip it for all
        others, because an error would stop them permanently.
        """
        if options.whole and options.properties is None and (is_too_large or options.encrypted):
            return self._add_as_stored(item, record, options, progress)
        progress.unreadable_batches += 1
        return True

    def _add_as_stored(self, item: BatchItem, record: Buffer, options: ReadOptions, progress: ReadProgress) -> bool:
        if not progress.has_room(options, item.size):
            return False
        self._append_record(item, record, progress)
        progress.count(item.messages, item.size, item.end)
        return True

    def _add_messages(
        self, messages: list[StoredMessage], offset: int, options: ReadOptions, progress: ReadProgress
    ) -> bool:
        for message in messages:
            if message.queue_offset < offset:
                continue
            if options.properties is not None and progress.exceeds_filter_limits(
                options.properties, len(message.properties)
            ):
                progress.next_offset = message.queue_offset
                return False
            if not _matches(options, message.properties):
                continue
            record = encode_record(message)
            if not progress.has_room(options, len(record)):
                progress.next_offset = message.queue_offset
                return False
            progress.buffers.append(record)
            progress.copied_bytes += len(record)
            progress.count(1, len(record), message.queue_offset + 1)
        return True

    def _unpack(
        self, item: BatchItem, record: Buffer, offset: int, progress: ReadProgress, wait: bool
    ) -> UnpackedBatch | None:
        """Unpack a batch. Return None if this read already has a result; the next read unpacks the batch."""
        try:
            budget = MAX_INLINE_BYTES - progress.unpacked_bytes
            batch = self._unpacker.unpack(record, item.physical, wait=wait, budget=budget)
        except PagesMissing:
            if progress.next_offset > offset:
                return None
            raise
        progress.unpacked_bytes += batch.unpacked_bytes
        return batch

    def _read(self, item: BatchItem, options: ReadOptions, progress: ReadProgress, wait: bool) -> Buffer | None:
        """Return the record of ``item``. Return None if the record is damaged, not in memory or must not be copied;
        ``progress`` records the reason.
        """
        log = self._log
        if not options.copies and not log.is_resident(item.physical):
            progress.needs_copy = True
            progress.count(item.messages, item.size, item.end)
            return None
        try:
            record = log.read(item.physical, item.size, wait=wait)
        except PagesMissing as error:
            progress.missing += error.extents
            progress.count(item.messages, item.size, item.end)
            return None
        is_whole = log.is_resident(item.physical) or are_valid_records(record, item.physical)
        damage = self._damage
        if damage.covers(item.physical, item.size) or (not is_whole and damage.found(item.physical, item.size)):
            progress.is_repairable = True
            return None
        if is_whole and belongs_to_queue(record, progress.queue.topic_field, progress.queue.queue_id, item.base):
            return record
        progress.is_damaged = True
        return None


def _matches(options: ReadOptions, properties: str) -> bool:
    if options.properties is not None:
        return options.properties.wants(properties.encode())
    return options.tags is None or tag_hash(find_property(properties, TAGS)) in options.tags
