"""Deletes old segments of the log, then the queue files that pointed only to them.

Source: Apache RocketMQ ``CleanCommitLogService``, ``CleanConsumeQueueService``. The age of a segment is the time since
its last write. The active segment, and segments that are not yet durable together with their queue items, are kept.

==================  ===========================================================================
use of the volume   what is deleted in one run, at most ``deleteFileBatchMax`` segments
==================  ===========================================================================
below 75 %          segments older than ``fileReservedTime``, in the hours of ``deleteWhen``
75 % and more       segments older than ``fileReservedTime``, at any hour
85 % and more       the same, or, when none is left, the oldest segments, whatever their age
90 % and more       the same, and writes are refused until there is room again
==================  ===========================================================================

While writes are refused for want of room, additional runs delete segments older than ``fileReservedTime`` at any hour.
Younger segments are deleted by the regular runs only.

A follower of a group deletes by the same rules, and only what its leader has allowed all members to delete
(:attr:`raptormq.storage.replica.Replica.group_begin`). Otherwise consumers would skip messages when it leads. Its
volume may thereby become full.

Segments are deleted from the oldest on, one after the other. A file that cannot be deleted blocks the younger ones,
because a log with a hole cannot be opened. The next run tries again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from raptormq.errors import ConfigError, StorageError
from raptormq.logs import get_logger
from raptormq.storage.config import StoreConfig
from raptormq.storage.fs import DiskUsage, FileSystem
from raptormq.storage.log import RATIO, CommitLog, Segment, WriteGate
from raptormq.storage.queue import ConsumeQueue, QueueTable

logger = get_logger(__name__)

_HOUR_MS = 3_600_000


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours of a ``deleteWhen`` value such as ``04`` or ``02;14``.

    Raises:
        ConfigError: not hours from 0 to 23.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ConfigError(f"deleteWhen={text!r} is not a list of hours such as 04 or 02;14")
    return frozenset(map(int, parts))


class ExpiredFiles(NamedTuple):
    """Files of a queue whose items all point to deleted records."""

    queue: ConsumeQueue
    first_item: int
    """Number of the first item that is kept. The expired files contain only earlier items."""


class Retention:
    """Applies the limits of ``config``, which may change. :meth:`run` selects segments on the event loop and returns
    the blocking part for a thread.
    """

    def __init__(
        self,
        config: StoreConfig,
        filesystem: FileSystem,
        log: CommitLog,
        queues: QueueTable,
        gate: WriteGate,
        deletable_offset: Callable[[], int],
    ) -> None:
        """``deletable_offset`` returns the log offset before which segments may be deleted."""
        self._deletable_offset = deletable_offset
        self._config = config
        self._filesystem = filesystem
        self._log = log
        self._queues = queues
        self._gate = gate
        self._folder = config.paths.log
        self._segments_to_delete: deque[Segment] = deque()
        self._removal_lock = threading.Lock()
        self._is_blocked = False
        self.unchecked_queues: Iterator[ConsumeQueue] = iter(())
        """Queues to check with :meth:`find_expired_files` after a :meth:`run` that removed segments."""
        self.expired_files: list[ExpiredFiles] = []
        """Arguments for later calls of :meth:`remove_expired_files`."""
        self.disk_usage: DiskUsage | None = None
        """Usage of the volume of the log at the last measurement; None before the first one."""
        self.deleted_segments = 0
        """Number of segments deleted since the start."""
        self.checkpointed_offset = 0
        """The queues are durable for log records below this offset. Segments beyond it are kept: after a crash their
        queue items may be missing, and then the assigned queue offsets are known only from the log.
        """

    def measure_disk(self) -> float:
        """Measure the volume; return the used share, 0 to 1."""
        self.disk_usage = self._filesystem.usage(self._folder)
        return self.disk_usage.used_ratio

    def has_room_for(self, size: int) -> bool:
        """Measure the volume; return whether it remains below ``disk_full_ratio`` with ``size`` bytes more."""
        self.measure_disk()
        usage = self.disk_usage
        assert usage is not None
        return usage.total - usage.free + size < self._config.disk_full_ratio * usage.total

    def run(self, now_ms: int, *, any_hour: bool = False, expired_only: bool = False) -> Callable[[], None] | None:
        """Select segments by the table of this module and remove them from the log. With ``any_hour`` expired segments
        are removed outside the hours of ``deleteWhen`` too. With ``expired_only`` younger segments are kept, however
        full the disk is.

        Return a function that deletes the files of these segments and those that earlier runs failed to delete, or
        raises StorageError. Return None when there is nothing to delete.
        """
        ratio = self.measure_disk()
        removed = [] if self._is_blocked else self._remove_segments(now_ms, 0.0 if expired_only else ratio, any_hour)
        if ratio >= self._config.disk_full_ratio and not removed:
            self._gate.set_full(RATIO, f"the disk of {self._folder} is {ratio:.0%} full (diskSpaceWarningLevelRatio)")
        elif ratio < self._config.disk_full_ratio:
            self._gate.clear_full(RATIO)
        if removed:
            self._log_deletion(removed, now_ms, ratio)
        self._segments_to_delete += removed
        if not self._segments_to_delete:
            return None
        self.unchecked_queues = iter(list(self._queues))
        return self._remove

    def _remove(self) -> None:
        """Delete the files, in a thread. A second run, requested by an administrator, waits for the first."""
        with self._removal_lock:
            while self._segments_to_delete:
                segment = self._segments_to_delete[0]
                try:
                    segment.remove()
                    self._filesystem.sync_directory(self._folder)
                except OSError as error:
                    self._is_blocked = True  # deleting more segments would free no space
                    raise StorageError(f"cannot delete {segment.path}: {error.strerror or error}") from error
                self._segments_to_delete.popleft()
                self._is_blocked = False
                self.deleted_segments += 1

    def find_expired_files(self, queue: ConsumeQueue, *, wait: bool) -> None:
        """Check whether ``queue`` has files whose items all point to deleted records.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
            StorageError: an item cannot be read.
        """
        if queue.deleted:
            return
        self._queues.min_offset(queue, self._log.min_offset, wait=wait)
        if queue.has_expired_files:  # a reader may have updated the first item already
            queue.has_expired_files = False
            self.expired_files.append(ExpiredFiles(queue, queue.first_item))

    def remove_expired_files(self, dead: ExpiredFiles) -> None:
        """Remove expired files of a queue. A checkpoint that records the new beginning of the queue has to precede this
        call. Otherwise a start after a crash would miss the files and rebuild all queues.

        Raises:
            OSError: the disk failed; some files are left.
        """
        queue, first_item = dead
        if not queue.deleted:
            # The queue may have been reset meanwhile.
            self._queues.files.remove_before(queue, min(first_item, queue.first_item))

    def _remove_segments(self, now_ms: int, ratio: float, any_hour: bool) -> list[Segment]:
        config = self._config
        forced = ratio >= config.disk_clean_ratio
        if (
            not (forced or any_hour)
            and ratio < config.disk_max_used_ratio
            and time.localtime(now_ms / 1000).tm_hour not in parse_hours(config.delete_when)
        ):
            return []
        removed = self._remove_while(lambda segment: self._is_expired(segment, now_ms))
        return removed if removed or not forced else self._remove_while(lambda _segment: True)

    def _remove_while(self, condition: Callable[[Segment], bool]) -> list[Segment]:
        """Remove the oldest segments while they may be deleted and ``condition`` holds."""
        log, removed = self._log, list[Segment]()
        limit = min(log.flushed_offset, self.checkpointed_offset, self._deletable_offset())
        while len(removed) < self._config.delete_batch_max and len(log.segments) > 1:
            first = log.segments[0]
            if first.end > limit or not condition(first):
                break
            removed.append(log.remove_first())
        return removed

    def _log_deletion(self, removed: list[Segment], now_ms: int, ratio: float) -> None:
        """Log deleted segments; a warning if they are younger than ``fileReservedTime``, because their messages may not
        have been consumed.
        """
        young = sum(not self._is_expired(each, now_ms) for each in removed)
        line = (
            f"deleting {len(removed)} segments of the log, up to offset {removed[-1].end}; the disk is {ratio:.0%} full"
        )
        if young:
            reserved = self._config.file_reserved_hours
            logger.warning("%s: %d of them are younger than %g h (fileReservedTime)", line, young, reserved)
        else:
            logger.info("%s", line)

    def _is_expired(self, segment: Segment, now_ms: int) -> bool:
        try:
            modified_ms = self._filesystem.modified_ms(segment.path)
        except FileNotFoundError:  # an administrator has deleted the file to make room
            return True
        return now_ms - modified_ms >= self._config.file_reserved_hours * _HOUR_MS
