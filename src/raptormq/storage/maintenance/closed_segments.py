"""Checks and repairs the settled part of the log: what is dispatched and flushed.

::

    | closed segments ............ | open segment ......... |
    start                          end          settled_end

Nothing changes settled bytes, so a thread may read them beside the event loop. The checks in the background cover
closed segments; a place that a read or another member has found damaged is also checked and repaired in the open
segment. The thread has its own files (:meth:`~raptormq.storage.log.CommitLog.detached`). Pages that a check has loaded
from the disk leave the page cache again, which belongs to producers and consumers.

A record is damaged if its lengths, its offset or the CRC of its body are wrong. The CRC does not cover the topic, the
properties and the other fields of a record. A bit that flips there is found by comparison with other copies
(:mod:`~raptormq.storage.maintenance.copy_vote`): a check returns a digest of the records, which is equal on all copies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from raptormq.errors import NoValidCopy, RecordError, StorageError
from raptormq.protocol.record import BLANK_BYTES, BLANK_MAGIC
from raptormq.storage.log import CommitLog
from raptormq.storage.records import (
    DamagedRange,
    LogScanner,
    last_record_end,
    next_record_end,
    parse_range,
    peek,
    valid_end,
)

T = TypeVar("T")
_HEAD_BYTES = 8
_WALK_BYTES = 4 << 20
_DIGEST_BYTES = 16
_UNREADABLE = "the disk cannot read it"


class CheckResult(NamedTuple):
    """Result of a check."""

    reached: int
    """Log offset where the next check begins: the end of a record."""
    damaged: list[DamagedRange]
    digest: str = ""
    """Hash of the bytes of all checked records, in hexadecimal. The fillers at the end of segments are not part of it.
    Empty if a record is damaged or was deleted meanwhile.
    """


class ClosedSegments:
    """The closed segments at one moment. Created on the event loop; one method is then called, in a thread."""

    def __init__(self, log: CommitLog, end_offset: int) -> None:
        """Everything below ``end_offset``, the end of a record, is dispatched and flushed."""
        self.start = log.min_offset
        self.settled_end = max(self.start, end_offset)
        self.end = max(self.start, end_offset - end_offset % log.segment_size)
        """End of the newest closed segment."""
        self._log = log.detached()

    def check(self, begin: int, limit: int) -> CheckResult:
        """Check the records from ``begin``, the beginning of a record, up to ``limit`` or somewhat beyond it. Damage is
        reported in the result; it raises no error. Segments that were deleted meanwhile count as checked.
        """
        return self._closing(lambda: self._check(begin, min(limit, self.end), self.end))

    def check_at(self, offset: int, size: int) -> tuple[int, CheckResult]:
        """Check the records with bytes in ``[offset, offset + size)``, a place in the settled part of the log.
        ``offset`` need not be the beginning of a record. Return the beginning of the check with its result.
        """
        return self._closing(lambda: self._check_at(offset, min(offset + size, self.settled_end)))

    def _check_at(self, offset: int, limit: int) -> tuple[int, CheckResult]:
        at = begin = self._record_begin(offset)
        damaged = list[DamagedRange]()
        while at < limit:
            at, found, _ = self._check(at, limit, self.settled_end)
            damaged += found
        return begin, CheckResult(at, damaged)

    def _record_begin(self, offset: int) -> int:
        """Return the beginning of the record at ``offset``, found from the beginning of its segment. If the length of
        an earlier record is damaged, return the beginning of that record, or of one before it.
        """
        size = self._log.segment_size
        at = max(self.start, offset - offset % size)
        with suppress(RecordError, OSError):  # the check finds the damage
            while at < offset:
                end_of_walk = min(max(offset + 1, at + _HEAD_BYTES), at + _WALK_BYTES, self._segment_end(at))
                data = self._load(at, end_of_walk)
                end = last_record_end(data, at, size)
                if end == at:  # the record continues behind these bytes
                    end += next_record_end(data, 0, at, size)
                if end > offset:
                    return at
                at = end
        return at

    def _check(self, begin: int, limit: int, end: int) -> CheckResult:
        """Check up to ``limit`` or somewhat beyond it, at most up to ``end``."""
        at, damaged, is_deleted = begin, list[DamagedRange](), False
        digest = blake2b(digest_size=_DIGEST_BYTES)
        while at < limit:
            segment_end = min(self._segment_end(at), end)
            try:
                data = self._load(at, min(limit, segment_end))
                valid, is_cut = valid_end(data, at, self._log.segment_size)
                digest.update(self._records(data, at, valid))
                if is_cut and at < valid < limit:
                    at = valid
                    break
                if valid < min(limit, segment_end):
                    valid, damage = self._next_record(valid, end, digest.update)
                    damaged += damage
            except FileNotFoundError:
                valid, is_deleted = segment_end, True
            except OSError as error:
                damaged.append(DamagedRange(at, segment_end - at, f"{_UNREADABLE}: {error.strerror or error}"))
                valid = segment_end
            at = valid
        return CheckResult(at, damaged, "" if damaged or is_deleted else digest.hexdigest())

    def _records(self, data: bytes, begin: int, end: int) -> bytes:
        """Return the valid records of ``data``, which ends in a filler if ``end`` is the end of the segment."""
        if end < self._segment_end(begin):
            return data[: end - begin]
        at = 0
        while at + BLANK_BYTES <= len(data):
            size, magic = peek(data, at)
            if magic == BLANK_MAGIC:
                break
            at += size
        return data[:at]

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

    def _next_record(self, at: int, end: int, add: Callable[[bytes], None]) -> tuple[int, list[DamagedRange]]:
        """Return the end of the valid record or filler at ``at``, after a call of ``add`` with the record. If the bytes
        there are damaged, return the offset of the next valid record, at most ``end``, and the damaged range before it.
        """
        if self._is_filler(at):
            return self._segment_end(at), []
        scanner = LogScanner(self._log, at)
        record = scanner.next_record()
        if record is not None and record.physical_offset == at:
            add(self._load(at, at + record.size))
            return at + record.size, []
        found = min(end, record.physical_offset if record is not None else end)
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
            NoValidCopy: this replica is damaged in the range, too, ``begin`` is not the beginning of a record, or the
                log does not contain the range.
            StorageError: the range is not settled yet, or the disk cannot read it.
        """
        return self._closing(lambda: self._read_valid(begin, limit, most))

    def _read_valid(self, begin: int, limit: int, most: int) -> bytes:
        log = self._log
        place = f"the range [{begin}, {limit}) is not within"
        if not self.start <= begin < limit <= log.end_offset:
            raise NoValidCopy(f"{place} the log [{self.start}, {log.end_offset})")
        if limit > self.settled_end:
            raise StorageError(f"{place} its dispatched and flushed part, which ends at {self.settled_end}: retry")
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
            raise NoValidCopy(f"this copy of the log is damaged: {error}") from error
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
        if not data or not self.start <= begin < end <= min(limit, self.settled_end):
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
