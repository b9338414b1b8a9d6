"""Scans the log record by record, for recovery.

:class:`LogScanner` scans in one thread. A place without a valid record is either the end of the log (no valid record
follows: zeros, or the torn tail of a crash) or damage (a valid record follows). To tell them apart the scanner searches
for the next record: a magic number at a place that the record's own PHYSICALOFFSET field confirms. Damage is skipped
and reported.

:class:`ConcurrentScanner` does the same for the concurrent build of queues and index
(``enableBuildConsumeQueueConcurrently``; Apache RocketMQ ``ConcurrentReputMessageService``). Other processes parse the
log in blocks of 4 MiB (:func:`parse_block`), and the scanner yields them in order. Only blocks of valid records are
parsed this way. The end of a segment, damage and the end of the log are left to a :class:`LogScanner`, batch by batch,
so both scanners find the same records and report the same damage.

Parsing uses processes instead of threads because of the GIL. The processes receive bytes and return columns
(:class:`ParsedBlock`): the transfer of a column of small integers, or of one repeated topic, costs a tenth of the
transfer of the same values as objects.

:mod:`~raptormq.storage.records.parser` parses one record, :mod:`~raptormq.storage.recovery.recovery` uses the scanners.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import NamedTuple

from raptormq.errors import RecordError
from raptormq.logs import get_logger
from raptormq.protocol.record import BLANK_BYTES, BLANK_MAGIC, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from raptormq.storage.fs import File
from raptormq.storage.log import CommitLog, Segment
from raptormq.storage.queue import AppendResult, PendingRecord
from raptormq.storage.records.parser import (
    ParsedRecord,
    parse_record,
    peek,
    peek_body_bytes,
    peek_prepared_offset,
    peek_store_timestamp,
    to_pending_record,
)

logger = get_logger(__name__)


class ParsedBlock(NamedTuple):
    """The records of a block in columns, up to the first invalid one."""

    sizes: tuple[int, ...]
    queue_offsets: tuple[int, ...]
    store_timestamps: tuple[int, ...]
    columns: tuple[tuple[object, ...], ...]
    """One column per field of :class:`~raptormq.storage.queue.append_batches.PendingRecord`."""

    def records(self) -> list[PendingRecord]:
        """Return the records in the form that builders take."""
        return list(map(PendingRecord._make, zip(*self.columns, strict=True)))


def parse_block(data: bytes, offset: int) -> ParsedBlock:
    """Parse consecutive records, the first of which is at log offset ``offset``."""
    rows: list[tuple[int, int, int]] = []
    records: list[PendingRecord] = []
    topics: dict[str, str] = {}
    at = 0
    while at < len(data):
        try:
            record = parse_record(data, at, offset + at)
        except RecordError:
            break
        pending = to_pending_record(record)
        records.append(pending._replace(topic=topics.setdefault(record.topic, record.topic)))
        rows.append((record.size, record.queue_offset, record.store_timestamp))
        at += peek(data, at)[0]
    sizes, queue_offsets, timestamps = zip(*rows, strict=True) if rows else ((), (), ())
    return ParsedBlock(sizes, queue_offsets, timestamps, tuple(zip(*records, strict=True)))


WINDOW_BYTES = 4 << 20
_MAGIC_SPAN = 7
"""Bytes before a window that may hold the size of a record (4) and the first part of its magic number (3)."""
_BATCH_RECORDS = 1024
_BATCH_BYTES = 16 << 20
_MAGICS = (MAGIC_V1.to_bytes(4, "big", signed=True), MAGIC_V2.to_bytes(4, "big", signed=True))
_NO_RECORD = "no record"
_HEAD_BYTES = 128
"""Number of bytes that contain at least the fields of a record up to its body."""
_MAX_OVERHEAD_BYTES = 256 << 10
"""Upper limit of the size of a record without its body: topic, properties and the other fields."""


class DamagedRange(NamedTuple):
    """Bytes of the log that hold no valid record although records follow."""

    offset: int
    size: int
    reason: str


class LogScanner:
    """One scan from an offset to the end of the log. ``end_offset`` and ``damaged`` are complete when it has ended.

    With ``stops_at_damage`` the scan ends at the first damage, because a replica can fetch the rest from another one.
    """

    def __init__(self, log: CommitLog, start: int, *, stops_at_damage: bool = False) -> None:
        self._log = log
        self._stops_at_damage = stops_at_damage
        self.end_offset = start
        self.damaged: list[DamagedRange] = []
        self._window = b""
        self._window_at = 0

    def skip(self, until_ms: int) -> None:
        """Skip records stored up to ``until_ms`` without parsing them. Stop before anything that is not a record.

        The last skipped record is parsed, because a torn record may contain any time.
        """
        last = self._skip_unparsed(until_ms)
        if last is not None and self.record_at(last) is None:
            self.end_offset = last

    def _skip_unparsed(self, until_ms: int) -> int | None:
        """Return the offset of the last record that was skipped."""
        last = None
        while (segment := self._segment(self.end_offset)) is not None:
            data, at = self._bytes(segment, self.end_offset, MIN_RECORD_BYTES)
            size, magic = peek(data, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_BYTES or self.end_offset + size > segment.end:
                if self._filler(segment, size, magic):
                    self.end_offset = segment.end
                    continue
                break
            if peek_store_timestamp(data, at) > until_ms:
                break
            last = self.end_offset
            self.end_offset += size
        return last

    def record_at(self, offset: int) -> ParsedRecord | None:
        """Return the record at ``offset``, or None if there is no valid one."""
        segment = self._segment(offset)
        try:
            return self._parse(segment, offset) if segment is not None else None
        except RecordError:
            return None

    def next_record(self) -> ParsedRecord | None:
        """Return the first valid record at or after ``end_offset``, or None. Skipped damage is added to ``damaged``."""
        return self._next()

    def batches(self) -> Iterator[AppendResult]:
        """Yield all records from ``end_offset`` on. The caller fills in ``queues``."""
        batch = self._new_batch()
        while True:
            record = self._next()
            if record is None:
                break
            if len(batch.sizes) >= _BATCH_RECORDS or self.end_offset - batch.start_offset > _BATCH_BYTES:
                yield self._finish(batch)
                batch = self._new_batch()
            _add(batch, record)
            self.end_offset = record.physical_offset + record.size
        if batch.sizes:
            yield self._finish(batch)

    def records_with_prepared_offset(self) -> Iterator[ParsedRecord]:
        """Yield the records from ``end_offset`` on that have a PREPAREDTRANSACTIONOFFSET, in a log that was scanned
        before. Other records are skipped without being parsed, at a fifth of the cost.
        """
        while (segment := self._segment(self.end_offset)) is not None:
            data, at = self._bytes(segment, self.end_offset, MIN_RECORD_BYTES)
            size, magic = peek(data, at)
            is_valid = magic in (MAGIC_V1, MAGIC_V2) and MIN_RECORD_BYTES <= size <= segment.end - self.end_offset
            if is_valid and not peek_prepared_offset(data, at):
                self.end_offset += size
                continue
            record = self._next()
            if record is None:
                return
            if record.prepared_transaction_offset:
                yield record
            self.end_offset = record.physical_offset + record.size

    def _new_batch(self) -> AppendResult:
        return AppendResult([], self.end_offset, [])

    def _finish(self, batch: AppendResult) -> AppendResult:
        batch.end_offset = self.end_offset
        return batch

    def _next(self) -> ParsedRecord | None:
        """Return the next record, or None at the end of the log. Fillers and damage are skipped."""
        while (segment := self._segment(self.end_offset)) is not None:
            reason = _NO_RECORD
            try:
                return self._parse(segment, self.end_offset)
            except RecordError as error:
                reason = str(error)
            data, at = self._bytes(segment, self.end_offset, BLANK_BYTES)
            if self._filler(segment, *peek(data, at)):
                self.end_offset = segment.end
                continue
            found = self._find_record(self.end_offset + 1)
            if found is None:
                return None
            damage = DamagedRange(self.end_offset, found - self.end_offset, reason)
            if damage not in self.damaged[-1:]:
                self.damaged.append(damage)
            if self._stops_at_damage:
                return None
            self.end_offset = found
        return None

    def read_valid_block(self, offset: int) -> bytes:
        """Return complete records from ``offset`` on, at most one window. The result is empty if no record begins at
        ``offset``.
        """
        segment = self._segment(offset)
        if segment is None:
            return b""
        data = self._log.file_of(segment).read_at(offset - segment.base, min(WINDOW_BYTES, segment.end - offset))
        at, last = 0, len(data) - MIN_RECORD_BYTES
        while at <= last:
            size, magic = peek(data, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_BYTES or at + size > len(data):
                break
            at += size
        return data[:at]

    def _filler(self, segment: Segment, size: int, magic: int) -> bool:
        return magic == BLANK_MAGIC and size == segment.end - self.end_offset

    def _segment(self, offset: int) -> Segment | None:
        segments = self._log.segments
        if not segments or not segments[0].base <= offset < segments[-1].end:
            return None
        return self._log.segment_at(offset)

    def _parse(self, segment: Segment, offset: int) -> ParsedRecord:
        data, at = self._bytes(segment, offset, MIN_RECORD_BYTES)
        size, magic = peek(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise RecordError(_NO_RECORD)
        if size < MIN_RECORD_BYTES or offset + size > segment.end:
            raise RecordError(f"a record of {size} bytes does not fit its segment")
        if size > WINDOW_BYTES:  # a damaged size must not cost the memory of a whole segment
            data, at = self._bytes(segment, offset, _HEAD_BYTES)
            if not 0 <= size - peek_body_bytes(data[at : at + _HEAD_BYTES]) <= _MAX_OVERHEAD_BYTES:
                raise RecordError(f"a record of {size} bytes has a shorter body")
        data, at = self._bytes(segment, offset, size)
        return parse_record(data, at, offset)

    def _bytes(self, segment: Segment, offset: int, size: int) -> tuple[bytes, int]:
        """Return a buffer and the position in it of the bytes ``[offset, offset + size)``. Beyond the end of the
        segment the bytes are zeros.
        """
        at = offset - self._window_at
        if at < 0 or at + size > len(self._window):
            wanted = min(max(WINDOW_BYTES, size), segment.end - offset)
            file = self._log.file_of(segment)
            self._window = file.read_at(offset - segment.base, wanted).ljust(size, b"\0")
            self._window_at = offset
            at = 0
        return self._window, at

    def _find_record(self, offset: int) -> int | None:
        """Return the offset of the first valid record at or after ``offset``."""
        for segment in self._log.segments:
            if segment.end > offset and (found := self._find_in(segment, max(offset, segment.base))) is not None:
                return found
        return None

    def _find_in(self, segment: Segment, offset: int) -> int | None:
        for position in _windows_with_data(self._log.file_of(segment), segment.size, offset - segment.base):
            window_at = max(0, position - _MAGIC_SPAN)
            window = self._log.file_of(segment).read_at(window_at, position + WINDOW_BYTES - window_at)
            for at in _magic_places(window):
                start = segment.base + window_at + at - 4
                if start >= offset and self.record_at(start) is not None:
                    return start
        return None


def _windows_with_data(file: File, size: int, position: int) -> list[int]:
    """Return the positions of the windows with data from ``position`` on.

    All are found before the first is read: pages that were read, or read ahead, count as data from then on, and the
    search would go through the whole unwritten rest of the file.
    """
    windows: list[int] = []
    for window_at in range(position, size, WINDOW_BYTES):
        data_at = file.next_data(window_at)
        if data_at is None:
            break
        if data_at < window_at + WINDOW_BYTES:
            windows.append(window_at)
    return windows


def _magic_places(window: bytes) -> Iterator[int]:
    places = []
    for magic in _MAGICS:
        at = window.find(magic)
        while at >= 0:
            if at >= 4:
                places.append(at)
            at = window.find(magic, at + 1)
    yield from sorted(places)


def _add(batch: AppendResult, record: ParsedRecord) -> None:
    records = batch.records
    timestamps = batch.store_timestamps
    assert isinstance(records, list)
    assert isinstance(timestamps, list)
    records.append(to_pending_record(record))
    timestamps.append(record.store_timestamp)
    batch.physical_offsets.append(record.physical_offset)
    batch.sizes.append(record.size)
    batch.queue_offsets.append(record.queue_offset)


MIN_CONCURRENT_BYTES = 16 * WINDOW_BYTES
"""Number of bytes that this process scans before it starts others, since most scans end earlier."""
_MAX_PROCESSES = 8
_POOL_ERRORS = BrokenExecutor, OSError, ImportError, NotImplementedError
"""Errors of the pool: a process was killed, no other one can be started, or the system has no semaphores."""
_AHEAD = 2
"""Number of blocks passed to each process: one is parsed while the next one waits."""


@contextmanager
def parsing_processes() -> Iterator[tuple[Executor, int]]:
    """Provide a pool of processes, one per CPU up to 8, and their number. They end with the context."""
    import multiprocessing  # slow to import, and most starts scan little
    from concurrent.futures import ProcessPoolExecutor

    count = min(_MAX_PROCESSES, len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(count, context, initializer=_end_with_parent)
    try:
        yield executor, count
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent is killed. Otherwise the process would wait for work forever."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class ConcurrentScanner:
    """One scan from an offset to the end of the log, with the same result as a :class:`LogScanner`."""

    def __init__(self, log: CommitLog, start: int, *, stops_at_damage: bool = False) -> None:
        self._scanner = LogScanner(log, start, stops_at_damage=stops_at_damage)
        self._sequential_until = start + MIN_CONCURRENT_BYTES
        self._under_way: deque[tuple[int, int, Future[ParsedBlock]]] = deque()

    @property
    def end_offset(self) -> int:
        """Position of the scan; the end of the log when it has ended."""
        return self._scanner.end_offset

    @property
    def damaged(self) -> list[DamagedRange]:
        """The ranges that were skipped."""
        return self._scanner.damaged

    def batches(self) -> Iterator[AppendResult]:
        """Yield all records from ``end_offset`` on. The caller fills in ``queues``."""
        while self._scanner.end_offset < self._sequential_until:
            batch = next(self._scanner.batches(), None)
            if batch is None:
                return
            yield batch
        try:
            with parsing_processes() as (executor, count):
                while True:
                    yield from self._plain_batches(executor, _AHEAD * count)
                    batch = next(self._scanner.batches(), None)
                    if batch is None:
                        return
                    yield batch
        except _POOL_ERRORS as error:  # if the disk cannot be read, the scan below raises again
            logger.warning(
                "the processes that parse the log have failed (%s); the rest is parsed in this process", error
            )
        yield from self._scanner.batches()

    def _plain_batches(self, executor: Executor, most: int) -> Iterator[AppendResult]:
        """Yield the parsed batches of the processes, up to the first position without a valid record."""
        self._under_way.clear()
        ahead = self._scanner.end_offset
        while True:
            while len(self._under_way) < most and (data := self._scanner.read_valid_block(ahead)):
                self._under_way.append((ahead, len(data), executor.submit(parse_block, data, ahead)))
                ahead += len(data)
            if not self._under_way:
                return
            offset, size, future = self._under_way.popleft()
            batch = _batch(future.result(), offset)
            self._scanner.end_offset = batch.end_offset
            if batch.sizes:
                yield batch
            if batch.end_offset < offset + size:
                return


def _batch(block: ParsedBlock, offset: int) -> AppendResult:
    batch = AppendResult(block.records(), offset, block.store_timestamps)
    batch.sizes = list(block.sizes)
    batch.queue_offsets = list(block.queue_offsets)
    place = offset
    for size in block.sizes:
        batch.physical_offsets.append(place)
        place += size
    batch.end_offset = place
    return batch
