"""The commit log: one append-only sequence of bytes in segments of equal size (Apache RocketMQ ``CommitLog``,
``MappedFileQueue``).

Handles bytes and offsets, not messages: :mod:`~raptormq.storage.records.appender` encodes records,
:mod:`~raptormq.storage.records.scanner` reads them. Offset ``o`` is byte ``o % size`` of the file named ``o // size *
size``. Everything below ``flushed_offset`` is durable.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

from raptormq.errors import StorageError, StoreDamaged
from raptormq.storage.fs import Buffer, Extent, FileSystem, PagesMissing, file_offsets, is_out_of_descriptors
from raptormq.storage.log.open_segments import OpenSegments
from raptormq.storage.log.segment import Segment
from raptormq.storage.log.write_gate import SEGMENT, WRITE, WriteGate


class SegmentWrite(NamedTuple):
    """Bytes for one contiguous range of a segment."""

    offset: int
    parts: list[Buffer]
    size: int


_HEAD_BYTES = 64
_ZEROS = 1 << 20
"""Maximum number of zero bytes in one write."""
_RETRY_MS = 1000
"""Interval in ms between attempts to allocate a segment on a full disk."""
IDLE_MS = 60_000
"""Time in ms without an append after which no bytes of the log count as resident."""


def _write_zeros(segment: Segment, begin: int, end: int) -> None:
    for at in range(begin, end, _ZEROS):
        size = min(_ZEROS, end - at)
        segment.file.write_at(at - segment.base, [bytes(size)], size)


class CommitLog:
    """The segments of ``folder``. All methods except ``flush``, ``allocate_rest``, ``preallocate`` and ``truncate``
    belong to one thread.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        folder: str,
        segment_size: int,
        resident_bytes: int,
        gate: WriteGate,
        clock: Callable[[], int],
        max_open: int = 1024,
    ) -> None:
        """The newest ``resident_bytes`` of the log count as resident. ``max_open`` limits the open files of segments
        that are neither written nor resident.
        """
        self._filesystem = filesystem
        self._folder = folder
        self._open = OpenSegments(max_open, self._is_written)
        self.file_of = self._open.file_of
        self._clock = clock
        self._gate = gate
        self._resident_bytes = resident_bytes
        self._resident_from = 0
        self._released = 0
        self._idle_end = -1
        self._idle_since = 0
        self._retry_at = 0
        self._partial_writes: list[tuple[Segment, int, int]] = []
        self._files_created = self._files_synced = 0
        self._failure: OSError | None = None
        """The error of a truncation. Later flushes raise it too, because the kernel may report lost pages as clean."""
        self._making = threading.Lock()
        self._flushing = threading.Lock()
        self._is_short = False
        self.segment_size = segment_size
        self.segments: list[Segment] = []
        self._preallocated: Segment | None = None
        self.end_offset = 0
        self.flushed_offset = 0

    @property
    def min_offset(self) -> int:
        """First offset that still exists."""
        return self.segments[0].base if self.segments else self.end_offset

    @property
    def allocated_end(self) -> int:
        """End of the last segment."""
        return self.segments[-1].end if self.segments else self.end_offset

    def load(self) -> None:
        """Open the existing segments.

        Raises:
            StoreDamaged: a file in the middle is missing, or a file does not have the configured size.
        """
        for offset in file_offsets(self._filesystem.names(self._folder)):
            segment = Segment(self._filesystem, self._folder, offset, self.segment_size)
            size = self.file_of(segment).size()
            after = self.segments[-1].end if self.segments else offset
            if offset % self.segment_size or size > self.segment_size:
                raise StoreDamaged(
                    f"{segment.path} with {size} bytes does not fit mappedFileSizeCommitLog={self.segment_size}"
                )
            if offset != after:
                raise StoreDamaged(f"the commit log has no file for offset {after}; the next is {segment.path}")
            self.segments.append(segment)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Raise StoreDamaged if records follow a short file. A crash before a file is allocated completely leaves a
        short file too, but only at the end of the log.
        """
        has_successor = False
        for segment in reversed(self.segments):
            file = self.file_of(segment)
            size = file.size()
            if size < self.segment_size and has_successor:
                raise StoreDamaged(f"{segment.path} has only {size} of {self.segment_size} bytes, and records follow")
            has_successor = has_successor or any(file.read_at(0, _HEAD_BYTES))

    def estimated_end(self) -> int:
        """Return the probable end of the records: the end of the last page that was ever written.

        After a process was killed, pages that it had only read ahead count as written
        (:mod:`~raptormq.storage.log.readahead`).
        """
        for segment in reversed(self.segments):
            if (end := segment.written_end(self.file_of(segment))) is not None:
                return end
        return self.min_offset

    def start_at(self, end_offset: int, *, truncate: bool) -> None:
        """Continue at ``end_offset`` after a recovery. With ``truncate`` all bytes after it are removed.

        Without ``truncate`` the segment after the last one is kept as the preallocated segment if it has its full size.
        All other segments after ``end_offset`` are removed. The last segment may be short afterwards, see
        :meth:`allocate_rest`. A short segment must not be followed by another one, because the log could not be loaded
        once the later one had records.
        """
        last = len(self.segments)
        while self.segments and self.segments[-1].base > end_offset:
            segment = self.segments.pop()
            if truncate or segment.base >= end_offset + self.segment_size or segment.is_short:
                segment.remove()
            else:
                self._preallocated = segment
        if len(self.segments) < last:
            self._filesystem.sync_directory(self._folder)
        if truncate and self.segments and end_offset < self.segments[-1].end:
            self.segments[-1].truncate(end_offset)
        self._is_short = bool(self.segments) and self.segments[-1].is_short
        self.end_offset = self.flushed_offset = self._resident_from = end_offset

    def allocate_rest(self) -> None:
        """Allocate the rest of the last segment after :meth:`start_at`. This happens before the first write. Callable
        from any thread.

        Raises:
            DiskFull: the volume has no room; reads are still possible.
            StoreReadOnly: the disk failed.
        """
        with self._making:
            if self._is_short:
                last = self.segments[-1]
                try:
                    last.allocate_rest()
                except OSError as error:
                    self._gate.fail(SEGMENT, f"cannot allocate {last.path}", error)
                self._is_short = False
                self._gate.clear_full(SEGMENT)

    def sync_from(self, offset: int) -> None:
        """Make everything from ``offset`` on durable, including what a dead process may have left in the page cache."""
        self._filesystem.sync_directory(self._folder)
        for segment in self.segments:
            if segment.end > offset:
                self.file_of(segment).sync()

    def write(self, writes: list[SegmentWrite], end_offset: int) -> None:
        """Append ``writes``. If it raises, the log is unchanged.

        Segments are created before the first byte is written, so a full disk leaves nothing to undo.

        Raises:
            OutOfResources: there is no room for a segment (DiskFull), no descriptor or no memory.
            StoreReadOnly: the write failed.
        """
        if self._partial_writes:
            self._erase(self._partial_writes)
        if self._is_short:
            self._allocate_rest_or_wait()
        segments = [self._segment_for_write(run.offset) for run in writes]
        try:
            files = [segment.file for segment in segments]
        except OSError as error:
            self._gate.fail(WRITE, f"cannot open a segment in {self._folder}", error)
        try:
            for file, segment, (offset, parts, size) in zip(files, segments, writes, strict=True):
                file.write_at(offset - segment.base, parts, size)
        except OSError as error:
            self._erase([(segment, run.offset, run.size) for segment, run in zip(segments, writes, strict=True)])
            self._gate.fail(WRITE, f"cannot write to {self._folder}", error)
        self._gate.clear_full(WRITE)
        self.end_offset = end_offset

    def _erase(self, places: list[tuple[Segment, int, int]]) -> None:
        # Without this, the next recovery would restore the complete records of a partially written group.
        self._partial_writes = places  # if the disk has no room for the zeros, the next write repeats this first
        try:
            for segment, offset, size in places:
                _write_zeros(segment, offset, offset + size)
        except OSError as error:
            self._gate.fail(WRITE, f"cannot undo a failed write to {self._folder}", error)
        self._partial_writes = []

    def _segment_for_write(self, offset: int) -> Segment:
        segments = self.segments
        if not segments or offset >= segments[-1].end:
            base = offset - offset % self.segment_size
            with self._making:
                preallocated, self._preallocated = self._preallocated, None
                segments.append(
                    preallocated
                    if preallocated is not None and preallocated.base == base
                    else self._create_segment(base)
                )
            self._retry_at = 0
            self._gate.clear_full(SEGMENT)
            self._files_created += 1
        return self.segment_at(offset)

    def segment_at(self, offset: int) -> Segment:
        """Return the segment with the byte at ``offset``, which must be in the log."""
        return self.segments[(offset - self.segments[0].base) // self.segment_size]

    def _time_of_try(self) -> int:
        """Return the current time in ms. Raise the gate's error if the next attempt to allocate is not due yet."""
        now = self._clock()
        if now < self._retry_at:
            raise self._gate.write_error()
        return now

    def _allocate_rest_or_wait(self) -> None:
        now = self._time_of_try()
        try:
            self.allocate_rest()
        except StorageError:
            self._retry_at = now + _RETRY_MS
            raise

    def _create_segment(self, base: int) -> Segment:
        now = self._time_of_try()
        segment = Segment(self._filesystem, self._folder, base, self.segment_size)
        try:
            segment.create()
        except OSError as error:
            self._retry_at = now + _RETRY_MS
            self._gate.fail(SEGMENT, f"cannot allocate a segment of {self.segment_size} bytes in {self._folder}", error)
        return segment

    def needs_preallocation(self) -> bool:
        """Whether the last segment is more than half full or short, or an append found no room for the next segment."""
        if self._is_short:
            return True
        if self._preallocated is not None or not self.segments:
            return False
        return self._gate.is_full(SEGMENT) or self.segments[-1].end - self.end_offset < self.segment_size // 2

    def preallocate(self) -> None:
        """Allocate the next segment in advance. This also detects that a full disk has room again. Callable from any
        thread.

        A lack of room is not reported here: it is an error only when an append needs the segment.
        """
        if self._is_short:
            with contextlib.suppress(StorageError):  # the gate reports it
                self._gate.check()  # the queues need less room, and retention depends on them
                self.allocate_rest()
            return
        with self._making, contextlib.suppress(OSError):
            if self.needs_preallocation():
                segment = Segment(self._filesystem, self._folder, self.segments[-1].end, self.segment_size)
                segment.create()
                self._preallocated = segment
                self._gate.clear_full(SEGMENT)

    def extents(self, begin: int, end: int) -> list[Extent]:
        """Return the extents of the bytes ``[begin, end)``, as far as files for them exist."""
        files = [*self.segments, *filter(None, [self._preallocated])]
        return [
            Extent(file.path, max(begin, file.base) - file.base, min(end, file.end) - max(begin, file.base))
            for file in files
            if file.end > begin and file.base < end
        ]

    def flush(self) -> int:
        """Make everything written so far durable and return its end offset. Callable from any one thread.

        Raises:
            OSError: the disk failed and its contents are unknown. For lack of descriptors the call can be repeated.
        """
        with self._flushing:
            if self._failure is not None:
                raise self._failure
            target, flushed = self.end_offset, self.flushed_offset
            if target > flushed:
                for segment in list(self.segments):
                    if segment.end > flushed and segment.base < target:
                        segment.file.sync()
                made = self._files_created
                if made > self._files_synced:
                    # After the files, so that a name that survives a power cut has its complete segment.
                    self._filesystem.sync_directory(self._folder)
                    self._files_synced = made
                self.flushed_offset = target
            return target

    def append_raw(self, offset: int, data: Buffer) -> None:
        """Append complete records and fillers from another replica. Raises the errors of :meth:`write` too.

        Raises:
            ValueError: ``offset`` is not the end of this log.
            StoreReadOnly: a write or a flush failed earlier.
        """
        self._gate.check_disk()
        if offset != self.end_offset:
            raise ValueError(f"bytes for offset {offset} do not continue a log that ends at {self.end_offset}")
        end, view, writes = offset + len(data), memoryview(data), []
        at = offset
        while at < end:
            stop = min(end, at - at % self.segment_size + self.segment_size)
            writes.append(SegmentWrite(at, [view[at - offset : stop - offset]], stop - at))
            at = stop
        self.write(writes, end)

    def truncate(self, end_offset: int) -> None:
        """Durably truncate the log to ``end_offset``, the end of a record. May run in any thread while no other thread
        appends.

        The removed bytes are overwritten with zeros. The file keeps its size, because access to a mapping beyond the
        end of a file kills the process. The zeros are durable before new bytes are written; otherwise a crash could
        restore old records after a new one.

        Raises:
            ValueError: ``end_offset`` is outside the log.
            OSError: the disk failed, and the store is read-only; some of the bytes may still be there. For lack of
                descriptors the call can be repeated; the log may have become shorter.
        """
        if not self.min_offset <= end_offset <= self.end_offset:
            raise ValueError(f"a log of [{self.min_offset}, {self.end_offset}) cannot be truncated to {end_offset}")
        with self._flushing, self._making:
            before = self.end_offset
            # Before anything is destroyed, so that the log never claims bytes that are zeros or of a removed segment.
            self.end_offset = end_offset
            self.flushed_offset = min(self.flushed_offset, end_offset)
            try:
                self._erase_from(end_offset, before)
            except OSError as error:
                if is_out_of_descriptors(error):  # what is left of the log is intact
                    self.end_offset = min(before, self.segments[-1].end) if self.segments else before
                else:
                    self._failure = error
                    what = f"cannot truncate the log in {self._folder}"
                    self._gate.set_read_only(f"{what}: {error.strerror or error}")
                raise

    def _erase_from(self, begin: int, end: int) -> None:
        """Durably remove the bytes ``[begin, end)``, the last ones of the log. Lack of descriptors is detected before
        the first byte of the last segment that remains is overwritten.
        """
        preallocated, self._preallocated = self._preallocated, None
        dropped = [preallocated] if preallocated is not None else []
        while len(self.segments) > 1 and self.segments[-1].base >= begin:
            dropped.append(self.segments.pop())
        for segment in dropped:  # last one first, so that an interruption leaves no gap
            self._open.forget(segment)
            segment.remove()
            self._files_created += 1  # the names have changed
        if self._files_created > self._files_synced:
            self._filesystem.sync_directory(self._folder)
            self._files_synced = self._files_created
        if self.segments and (cut_end := min(end, self.segments[-1].end)) > begin:
            _write_zeros(self.segments[-1], begin, cut_end)
            self.segments[-1].file.sync()

    def detached(self) -> CommitLog:
        """Return a log of the same files for use by another thread. It opens the files again, so neither side can close
        a file that the other one uses.
        """
        log = CommitLog(
            self._filesystem, self._folder, self.segment_size, 0, self._gate, self._clock, self._open.max_open
        )
        log.segments = [Segment(self._filesystem, self._folder, each.base, each.size) for each in self.segments]
        log.end_offset = self.end_offset
        return log

    @property
    def mapped_from(self) -> int:
        """Offset before which no bytes are mapped, except for slices that callers still hold."""
        return self._released

    def is_resident(self, offset: int) -> bool:
        """Whether the bytes at ``offset`` were written recently by this process, so that they are in memory."""
        return offset >= self._resident_from and offset >= self.end_offset - self._resident_bytes

    def release_mappings(self) -> None:
        """Release the mappings of bytes that are not resident any more. They would count as memory of this process.
        Called periodically.
        """
        limit, step = self.end_offset - self._resident_bytes, min(self._resident_bytes, self.segment_size) // 4
        if self._is_idle() and self._resident_from < self.end_offset:
            self._resident_from = limit = self.end_offset
            step = 1
        if limit - self._released >= step:
            for segment in self.segments:
                if segment.end > self._released:
                    segment.unmap_before(limit)
                    if segment.end <= limit:
                        self.file_of(segment)
            self._released = limit

    def _is_idle(self) -> bool:
        """Whether the log has not grown for so long that the kernel may have evicted its newest pages."""
        now = self._clock()
        if self.end_offset != self._idle_end:
            self._idle_end, self._idle_since = self.end_offset, now
        return now - self._idle_since >= IDLE_MS

    def read(self, offset: int, size: int, *, wait: bool) -> Buffer:
        """Return the bytes ``[offset, offset + size)``, which lie in one segment.

        Resident bytes are returned as a slice of the mapping. Others are copied, so that neither a missing page nor a
        bad sector can stop the process.

        Raises:
            PagesMissing: ``wait`` is false and the read would block on the disk.
            StorageError: the disk cannot read them.
        """
        segment = self.segment_at(offset)
        start = offset - segment.base
        if self.is_resident(offset):
            with contextlib.suppress(OSError):  # no descriptor or memory for the mapping
                return segment.view[start : start + size]
        try:
            file = self.file_of(segment)
            data = file.read_at(start, size) if wait else file.read_cached(start, size)
        except OSError as error:
            raise StorageError(f"cannot read {segment.path} at {start}: {error.strerror or error}") from error
        if data is None:
            raise PagesMissing([Extent(segment.path, start, size)])
        return data

    def resident_record(self, offset: int, size: int) -> memoryview | None:
        """Return a record as a slice of the mapping, or None if it is not resident or no record of this size can be
        there.
        """
        end = self.end_offset
        if size <= 0 or offset < self._resident_from or offset < end - self._resident_bytes or offset + size > end:
            return None
        number, start = divmod(offset - self.segments[0].base, self.segment_size)
        if number < 0 or start + size > self.segment_size:
            return None
        with contextlib.suppress(OSError):  # no descriptor or memory for the mapping
            return self.segments[number].view[start : start + size]
        return None

    def _is_written(self, segment: Segment) -> bool:
        """Whether ``segment`` may get records, or has records that are not durable."""
        return segment.end > self.flushed_offset < self.end_offset or segment in self.segments[-1:]

    def contains(self, offset: int, size: int) -> bool:
        """Whether a record of ``size`` bytes can be at ``offset``. A damaged queue item may hold any values."""
        last = offset + size - 1
        inside = self.min_offset <= offset <= last < self.end_offset
        return inside and offset // self.segment_size == last // self.segment_size

    def has_bytes_at(self, offset: int) -> bool:
        """Whether there are bytes other than zeros where a record at ``offset`` would begin."""
        if not self.min_offset <= offset < self.allocated_end:
            return False
        segment = self.segment_at(offset)
        return any(self.file_of(segment).read_at(offset - segment.base, _HEAD_BYTES))

    def remove_first(self) -> Segment:
        """Remove the oldest segment from the log and return it; the caller deletes its file."""
        self._open.forget(self.segments[0])
        return self.segments.pop(0)

    def close(self) -> None:
        """Close all files."""
        for segment in (*self.segments, *([self._preallocated] if self._preallocated else [])):
            segment.close()
