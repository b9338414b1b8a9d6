"""Checks and repairs the closed segments of the log: those that are complete, dispatched and flushed.

Nothing writes to a closed segment, so a thread may read it beside the event loop. The thread has its own files
(:meth:`~raptormq.storage.log.CommitLog.detached`). Pages that a check has loaded from the disk leave the page cache
again, which belongs to producers and consumers.

A record is damaged if its lengths, its offset or the CRC of its body are wrong. The CRC does not cover the topic, the
properties and the other fields of a record, so a bit that flips there can go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from raptormq.errors import RecordError, StorageError, StoreDamaged
from raptormq.protocol.record import BLANK_MAGIC
from raptormq.storage.log import CommitLog
from raptormq.storage.records import (
    DamagedRange,
    LogScanner,
    last_record_end,
    next_record_end,
    parse_range,
    parse_record,
    peek,
)

T = TypeVar("T")
_HEAD_BYTES = 8
_UNREADABLE = "the disk cannot read it"


class CheckResult(NamedTuple):
    """Result of a check."""

    reached: int
    """Log offset where the next check begins: the end of a record."""
    damaged: list[DamagedRange]


class ClosedSegments:
    """The closed segments at one moment. Created on the event loop; one method is then called, in a thread."""

    def __init__(self, log: CommitLog, end_offset: int) -> None:
        """Everything below ``end_offset`` is dispatched and flushed."""
        self.start = log.min_offset
        self.end = max(self.start, end_offset - end_offset % log.segment_size)
        """End of the newest closed segment."""
        self._log = log.detached()

    def check(self, begin: int, limit: int) -> CheckResult:
        """Check the records from ``begin``, the beginning of a record, up to ``limit`` or somewhat beyond it. Damage is
        reported in the result; it raises no error. Segments that were deleted meanwhile count as checked.
        """
        return self._closing(lambda: self._check(begin, min(limit, self.end)))

    def _check(self, begin: int, limit: int) -> CheckResult:
        at, damaged = begin, list[DamagedRange]()
        while at < limit:
            segment_end = self._segment_end(at)
            try:
                valid, is_cut = self._valid_end(at, min(limit, segment_end))
                if is_cut and at < valid < limit:
                    return CheckResult(valid, damaged)
                if valid < min(limit, segment_end):
                    valid, damage = self._next_record(valid)
                    damaged += damage
            except FileNotFoundError:
                valid = segment_end
            except OSError as error:
                damaged.append(DamagedRange(at, segment_end - at, f"{_UNREADABLE}: {error.strerror or error}"))
                valid = segment_end
            at = valid
        return CheckResult(at, damaged)

    def _valid_end(self, begin: int, limit: int) -> tuple[int, bool]:
        """Return the end of the last valid record of ``[begin, limit)``, ``begin`` if there is none, and whether the
        record after it is cut by ``limit``.
        """
        data = self._load(begin, limit)
        at, size, segment_size = 0, len(data), self._log.segment_size
        try:
            while at < size:
                if at + _HEAD_BYTES > size:
                    return begin + at, True
                length = next_record_end(data, at, begin + at, segment_size)
                if peek(data, at)[1] != BLANK_MAGIC:
                    if at + length > size:
                        return begin + at, True
                    parse_record(data, at, begin + at)
                at += length
        except RecordError:
            pass
        return begin + at, False

    def _load(self, begin: int, end: int) -> bytes:
        """Read bytes of one segment. Pages that were not in the page cache before are evicted from it."""
        log = self._log
        segment = log.segment_at(begin)
        file, at, size = log.file_of(segment), begin - segment.base, end - begin
        data = file.read_cached(at, size)
        if data is None:
            data = file.read_at(at, size)
            file.evict(at, size)
        return bytes(data)

    def _next_record(self, at: int) -> tuple[int, list[DamagedRange]]:
        """Return the end of the valid record or filler at ``at``. If the bytes there are damaged, return the offset of
        the next valid record (or the end of the log), and the damaged range before it.
        """
        if self._is_filler(at):
            return self._segment_end(at), []
        scanner = LogScanner(self._log, at)
        record = scanner.next_record()
        if record is not None and record.physical_offset == at:
            return at + record.size, []
        found = min(self.end, record.physical_offset if record is not None else self.end)
        reason = scanner.damaged[0].reason if scanner.damaged else "no record follows"
        return found, [DamagedRange(at, found - at, reason)]

    def _segment_end(self, offset: int) -> int:
        return offset - offset % self._log.segment_size + self._log.segment_size

    def _is_filler(self, at: int) -> bool:
        segment_size = self._log.segment_size
        left = segment_size - at % segment_size
        return left >= _HEAD_BYTES and peek(self._load(at, at + _HEAD_BYTES), 0) == (left, BLANK_MAGIC)

    def read_valid(self, begin: int, limit: int, most: int) -> bytes:
        """Return the records from ``begin`` on that end at or before ``limit``, at most ``most`` bytes unless the first
        record is longer.

        Raises:
            StoreDamaged: this replica is damaged in the range, too, or ``begin`` is not the beginning of a record.
            StorageError: the range is not within the closed segments, or the disk cannot read it.
        """
        return self._closing(lambda: self._read_valid(begin, limit, most))

    def _read_valid(self, begin: int, limit: int, most: int) -> bytes:
        log = self._log
        if not self.start <= begin < limit <= self.end:
            raise StorageError(
                f"the range [{begin}, {limit}) is not within the closed segments [{self.start}, {self.end})"
            )
        limit = min(limit, self._segment_end(begin))
        try:
            data = self._load(begin, min(limit, begin + max(most, _HEAD_BYTES)))
            size = last_record_end(data, begin, log.segment_size) - begin
            if not size:
                size = next_record_end(data, 0, begin, log.segment_size)
                if begin + size > limit:
                    raise RecordError(f"the record at offset {begin} ends at {begin + size}, beyond {limit}")
                data = self._load(begin, begin + size)
            parse_range(data[:size], begin, log.segment_size)
        except RecordError as error:
            raise StoreDamaged(f"this copy of the log is damaged: {error}") from error
        except OSError as error:
            raise StorageError(f"cannot read the log at offset {begin}: {error.strerror or error}") from error
        return data[:size]

    def repair(self, begin: int, limit: int, data: bytes) -> int:
        """Overwrite damage with ``data``, the records of another replica, and return the end of the records. The bytes
        are durable and were read back from the disk.

        Raises:
            RecordError: ``data`` are not valid records for these offsets, or end beyond ``limit``. Nothing is written.
            StorageError: the segment was deleted, the disk failed, or it returned other bytes.
        """
        return self._closing(lambda: self._repair(begin, limit, data))

    def _repair(self, begin: int, limit: int, data: bytes) -> int:
        log, end = self._log, begin + len(data)
        if not data or not self.start <= begin < end <= min(limit, self.end):
            raise RecordError(f"{len(data)} bytes at offset {begin} do not fit a damaged range that ends at {limit}")
        if begin // log.segment_size != (end - 1) // log.segment_size:
            raise RecordError(f"the range [{begin}, {end}) spans two segments")
        parse_range(data, begin, log.segment_size)
        segment = log.segment_at(begin)
        at = begin - segment.base
        try:
            file = log.file_of(segment)
            file.write_at(at, [data], len(data))
            file.sync()
            file.evict(at, len(data))
            is_kept = bytes(file.read_at(at, len(data))) == data
        except OSError as error:
            raise StorageError(f"cannot repair {segment.path} at {at}: {error.strerror or error}") from error
        if not is_kept:
            raise StorageError(f"the disk does not return the bytes written to {segment.path} at {at}")
        return end

    def _closing(self, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._log.close()
