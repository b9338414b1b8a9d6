"""Makes checkpoints: everything derived from the log is made durable, then the checkpoint file records how far.

The order ensures that a checkpoint never covers data that is not durable. Queue tails are written, queue files are
flushed, then the headers of the index (which count its entries), the ends of all queues, and the checkpoint file. The
log is flushed independently and may be behind its queues. The checkpoint therefore names the time up to which the log
is durable, and a recovery ignores items of younger records (:mod:`~raptormq.storage.recovery.queue_loading`).

:class:`Checkpointer` runs the steps in that order. A running store runs them cooperatively on the event loop and in
threads. A store that is being opened or closed runs them at once. Blocking work has two halves: a job
(:class:`SyncJob`, :class:`CheckpointJob`) is created on the thread of the store and runs in any thread.

See also: :mod:`~raptormq.storage.maintenance.maintenance` has the timers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from raptormq.errors import OutOfResources, StorageError
from raptormq.files import replace_file
from raptormq.storage.background import Executor, cooperatively
from raptormq.storage.fs import FileSystem
from raptormq.storage.index import Header
from raptormq.storage.maintenance.retention import Retention
from raptormq.storage.parts import StoreParts
from raptormq.storage.recovery import Checkpoint, CheckpointFile, EndsPacker

_MAX_SINGLE_SYNCS = 64
"""Number of files and folders above which the whole volume is synced instead of each path."""


@dataclass(frozen=True, slots=True)
class SyncJob:
    """The files and the folders with changed entries, all below ``folder``, that have to be synced."""

    filesystem: FileSystem
    folder: str
    paths: frozenset[str]
    folders: frozenset[str]

    def run(self) -> None:
        """Sync the files and folders. Blocks.

        Raises:
            OSError: the disk failed.
        """
        if len(self.paths) + len(self.folders) > _MAX_SINGLE_SYNCS:
            self.filesystem.sync_volume(self.folder)
            return
        for path in self.paths:
            # A topic deletion or retention may have removed the file meanwhile.
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self.filesystem.open(path)) as file:
                file.sync()
        for folder in sorted(self.folders, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.sync_directory(folder)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """The blocking part of one checkpoint."""

    filesystem: FileSystem
    unsynced: SyncJob
    headers: tuple[Header, ...]
    ends_path: str
    ends: EndsPacker
    file: CheckpointFile
    checkpoint: Checkpoint

    def run(self) -> None:
        """Make the queue files durable and write the checkpoint. Blocks.

        Raises:
            OSError: the disk failed; the previous checkpoint stays valid.
        """
        self.unsynced.run()
        for header in self.headers:
            header.make_durable(self.filesystem)
        replace_file(self.filesystem, self.ends_path, self.ends.packed())
        self.file.save(self.checkpoint)


_QUEUES_PER_STEP = 8
_INDEX_PAGES_PER_STEP = 64
_ENDS_PER_STEP = 256
_LEAST_ENTRIES_BYTES, _MAX_ENTRIES_BYTES = 64 << 10, 16 << 20
"""Minimum and maximum bytes of index entries that a thread writes at a time. The checkpoint writes smaller amounts."""
_QUEUES = "queues"
_INDEX = "index"
_KEYS = "keys"
_CHECKPOINT = "checkpoint"


class SlicedWork(NamedTuple):
    """Work on the thread of the store, in slices. ``work`` is called with ``size`` until it returns True."""

    work: Callable[[int], bool]
    size: int

    async def run_cooperatively(self) -> None:
        """Run all slices and yield to the event loop in between."""
        async for _ in cooperatively(iter(partial(self.work, self.size), True)):
            pass

    def run_blocking(self) -> None:
        """Run all slices without yielding to the event loop."""
        while not self.work(self.size):
            pass


_Step = SlicedWork | Callable[[], None]
"""A step of a checkpoint. A step that is not a SlicedWork blocks and runs in a thread."""


@dataclass(frozen=True, slots=True)
class Checkpointer:
    """Makes the checkpoints of one store. Must be used on the thread of the store."""

    parts: StoreParts
    retention: Retention
    file: CheckpointFile
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    job_lock: threading.Lock = field(default_factory=threading.Lock)
    """Serializes jobs. A job continues when its caller is cancelled, and the next job writes the same files."""

    async def checkpoint(self, background: Executor, *, force: bool = False) -> None:
        """Make a checkpoint. Everything dispatched before the call is durable afterwards. Without ``force`` a
        checkpoint that would not differ from the last one is skipped.

        Raises:
            StorageError: something could not be written.
        """
        async with self.lock:
            steps = self._steps(force=force)
            step = next(steps, None)
            while step is not None:
                try:
                    await (step.run_cooperatively() if isinstance(step, SlicedWork) else background.run(step))
                except StorageError as error:
                    step = steps.throw(error)
                else:
                    step = next(steps, None)

    def checkpoint_blocking(self) -> None:
        """Flush the log and make a checkpoint in this thread. The log comes first, because a clean stop requires that
        its last records are durable.

        Raises:
            StorageError: something could not be written.
        """
        self.parts.flusher.flush()
        steps = self._steps(force=False)
        step = next(steps, None)
        while step is not None:
            try:
                step.run_blocking() if isinstance(step, SlicedWork) else step()
            except StorageError as error:
                step = steps.throw(error)
            else:
                step = next(steps, None)

    def _steps(self, *, force: bool) -> Generator[_Step, None, None]:
        """Yield the steps of a checkpoint. The caller throws the StorageError of a failed step into the generator,
        which raises it again.
        """
        timestamp, end = self.parts.dispatcher.last_timestamp, self.parts.dispatcher.dispatched_offset
        yield self.tail_writes()
        try:
            yield from self._write_rest(timestamp, force=force)
        except OutOfResources:
            # The checkpoint cannot be made. The files that could be written are still made durable, so that retention
            # can delete segments and free space.
            unsynced = self.parts.queues.files.unsynced
            yield partial(self._run_sync, SyncJob(self.parts.filesystem, self.parts.paths.root, *unsynced.take()))
            unsynced.mark_synced()
            self.retention.checkpointed_offset = end
            raise
        self.retention.checkpointed_offset = end

    def _write_rest(self, timestamp: int, *, force: bool) -> Generator[_Step, None, None]:
        if self.parts.index is not None:
            self._insert_keys(self.parts.index.begin_flush)
            yield SlicedWork(self._write_index, _INDEX_PAGES_PER_STEP)
        checkpoint = self._next(timestamp)
        if not force and checkpoint == self.file.saved and not self.parts.queues.files.unsynced:
            return  # the files are current; a topic deletion only changes folder entries
        # Folder entries of a topic deleted from here on are not synced by this job. They become part of the next
        # checkpoint.
        ends = EndsPacker(self.parts.dispatcher.dispatched_offset, self.parts.queues)
        job = self._take_job(ends, checkpoint)
        yield SlicedWork(ends.add, _ENDS_PER_STEP)
        yield partial(self._run_job, job)
        self._job_succeeded(job)

    def _take_job(self, ends: EndsPacker, checkpoint: Checkpoint) -> CheckpointJob:
        """Return the job for everything that the queues and the index have written. ``ends`` and ``checkpoint`` become
        valid when it succeeds.
        """
        filesystem, paths, index = self.parts.filesystem, self.parts.paths, self.parts.index
        files, folders = self.parts.queues.files.unsynced.take()
        headers = tuple(index.headers()) if index is not None else ()
        folders |= {header.path.rpartition("/")[0] for header in headers}
        sync = SyncJob(filesystem, paths.root, files, folders)
        return CheckpointJob(filesystem, sync, headers, paths.queue_ends, ends, self.file, checkpoint)

    def _job_succeeded(self, job: CheckpointJob) -> None:
        """Mark the job's files as synced."""
        self.parts.queues.files.unsynced.mark_synced()
        if self.parts.index is not None:
            self.parts.index.headers_written(job.headers)

    def _next(self, queue_timestamp: int) -> Checkpoint:
        """Return the checkpoint that becomes valid. The last flush of the log may be older than the last record in the
        queues; a recovery uses the older of the two times.
        """
        return Checkpoint(
            log_timestamp=self.parts.flusher.flushed_timestamp,
            queue_timestamp=queue_timestamp,
            index_timestamp=queue_timestamp,
            confirmed_offset=self.parts.dispatcher.dispatched_offset,
        )

    # --- steps ---

    def tail_writes(self) -> SlicedWork:
        """Return the work that writes queue tails to their files; tails of deleted topics are skipped."""
        return SlicedWork(self._write_tails, _QUEUES_PER_STEP)

    def _write_tails(self, limit: int) -> bool:
        with self._report_to_gate(_QUEUES, f"cannot write to the consume queues in {self.parts.paths.queues}"):
            return self.parts.queues.flush(limit)

    def _insert_keys(self, enter: Callable[[], None]) -> None:
        with self._report_to_gate(_KEYS, f"cannot make a file of the index in {self.parts.paths.key_index}"):
            enter()

    def _write_index(self, limit: int) -> bool:
        assert self.parts.index is not None
        with self._report_to_gate(_INDEX, f"cannot write to the index in {self.parts.paths.key_index}"):
            return self.parts.index.flush(limit)

    def _run_sync(self, sync: SyncJob) -> None:
        try:
            sync.run()
        except OSError as error:  # any other error means that the volume is still full
            what = f"cannot make the consume queues in {self.parts.paths.root} durable"
            self.parts.gate.fail(_CHECKPOINT, what, error)

    def _run_job(self, job: CheckpointJob) -> None:
        with (
            self._report_to_gate(_CHECKPOINT, f"cannot write the checkpoint in {self.parts.paths.root}"),
            self.job_lock,
        ):
            job.run()

    @contextlib.contextmanager
    def _report_to_gate(self, source: str, what: str) -> Iterator[None]:
        """Report the outcome of a write to the gate: an error with the text ``what``, or that ``source`` has room."""
        try:
            yield
        except OSError as error:
            self.parts.gate.fail(source, what, error)
        self.parts.gate.clear_full(source)

    # --- between two checkpoints ---

    async def write_index_entries(self, background: Executor) -> None:
        """Insert pending keys into the files of the index. A thread writes the entries when there are many.

        Raises:
            StorageError: there is no room for a file.
        """
        if self.parts.index is None:
            return
        self._insert_keys(self.parts.index.insert)
        if self.lock.locked():
            return
        entries = self.parts.index.unwritten_entries(_LEAST_ENTRIES_BYTES, _MAX_ENTRIES_BYTES)
        if entries is not None:
            async with self.lock:  # on a slow disk the two jobs would occupy two threads, and reads need one
                with contextlib.suppress(OSError):  # the next checkpoint reports the error
                    if await background.run(entries.write, self.parts.filesystem):
                        self.parts.index.entries_written(entries)
