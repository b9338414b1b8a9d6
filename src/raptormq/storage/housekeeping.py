"""What a store does beside requests: writes queue tails, makes checkpoints, saves offsets, deletes old segments,
prepares the next one, releases pages.

Neighbour: :mod:`~raptormq.storage.background` has the timers and threads. Everything that takes long is cut into
slices or done in a thread, so that the event loop is never held up for more than about a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from raptormq.errors import DiskFull, StorageError, StoreReadOnly
from raptormq.storage.background import Background, Runner, in_turns
from raptormq.storage.checkpoint import Checkpoint, CheckpointFile
from raptormq.storage.commit_log import CommitLog
from raptormq.storage.config import StoreConfig
from raptormq.storage.consume_queue import ConsumeQueue
from raptormq.storage.consumer_offsets import ConsumerOffsets, Snapshot
from raptormq.storage.deletion_ledger import DeletionLedger
from raptormq.storage.dispatch import Dispatcher
from raptormq.storage.durability import DurabilityJob, SyncJob, done, take_job
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.flush_service import FlushService
from raptormq.storage.key_index import KeyIndex
from raptormq.storage.page_cache import with_pages
from raptormq.storage.page_release import PageReleaser
from raptormq.storage.queue_ends import EndsPacker
from raptormq.storage.queue_table import QueueTable
from raptormq.storage.retention import Retention
from raptormq.storage.write_gate import WriteGate

_QUEUES_PER_STEP = 8
_INDEX_PAGES_PER_STEP = 64
_ENDS_PER_STEP = 256
_LEAST_ENTRIES_BYTES, _MOST_ENTRIES_BYTES = 64 << 10, 16 << 20
"""Of the key index, written by a thread at a time; a few are left to the checkpoint."""
_PAGES_INTERVAL_MS = 500
_QUEUES = "queues"
_INDEX = "index"
_KEYS = "keys"
_CHECKPOINT = "checkpoint"
_OFFSETS = "offsets"
_DELETIONS = "deletions"


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """The periodic work on the parts of one store."""

    config: StoreConfig
    filesystem: FileSystem
    clock: Callable[[], int]
    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    dispatcher: Dispatcher
    flusher: FlushService
    retention: Retention
    offsets: ConsumerOffsets
    gate: WriteGate
    checkpoint_file: CheckpointFile
    deletions: DeletionLedger
    one_checkpoint: asyncio.Lock = field(default_factory=asyncio.Lock)
    one_save: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of the consumer offsets."""

    def start(self, background: Background, on_released: Callable[[int], object]) -> None:
        """Begin with the timers. ``on_released`` is called with the size, in bytes, of pages that were given back."""
        config = self.config

        async def checkpoint() -> None:
            await self._checkpoint(background)

        async def offsets() -> None:
            await self.save_offsets(background)

        async def deletions() -> None:
            await self._save_deletions(background)

        async def retention() -> None:
            await self.clean(background, any_hour=False)

        async def log() -> None:
            self.log.release_cold()
            if self.log.wants_spare():
                await background.run(self.log.make_spare)

        async def entries() -> None:
            await self._write_entries(background)

        releaser = PageReleaser(
            self.filesystem, self.log, self.dispatcher, self.queues, self.offsets, config.kept_page_bytes
        )

        async def pages() -> None:
            if released := await releaser.run(background):
                on_released(released)

        async def doomed() -> None:
            if self.queues.files.doomed:
                await background.run(self._remove_doomed)

        background.every(config.upkeep_interval_ms, log)
        background.every(config.upkeep_interval_ms, entries)
        background.every(config.upkeep_interval_ms, doomed)
        background.every(config.queue_flush_interval_ms, self._write_tails)
        background.every(_PAGES_INTERVAL_MS, pages)
        background.every(config.checkpoint_interval_ms, checkpoint)
        background.every(config.offsets_interval_ms, offsets)
        background.every(config.offsets_interval_ms, deletions)
        background.every(config.retention_interval_ms, retention)

    async def clean(self, background: Runner, *, any_hour: bool) -> None:
        """Delete what the limits say, with ``any_hour`` at other hours than theirs too."""
        if (remove := self.retention.run(self.clock(), any_hour=any_hour)) is not None:
            await background.run(remove)
            if self.index is not None:
                await background.run(self._remove, self.index.take_before(self.log.min_offset))
        async for queue in in_turns(self.retention.unvisited):
            await with_pages(partial(self._clean_queue, queue), background, self.filesystem)

    async def clean_now(self, background: Runner, *, any_hour: bool) -> None:
        """The same because somebody wants it: after a checkpoint, without which the newest segments stay."""
        with contextlib.suppress(StorageError):  # the gate tells of it
            await self.make_durable(background)
        await self.clean(background, any_hour=any_hour)

    def _clean_queue(self, queue: ConsumeQueue, wait: bool) -> None:
        self.retention.clean_queue(queue, wait=wait)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.filesystem.remove(path)

    def _remove_doomed(self) -> None:
        try:
            self.queues.files.remove_doomed()
        except OSError as error:
            raise StorageError(f"cannot remove what was deleted: {error.strerror or error}") from error

    async def _write_tails(self) -> None:
        await _in_slices(self._write_slice)

    def _write_slice(self, limit: int) -> bool:
        try:
            done = self.queues.flush(limit)
        except OSError as error:
            self.gate.fail(_QUEUES, f"cannot write to the consume queues in {self.config.paths.queues}", error)
        self.gate.clear_full(_QUEUES)
        return done

    def _begin_index(self) -> None:
        if self.index is not None:
            self._enter_keys(self.index.begin_flush)

    def _enter_keys(self, enter: Callable[[], None]) -> None:
        try:
            enter()
        except OSError as error:
            self.gate.fail(_KEYS, f"cannot make a file of the index in {self.config.paths.key_index}", error)
        self.gate.clear_full(_KEYS)

    def _write_index(self, limit: int) -> bool:
        if self.index is None:
            return True
        try:
            done = self.index.flush(limit)
        except OSError as error:
            self.gate.fail(_INDEX, f"cannot write to the index in {self.config.paths.key_index}", error)
        self.gate.clear_full(_INDEX)
        return done

    async def _write_entries(self, background: Runner) -> None:
        if self.index is None:
            return
        self._enter_keys(self.index.enter)
        if self.one_checkpoint.locked():
            return
        entries = self.index.unwritten_entries(_LEAST_ENTRIES_BYTES, _MOST_ENTRIES_BYTES)
        if entries is not None:
            async with self.one_checkpoint:  # on a slow disk both would have a thread each, and reads wait for one
                with contextlib.suppress(OSError):  # the checkpoint meets the trouble, too, and tells of it
                    if await background.run(entries.write, self.filesystem):
                        self.index.entries_written(entries)

    async def make_durable(self, background: Runner) -> None:
        """Write everything derived that was dispatched before this call and make it durable.

        Raises:
            StorageError: something could not be written.
        """
        await self._checkpoint(background, always=True)

    async def _checkpoint(self, background: Runner, *, always: bool = False) -> None:
        async with self.one_checkpoint:  # a second one would not wait for the files that the first has taken
            timestamp, end = self.dispatcher.last_timestamp, self.dispatcher.dispatched_offset
            await self._write_tails()
            try:
                await self._write_rest(background, timestamp, always=always)
            except DiskFull:
                await background.run(self._run_sync, self._take_sync())
                self.queues.files.unsynced.done()
                self.retention.queued_end = end
                raise
            self.retention.queued_end = end

    async def _write_rest(self, background: Runner, timestamp: int, *, always: bool) -> None:
        self._begin_index()
        await _in_slices(self._write_index, _INDEX_PAGES_PER_STEP)
        checkpoint = self._next_checkpoint(timestamp)
        if always or self._is_news(checkpoint):
            job = self._take_job(checkpoint)
            await _in_slices(job.ends.add, _ENDS_PER_STEP)
            await background.run(self._run_job, job)
            done(job, self.queues.files, self.index)

    def _take_sync(self) -> SyncJob:
        """Return the part of a job that needs no room; after it retention may make some."""
        return SyncJob(self.filesystem, self.config.paths.root, *self.queues.files.unsynced.take())

    def _run_sync(self, sync: SyncJob) -> None:
        try:
            sync.run()
        except OSError as error:
            self.gate.fail(_CHECKPOINT, f"cannot make the consume queues in {self.config.paths.root} durable", error)

    def _next_checkpoint(self, queue_timestamp: int) -> Checkpoint:
        """Return what will be true. The log is durable up to its last flush, which may be before the last record of
        the queues: a recovery goes by the older of the two times.
        """
        return Checkpoint(
            log_timestamp=self.flusher.flushed_timestamp,
            queue_timestamp=queue_timestamp,
            index_timestamp=queue_timestamp,
            confirmed_offset=self.dispatcher.dispatched_offset,
        )

    def _is_news(self, checkpoint: Checkpoint) -> bool:
        """False when the files say so already. That a topic was deleted shows in the names alone."""
        return checkpoint != self.checkpoint_file.saved or bool(self.queues.files.unsynced)

    def _take_job(self, checkpoint: Checkpoint) -> DurabilityJob:
        """Return the job, whose ends of the queues are to be packed yet: a topic that is deleted meanwhile has names
        that are not durable afterwards, and so comes to the next checkpoint.
        """
        ends = EndsPacker(self.dispatcher.dispatched_offset, self.queues)
        return take_job(
            self.filesystem, self.config.paths, self.queues.files, self.index, ends, self.checkpoint_file, checkpoint
        )

    def _run_job(self, job: DurabilityJob) -> None:
        try:
            job.run()
        except OSError as error:
            self.gate.fail(_CHECKPOINT, f"cannot write the checkpoint in {self.config.paths.root}", error)
        self.gate.clear_full(_CHECKPOINT)

    async def save_offsets(self, background: Runner) -> None:
        """Write the consumer offsets if they have changed.

        Raises:
            StorageError: they could not be written.
        """
        async with self.one_save:
            if (snapshot := self.offsets.snapshot()) is not None:
                await background.run(self._save_offsets, snapshot)

    def _save_offsets(self, snapshot: Snapshot) -> None:
        try:
            self.offsets.save_snapshot(snapshot)
        except OSError as error:
            self.gate.fail(_OFFSETS, f"cannot save the consumer offsets in {self.config.paths.config}", error)
        self.gate.clear_full(_OFFSETS)

    async def _save_deletions(self, background: Runner) -> None:
        """Once there is room for what a start could not write; other deletions are saved before they are answered."""
        if self.gate.is_full(_DELETIONS):
            await self.deletions.save(background)
            self.gate.clear_full(_DELETIONS)

    def settle(self) -> None:
        """Write everything and make it durable, now and in this thread.

        Raises:
            StoreReadOnly: the disk failed.
            StorageError: something could not be written.
        """
        errors: list[StorageError] = []
        for step in (self._settle_log, self._settle_deletions, self._settle_offsets):
            try:
                step()
            except StorageError as error:
                errors.append(error)
        if errors:
            raise next((each for each in errors if isinstance(each, StoreReadOnly)), errors[0])

    def _settle_log(self) -> None:
        timestamp, end = self.dispatcher.last_timestamp, self.dispatcher.dispatched_offset
        self.flusher.flush()
        while not self._write_slice(_QUEUES_PER_STEP):  # queues of deleted topics may be in the row too
            pass
        try:
            self._settle_rest(timestamp)
        except DiskFull:
            self._run_sync(self._take_sync())
            self.queues.files.unsynced.done()
            self.retention.queued_end = end
            raise
        self.retention.queued_end = end

    def _settle_rest(self, timestamp: int) -> None:
        self._begin_index()
        while not self._write_index(_INDEX_PAGES_PER_STEP):
            pass
        checkpoint = self._next_checkpoint(timestamp)
        if self._is_news(checkpoint):
            job = self._take_job(checkpoint)
            job.ends.add(len(self.queues) + 1)
            self._run_job(job)
            done(job, self.queues.files, self.index)

    def _settle_deletions(self) -> None:
        try:
            self.deletions.save_now()
        except OSError as error:
            self.gate.fail(_DELETIONS, f"cannot save {self.deletions.path}", error)
        self.gate.clear_full(_DELETIONS)

    def _settle_offsets(self) -> None:
        if (snapshot := self.offsets.snapshot()) is not None:
            self._save_offsets(snapshot)


async def _in_slices(work: Callable[[int], bool], step: int = _QUEUES_PER_STEP) -> None:
    """Call ``work`` with a few queues (or pages) at a time until it says that it is done; others have their turns."""
    async for _ in in_turns(iter(partial(work, step), True)):
        pass
