"""Recovery: the steps between opening the files and accepting writes (Apache RocketMQ ``CommitLog.recoverNormally``
and ``recoverAbnormally``).

:class:`RunningMarker` distinguishes a clean stop from a crash. It owns the two files of a store in use: ``lock``, which
is held while the process lives, and ``abort``, which a crash leaves behind. Source: Apache RocketMQ
``DefaultMessageStore``; as there, ``abort`` holds the process id as text.

:class:`Recovery` replays the log. After a clean stop the queues are complete, and the scan starts at the last item of
all queues. After a crash the scan starts at the last segment whose first record is older than the checkpoint, and
everything younger than the checkpoint is checked and dispatched again. :mod:`~raptormq.storage.recovery.queue_check`
checks that the queues hold everything before the start of the replay. When they do not, all queues are rebuilt from the
whole log. They are also rebuilt when the checkpoint contradicts the log: it names the time of a durable record, and the
replay, which begins 3 seconds before that time, has to meet that record. The scan ends at the last valid record. A torn
tail behind it is overwritten with zeros, so that old bytes cannot reappear behind new records.

See also: :mod:`~raptormq.storage.records.scanner` scans the log, :mod:`~raptormq.storage.recovery.queue_loading`
loads the queues first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raptormq.errors import DiskFull, OutOfResources, StoreLocked
from raptormq.files import read_file, write_file
from raptormq.logs import get_logger
from raptormq.storage.fs import FileSystem, StorePaths, is_exhausted, is_no_room
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import SWITCHED
from raptormq.storage.records import DamagedRange, LogScanner, assign_queues
from raptormq.storage.recovery.checkpoint_file import Checkpoint, CheckpointFile
from raptormq.storage.recovery.queue_check import QueueCheck, QueueEnd, QueueEnds, load_ends
from raptormq.storage.recovery.queue_loading import RebuildRequired, load_queues

if TYPE_CHECKING:
    from raptormq.storage.records import ConcurrentScanner

logger = get_logger(__name__)


class RunningMarker:
    """Holds the lock from construction until ``release``.

    Raises:
        StoreLocked: another process has the lock; the text names the process when ``abort`` does.
    """

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        self._filesystem = filesystem
        self._paths = paths
        try:
            self._lock = filesystem.lock(paths.lock)
        except BlockingIOError as error:
            raise StoreLocked(f"{paths.root} is in use by another process{self._holder()}") from error
        self.crashed = filesystem.exists(paths.abort)
        """Whether the last run ended without a clean stop."""

    def _holder(self) -> str:
        if not self._filesystem.exists(self._paths.abort):
            return ""
        text = read_file(self._filesystem, self._paths.abort)[:20].decode("ascii", "replace").strip()
        return f" (pid {text})" if text.isdigit() else ""

    def mark(self) -> None:
        """Write ``abort``: an end without ``clear`` counts as a crash from now on. The existence of the file is the
        marker. The process id in it is only informative, and is omitted if the volume is full.

        Raises:
            OSError: the volume has no room for the file name, or the disk failed.
        """
        try:
            write_file(self._filesystem, self._paths.abort, str(os.getpid()).encode())
        except OSError as error:
            if not (is_no_room(error) and self._filesystem.exists(self._paths.abort)):
                raise
        self._filesystem.sync_directory(self._paths.root)

    def clear(self) -> None:
        """Remove ``abort``, once everything is durable."""
        self._filesystem.remove(self._paths.abort)
        self._filesystem.sync_directory(self._paths.root)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()


_FLUSH_EVERY_BATCHES = 64
_MAX_UNWRITTEN_RECORDS = 1 << 23
"""Maximum number of records whose items may wait in memory for disk space. They take 168 MB, more than arrive between
two checkpoints.
"""
_END = 1 << 62
"""An offset beyond the end of every log."""


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery."""

    clean: bool
    """Whether the last run ended cleanly and its queues were complete."""
    rebuilt: bool = False
    """Whether all queues were rebuilt."""
    start_offset: int = 0
    """Log offset where the replay began."""
    end_offset: int = 0
    """End of the log; the next record is written here."""
    dispatched_offset: int = 0
    """Log offset up to which records are in the queues and the index: the end of the log, except on a replica."""
    records: int = 0
    """Number of records read and dispatched."""
    damaged: list[DamagedRange] = field(default_factory=list)
    """Ranges without a valid record in the middle of the log; their messages are lost."""
    milliseconds: int = 0

    def lines(self) -> list[str]:
        """Return the report as log lines, the most important first."""
        lines = [
            f"the commit log is damaged: {each.size} bytes at offset {each.offset} hold no valid record ({each.reason})"
            for each in self.damaged
        ]
        how = "loss of queue files" if self.rebuilt else "clean stop" if self.clean else "crash"
        work = f"{self.records} records from offset {self.start_offset} to {self.end_offset}"
        return [*lines, f"recovered after a {how} in {self.milliseconds} ms: {work}"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Makes the queues and the index of a store consistent with the log."""

    parts: StoreParts
    checkpoint_file: CheckpointFile
    marker: RunningMarker
    topics: frozenset[str] | None
    """Topics in the broker's table; None without the table."""
    confirmed_offset: int | None = None
    """Confirmed log offset of a replica; None without replication. Records beyond it are checked but not dispatched.
    The group confirms or truncates them."""
    _mistyped_topics: set[str] = field(default_factory=set)
    """Topics that have batches in SimpleCQ queues, because no file says that they are of type BatchCQ."""

    def run(self) -> RecoveryReport:
        """Recover the store. On return the log can be appended to, and the queues are consistent with it.

        Raises:
            StoreDamaged: files are missing or not of the configured size.
            OSError: the disk failed.
        """
        self.parts.log.load()
        self.parts.dispatcher.expected_end = self.parts.dispatcher.dispatched_offset = self.parts.log.estimated_end()
        if not self.parts.log.segments:
            self.parts.filesystem.remove_tree(self.parts.paths.queues)
            self.parts.filesystem.remove_tree(self.parts.paths.batch_queues)
            self.parts.filesystem.make_folders(self.parts.paths.queues)
        try:
            report = self._recover()
        except RebuildRequired as missing:
            report = self._rebuild(missing)
        if not report.clean:
            self.parts.log.sync_from(report.start_offset)
        self.parts.log.start_at(
            report.end_offset, truncate=not report.clean or self.parts.log.has_bytes_at(report.end_offset)
        )
        self.parts.dispatcher.dispatched_offset = report.dispatched_offset
        for queue in self.parts.queues:
            queue.next_offset = queue.max_offset
        return report

    def _recover(self) -> RecoveryReport:
        """Load the queues and replay the records that they lack.

        Raises:
            RebuildRequired: the queues lack more than a replay adds.
        """
        log_min, crashed = self.parts.log.min_offset, self.marker.crashed
        replay_from, checkpoint = None, Checkpoint()
        if crashed:
            checkpoint = self.checkpoint_file.load()
            replay_from = min(self._replay_start(checkpoint), self._conversion_replay_start())
        load_queues(self.parts.filesystem, self.parts.queues, log_min, replay_from)
        ends = load_ends(self.parts.filesystem, self.parts.paths.queue_ends)
        if replay_from is None:
            start = min(self._end_of_last_item(ends), self._conversion_replay_start())
            self._compare_with_checkpoint(
                start
            )  # after a clean stop the checkpoint is current; if it is not, the crash marker was removed by hand
        else:
            start = replay_from
        check = QueueCheck(self.parts.queues, log_min, start, ends, self.topics)
        check.compare_with_ends()
        check.check_tombstones()
        report = RecoveryReport(clean=not crashed, start_offset=start)
        newest = self._replay(report, check if start > log_min else None)
        if newest < checkpoint.durable_ms:
            until = f"messages stored up to {checkpoint.durable_ms} (ms since 1970) are durable"
            raise RebuildRequired(f"the checkpoint says that {until}, but the newest message in the log is of {newest}")
        return report

    def _rebuild(self, missing: RebuildRequired) -> RecoveryReport:
        """Rebuild all queues from the whole log. Start again when the log shows that topics are of type BatchCQ."""
        logger.warning("rebuilding all queues from the log: %s", missing)
        # If this process dies, a start that trusts the checkpoint would treat half-built queues as complete.
        self.checkpoint_file.save(Checkpoint())
        self.marker.mark()
        self.parts.queues.clear()
        report = RecoveryReport(clean=False, rebuilt=True, start_offset=self.parts.log.min_offset)
        load_queues(self.parts.filesystem, self.parts.queues, report.start_offset, report.start_offset, rebuild=True)
        try:
            self._replay(report, None)
        except RebuildRequired as misjudged:
            return self._rebuild(misjudged)
        return report

    def _conversion_replay_start(self) -> int:
        """Return the log offset from which on converted queues may lack records."""
        switches = [each.offset for each in self.parts.queues.conversions.values() if each.state == SWITCHED]
        return max(self.parts.log.min_offset, min(switches, default=_END))

    def _end_of_last_item(self, ends: QueueEnds | None) -> int:
        """Return the end of the record that the last item of all queues points to. When no queue has an item, return
        the end of the log at the last checkpoint, or the beginning of an empty log.

        Raises:
            RebuildRequired: the queues have lost items, or the log lacks the record.
        """
        last = max((queue.max_physical for queue in self.parts.queues), default=-1)
        if last < 0:
            log_min, log_end = self.parts.log.min_offset, self.parts.log.estimated_end()
            if log_end <= log_min:
                return log_min
            if ends is None or ends.offset > log_end or any(map(self._is_live, ends.queues)):
                raise RebuildRequired("no queue has an item")
            return max(ends.offset, log_min)
        record = LogScanner(self.parts.log, last).record_at(last)
        if record is None:
            raise RebuildRequired(f"the last item points to offset {last}, where the log has no record")
        self.parts.dispatcher.last_timestamp = record.store_timestamp
        return last + record.size

    def _is_live(self, end: QueueEnd) -> bool:
        return end.max_physical >= max(self.parts.queues.topic_tombstones.get(end.topic, 0), self.parts.log.min_offset)

    def _replay_start(self, checkpoint: Checkpoint) -> int:
        """Return the offset of the first record younger than the checkpoint, or of the first byte that is no record.

        Raises:
            RebuildRequired: the checkpoint's times cover records that its queues did not have.
        """
        until = checkpoint.replay_from_ms
        for segment in reversed(self.parts.log.segments):
            scanner = LogScanner(self.parts.log, segment.base)
            first = scanner.record_at(segment.base)
            if first is not None and first.store_timestamp <= until:
                scanner.skip(until)
                self._compare_with_checkpoint(scanner.end_offset)
                return scanner.end_offset
        return self.parts.log.min_offset

    def _compare_with_checkpoint(self, start: int) -> None:
        """Check that the queues can be complete before ``start``.

        Raises:
            RebuildRequired: the last checkpoint, written by this program, covers less.
        """
        checkpoint = self.checkpoint_file.load_checked()
        if checkpoint is not None and start > checkpoint.confirmed_offset:
            raise RebuildRequired(
                f"the checkpoint covers the queues up to {checkpoint.confirmed_offset}, not up to {start}"
            )

    def _replay(self, report: RecoveryReport, check: QueueCheck | None) -> int:
        """Replay the log from ``report.start_offset`` on. Return the newest store time, 0 without a record. ``check``
        is None when the whole log is replayed.

        Raises:
            RebuildRequired: ``check`` has found an incomplete queue, or batches belong to queues that cannot hold them.
        """
        self.parts.dispatcher.dispatched_offset = report.start_offset
        self.parts.dispatcher.expected_end = self.parts.log.estimated_end()
        scanner = self._scanner(report.start_offset)
        written = newest = 0
        limit: int | None = None
        try:
            for number, batch in enumerate(scanner.batches(), 1):
                newest = max(newest, *batch.store_timestamps)
                if self.confirmed_offset is not None and batch.end_offset > self.confirmed_offset:
                    limit = batch.start_offset if limit is None else limit
                    continue
                self._mistyped_topics.update(assign_queues(batch, self.parts.queues))
                if check is not None:
                    check.check(batch)
                self.parts.dispatcher.apply(batch)
                report.records += len(batch.sizes)
                if number % _FLUSH_EVERY_BATCHES == 0 and self._write_queue_tails(report.records - written):
                    written = report.records
        finally:
            self.parts.dispatcher.expected_end = 0
        if self._mistyped_topics:
            self.parts.queues.batch_topics |= self._mistyped_topics
            topics = ", ".join(sorted(self._mistyped_topics))
            self._mistyped_topics.clear()
            raise RebuildRequired(f"the log has batches of topics with SimpleCQ queues: {topics:.200}")
        report.end_offset = scanner.end_offset
        report.dispatched_offset = report.end_offset if limit is None else limit
        report.damaged = scanner.damaged
        return newest

    def _write_queue_tails(self, waiting: int) -> bool:
        """Write the items of the last ``waiting`` records to the queue files. Return False if there is no disk space
        for them.

        Raises:
            OutOfResources: too many items would wait.
        """
        try:
            self.parts.queues.flush(len(self.parts.queues))
        except OSError as error:
            if not is_exhausted(error):
                raise
            if waiting > _MAX_UNWRITTEN_RECORDS:
                where = f"cannot write to the consume queues in {self.parts.paths.queues}"
                kind = DiskFull if is_no_room(error) else OutOfResources
                raise kind(f"{where}: {error.strerror}; {waiting} messages are waiting for disk space") from error
            return False
        return True

    def _scanner(self, start: int) -> LogScanner | ConcurrentScanner:
        is_copy = self.confirmed_offset is not None
        if not self.parts.config.concurrent_build:
            return LogScanner(self.parts.log, start, stops_at_damage=is_copy)
        from raptormq.storage.records import ConcurrentScanner

        return ConcurrentScanner(self.parts.log, start, stops_at_damage=is_copy)
