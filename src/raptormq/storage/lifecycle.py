"""Opens and closes a store: lock, recovery, crash marker, and the final flush."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from raptormq.errors import DiskFull, OutOfResources, StorageError, StoreReadOnly
from raptormq.files import make_durable_folder
from raptormq.logs import get_logger
from raptormq.storage.background import Executor
from raptormq.storage.conversion import QueueConverter
from raptormq.storage.fs import is_exhausted, is_no_room
from raptormq.storage.maintenance import Checkpointer, Maintenance, Retention
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import ConsumerOffsets, QueueTable, declared_topics
from raptormq.storage.recovery import CheckpointFile, Recovery, RecoveryReport, RunningMarker

logger = get_logger(__name__)


@dataclass(slots=True)
class OpenStore:
    """A store that is open: its crash marker and its saved deletions."""

    maintenance: Maintenance
    marker: RunningMarker
    _saved_deletions: int = -1
    _saving_deletions: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def save_deletions(self, background: Executor) -> None:
        """Make the deletions of topics, conversions and consumer offsets durable. After the return no crash restores
        them. Returns immediately if nothing was deleted since the last call.

        Raises:
            StorageError: something could not be written.
        """
        async with self._saving_deletions:
            # Repeat while deletions arrive during a save: the caller writes the topic table in its current state
            # afterwards.
            while (version := self.maintenance.parts.deletions.version) != self._saved_deletions:
                await self.maintenance.save_ledgers(background)
                await self.maintenance.save_offsets(background)
                self._saved_deletions = version

    def close(self, dispatch: Callable[[], object]) -> None:
        """Make everything durable, remove the crash marker and release the lock.

        Raises:
            StorageError: something could not be written; the marker stays.
        """
        maintenance, parts = self.maintenance, self.maintenance.parts
        try:
            parts.flusher.flush()  # the log first, because saved offsets must not be beyond the durable log
            dispatch()
            maintenance.flush_all()
            with contextlib.suppress(OutOfResources):  # the next start allocates the rest of the segment
                parts.log.allocate_rest()
            self.marker.clear()
        except OSError as error:
            raise to_storage_error(error, parts.paths.root) from error
        finally:
            _release(parts, maintenance.checkpointer.file, self.marker)


def to_storage_error(error: OSError, root: str) -> StorageError:
    """Return the StorageError for an error of the operating system during open or close."""
    named = f" ({error.filename})" if error.filename and error.filename != root else ""
    reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror or error
    text = f"cannot use the store in {root}: {reason}{named}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(text)
    if is_no_room(error):
        return DiskFull(text)
    return OutOfResources(text) if is_exhausted(error) else StorageError(text)


def open_store(
    parts: StoreParts, retention: Retention, converter: QueueConverter, confirmed_offset: int | None
) -> tuple[OpenStore, RecoveryReport]:
    """Lock the folder and recover; arguments and errors as of :meth:`raptormq.storage.store.MessageStore.open`."""
    started = time.monotonic_ns()
    filesystem, paths, queues, index = parts.filesystem, parts.paths, parts.queues, parts.index
    marker: RunningMarker | None = None
    checkpoint_file: CheckpointFile | None = None
    try:
        for folder in (paths.root, paths.log, paths.queues, paths.config):
            make_durable_folder(filesystem, folder)
        marker = RunningMarker(filesystem, paths)
        checkpoint_file = CheckpointFile(filesystem, paths.checkpoint)
        filesystem.sync_directory(paths.root)
        if index is not None:
            index.open(crashed=marker.crashed)
        declared = declared_topics(filesystem, paths)
        queues.batch_topics |= declared.batch
        queues.topic_tombstones = parts.deletions.load()
        converter.prepare()
        report = Recovery(parts, checkpoint_file, marker, declared.names, confirmed_offset).run()
        parts.deletions.clamp(parts.log.min_offset, report.end_offset)
        retention.checkpointed_offset = report.start_offset  # records before it were durable before this start
        if index is not None:
            index.log_ends_at(report.end_offset)
        maintenance = Maintenance(parts, retention, Checkpointer(parts, retention, checkpoint_file))
        queues.files.deleted.find()
        converter.load(None if report.clean else report.start_offset)
        parts.consumer_offsets.load()
        # On a replica a group may have consumed confirmed messages that are not in the queues yet.
        if confirmed_offset is None:
            clamp_offsets(parts.consumer_offsets, queues)
        parts.flusher.flushed_timestamp = parts.dispatcher.last_timestamp
        retention.measure_disk()  # /metrics shows the disk usage before the first retention run
        _write_marker(marker, retention, parts.clock())
        _flush_all(maintenance)
    except BaseException as error:
        _release(parts, checkpoint_file, marker)
        if isinstance(error, OSError):
            raise to_storage_error(error, paths.root) from error
        raise
    report.milliseconds = (time.monotonic_ns() - started) // 1_000_000
    for line in report.lines():
        logger.log(logging.WARNING if report.damaged else logging.INFO, line)
    return OpenStore(maintenance, marker), report


def _write_marker(marker: RunningMarker, retention: Retention, now: int) -> None:
    """Write the crash marker. Without it, a crash would look like a clean stop. On a full volume retention first makes
    room for the file's name.

    Raises:
        OSError: there is still no room.
    """
    try:
        marker.mark()
    except OSError as error:
        remove = retention.run(now) if is_no_room(error) else None
        if remove is None:
            raise
        remove()
        marker.mark()


def _flush_all(maintenance: Maintenance) -> None:
    """Write the results of the recovery, then allocate the rest of the last segment. The queues come first: they need
    far less room, and retention can delete segments once they are durable.

    Without room the data stays in memory, as in a running store: the write gate refuses messages, and maintenance tries
    again.

    Raises:
        StoreReadOnly: the disk failed.
    """
    with contextlib.suppress(OutOfResources):
        maintenance.flush_all()
        maintenance.parts.log.allocate_rest()


def clamp_offsets(offsets: ConsumerOffsets, queues: QueueTable) -> None:
    """Clamp consumer offsets to the ends of their queues. After a crash, or after files were removed by hand, a queue
    may be shorter than the offsets of its consumers. New messages reuse the lost offsets, also in a topic that does not
    exist at present.
    """

    def end_of(topic: str, queue_id: int) -> int:
        queue = queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    if beyond := offsets.clamp(end_of):
        logger.warning("%d consumer offsets were beyond the end of their queues and have been set to the end", beyond)


def _release(parts: StoreParts, checkpoint_file: CheckpointFile | None, marker: RunningMarker | None) -> None:
    parts.log.close()
    parts.queues.files.shut_down()
    if parts.index is not None:
        parts.index.close()
    if checkpoint_file is not None:
        checkpoint_file.close()
    if marker is not None:
        marker.release()
