"""What a store does beside requests: writes queue tails, makes checkpoints, saves offsets, deletes old segments,
prepares the next one, releases pages.

Neighbours: :mod:`~raptormq.storage.background` has the timers and threads,
:mod:`~raptormq.storage.maintenance.checkpointer` makes the checkpoints. Everything that takes long is cut into slices
or done in a thread, so that the event loop is never held up for more than about a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from raptormq.errors import StorageError, StoreReadOnly
from raptormq.storage.background import Background, Runner, cooperatively
from raptormq.storage.config import StoreConfig
from raptormq.storage.fs import FileSystem, TopicLedger, with_pages
from raptormq.storage.index import KeyIndex, remove_aside
from raptormq.storage.log import CommitLog, WriteGate
from raptormq.storage.maintenance.checkpointer import Checkpointing
from raptormq.storage.maintenance.page_eviction import PageReleaser
from raptormq.storage.maintenance.retention import Retention
from raptormq.storage.queue import ConsumeQueue, ConsumerOffsets, ConversionLedger, DeletionLedger, QueueTable, Snapshot
from raptormq.storage.records import Dispatcher

_PAGES_INTERVAL_MS = 500
_OFFSETS = "offsets"


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
    retention: Retention
    offsets: ConsumerOffsets
    gate: WriteGate
    deletions: DeletionLedger
    conversions: ConversionLedger
    checkpointing: Checkpointing
    one_save: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of the consumer offsets."""

    def start(self, background: Background, on_released: Callable[[int], object]) -> None:
        """Begin with the timers. ``on_released`` is called with the size, in bytes, of pages that were given back."""
        config = self.config

        async def log() -> None:
            self.log.release_mappings()
            if self.log.needs_preallocation():
                await background.run(self.log.preallocate)

        releaser = PageReleaser(
            self.filesystem, self.log, self.dispatcher, self.queues, self.offsets, config.kept_page_bytes
        )

        async def pages() -> None:
            if released := await releaser.run(background):
                on_released(released)

        async def deleted() -> None:
            if self.queues.files.deleted:
                await background.run(self._remove_deleted)

        background.every(config.upkeep_interval_ms, log)
        background.every(config.upkeep_interval_ms, partial(self.checkpointing.write_entries, background))
        background.every(config.upkeep_interval_ms, deleted)
        background.every(config.queue_flush_interval_ms, self.checkpointing.tails().cooperatively)
        background.every(_PAGES_INTERVAL_MS, pages)
        background.every(config.checkpoint_interval_ms, partial(self.checkpointing.make, background))
        background.every(config.offsets_interval_ms, partial(self.save_offsets, background))
        background.every(config.offsets_interval_ms, partial(self.save_ledgers, background))
        background.every(config.retention_interval_ms, partial(self.clean, background, any_hour=False))
        background.every(config.room_interval_ms, partial(self.seek_room, background))

    async def seek_room(self, background: Runner) -> None:
        """While writes are refused for want of something, do again whatever may have found none; what is expired makes
        room at any hour.
        """
        if not self.gate.is_waiting:
            return
        wants_disk = self.gate.is_disk_full
        if not wants_disk:
            self.queues.files.close_half()
        with contextlib.suppress(StorageError):  # the gate tells of it, here and below
            await self.checkpointing.make(background)
        for save in (self.save_offsets, self.save_ledgers):
            with contextlib.suppress(StorageError):
                await save(background)
        if wants_disk:
            await self.clean(background, any_hour=True, spare_young=True)
        if self.log.needs_preallocation():
            await background.run(self.log.preallocate)

    async def clean(self, background: Runner, *, any_hour: bool, spare_young: bool = False) -> None:
        """Delete what the limits say, with ``any_hour`` at other hours than theirs too, with ``spare_young`` only what
        is expired.
        """
        if (remove := self.retention.run(self.clock(), any_hour=any_hour, spare_young=spare_young)) is not None:
            await background.run(remove)
            if self.index is not None:
                log_min = self.log.min_offset
                await background.run(self._remove, self.index.take_before(log_min))
                await background.run(remove_aside, self.filesystem, self.config.paths.key_index, log_min)
        async for queue in cooperatively(self.retention.unvisited):
            await with_pages(partial(self._look_for_dead_files, queue), background, self.filesystem)
        if self.retention.dead_files:
            await self._remove_dead_files(background)

    async def clean_now(self, background: Runner, *, any_hour: bool) -> None:
        """The same because somebody wants it: after a checkpoint, without which the newest segments stay."""
        with contextlib.suppress(StorageError):  # the gate tells of it
            await self.checkpointing.make(background, always=True)
        await self.clean(background, any_hour=any_hour)

    def _look_for_dead_files(self, queue: ConsumeQueue, wait: bool) -> None:
        self.retention.look_for_dead_files(queue, wait=wait)

    async def _remove_dead_files(self, background: Runner) -> None:
        # Taken before the checkpoint: it need not say where queues begin that are looked at while it is made.
        dead, self.retention.dead_files = deque(self.retention.dead_files), []
        try:
            with contextlib.suppress(StorageError):  # the gate tells of it; for want of room these files must not stay
                await self.checkpointing.make(background, always=True)
            async for each in cooperatively(list(dead)):
                self.retention.remove_dead_files(each)
                dead.popleft()
        finally:
            self.retention.dead_files[:0] = dead  # the next run tries again

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.filesystem.remove(path)

    def _remove_deleted(self) -> None:
        try:
            self.queues.files.deleted.remove()
        except OSError as error:
            raise StorageError(f"cannot remove what was deleted: {error.strerror or error}") from error

    async def save_offsets(self, background: Runner) -> None:
        """Write the consumer offsets if they have changed, once the log is durable: they say what is done with, and a
        power cut must not take what was written to the log before that - retries, checkpoints of pops, decisions.

        Raises:
            StorageError: they could not be written.
        """
        async with self.one_save:
            if (snapshot := self.offsets.snapshot()) is not None:
                await self.checkpointing.flusher.wait_flushed(self.log.end_offset)
                await background.run(self._save_offsets, snapshot)

    def _save_offsets(self, snapshot: Snapshot) -> None:
        try:
            self.offsets.save_snapshot(snapshot)
        except OSError as error:
            self.gate.fail(_OFFSETS, f"cannot save the consumer offsets in {self.config.paths.config}", error)
        self.gate.clear_full(_OFFSETS)

    async def save_ledgers(self, background: Runner) -> None:
        """Wait until no crash can bring back topics that were deleted, or their conversions.

        Raises:
            StorageError: something could not be written; the timer tries again.
        """
        if not self.deletions.is_saved:
            # Else a power cut leaves places that are dead behind the end of the log, and another program may fill them.
            await self.checkpointing.flusher.wait_flushed(max(self.deletions.entries.values(), default=0))
            self.deletions.fit(self.log.min_offset, self.log.end_offset)
        for ledger in (self.deletions, self.conversions):  # in this order: a deletion overrules a conversion
            await ledger.save(background)
            self.gate.clear_full(ledger.key)

    def settle(self) -> None:
        """Write everything and make it durable, now and in this thread.

        Raises:
            StoreReadOnly: the disk failed.
            StorageError: something could not be written.
        """
        errors: list[StorageError] = []
        ledgers = [partial(self._settle_ledger, each) for each in (self.deletions, self.conversions)]
        steps: list[Callable[[], None]] = [self.checkpointing.make_now, *ledgers, self._settle_offsets]
        for step in steps:
            try:
                step()
            except StorageError as error:
                errors.append(error)
        if errors:
            raise next((each for each in errors if isinstance(each, StoreReadOnly)), errors[0])

    def _settle_ledger(self, ledger: TopicLedger[Any]) -> None:
        try:
            ledger.save_now()
        except OSError as error:
            self.gate.fail(ledger.key, f"cannot save {ledger.path}", error)
        self.gate.clear_full(ledger.key)

    def _settle_offsets(self) -> None:
        if (snapshot := self.offsets.snapshot()) is not None:
            self.checkpointing.flusher.flush()
            self._save_offsets(snapshot)
