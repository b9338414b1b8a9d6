"""Periodic work of a store: writes queue tails, makes checkpoints, saves offsets, deletes old segments, preallocates
the next segment and evicts pages.

Long work is sliced or runs in a thread, so that it never blocks the event loop for more than about a millisecond.

See also: :mod:`~raptormq.storage.background` has the timers and threads,
:mod:`~raptormq.storage.maintenance.checkpointer` makes the checkpoints.
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
from raptormq.storage.background import Background, Executor, cooperatively
from raptormq.storage.fs import TopicLedger, with_pages
from raptormq.storage.index import remove_set_aside
from raptormq.storage.maintenance.checkpointer import Checkpointer
from raptormq.storage.maintenance.page_eviction import PageEvictor
from raptormq.storage.maintenance.retention import Retention
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import ConsumeQueue, Snapshot

_PAGES_INTERVAL_MS = 500
_OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The periodic work of one store."""

    parts: StoreParts
    retention: Retention
    checkpointer: Checkpointer
    offsets_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serializes saves of the consumer offsets."""

    def start(self, background: Background, on_released: Callable[[int], object]) -> None:
        """Start the timers. ``on_released`` is called with the number of bytes whose pages were evicted."""
        config = self.parts.config

        async def log() -> None:
            self.parts.log.release_mappings()
            if self.parts.log.needs_preallocation():
                await background.run(self.parts.log.preallocate)

        releaser = PageEvictor(
            self.parts.filesystem,
            self.parts.log,
            self.parts.dispatcher,
            self.parts.queues,
            self.parts.consumer_offsets,
            config.kept_page_bytes,
        )

        async def pages() -> None:
            if released := await releaser.run(background):
                on_released(released)

        async def deleted() -> None:
            if self.parts.queues.files.deleted:
                await background.run(self._remove_deleted)

        background.every(config.maintenance_interval_ms, log)
        background.every(config.maintenance_interval_ms, partial(self.checkpointer.write_index_entries, background))
        background.every(config.maintenance_interval_ms, deleted)
        background.every(config.queue_flush_interval_ms, self.checkpointer.tail_writes().run_cooperatively)
        background.every(_PAGES_INTERVAL_MS, pages)
        background.every(config.checkpoint_interval_ms, partial(self.checkpointer.checkpoint, background))
        background.every(config.offsets_interval_ms, partial(self.save_offsets, background))
        background.every(config.offsets_interval_ms, partial(self.save_ledgers, background))
        background.every(config.retention_interval_ms, partial(self.clean, background, any_hour=False))
        background.every(config.full_retry_interval_ms, partial(self.retry_when_full, background))

    async def retry_when_full(self, background: Executor) -> None:
        """While the write gate waits for disk space, descriptors or memory, retry all writes that may have failed for
        that reason. Expired segments are deleted at any hour.
        """
        if not self.parts.gate.is_paused:
            return
        wants_disk = self.parts.gate.is_disk_full
        if not wants_disk:
            self.parts.queues.files.close_half()
        with contextlib.suppress(StorageError):  # the gate reports the error, here and below
            await self.checkpointer.checkpoint(background)
        for save in (self.save_offsets, self.save_ledgers):
            with contextlib.suppress(StorageError):
                await save(background)
        if wants_disk:
            await self.clean(background, any_hour=True, expired_only=True)
        if self.parts.log.needs_preallocation():
            await background.run(self.parts.log.preallocate)

    async def clean(self, background: Executor, *, any_hour: bool, expired_only: bool = False) -> None:
        """Apply retention; with ``any_hour`` also outside the configured hours, with ``expired_only`` expired segments
        only.
        """
        if (remove := self.retention.run(self.parts.clock(), any_hour=any_hour, expired_only=expired_only)) is not None:
            await background.run(remove)
            if self.parts.index is not None:
                log_min = self.parts.log.min_offset
                await background.run(self._remove, self.parts.index.drop_before(log_min))
                await background.run(remove_set_aside, self.parts.filesystem, self.parts.paths.key_index, log_min)
        async for queue in cooperatively(self.retention.unchecked_queues):
            await with_pages(partial(self._find_expired_files, queue), background, self.parts.filesystem)
        if self.retention.expired_files:
            await self._remove_expired_files(background)

    async def clean_now(self, background: Executor, *, any_hour: bool) -> None:
        """Make a checkpoint and apply retention. Without the checkpoint, retention would keep the newest segments."""
        with contextlib.suppress(StorageError):  # the gate reports the error
            await self.checkpointer.checkpoint(background, force=True)
        await self.clean(background, any_hour=any_hour)

    def _find_expired_files(self, queue: ConsumeQueue, wait: bool) -> None:
        self.retention.find_expired_files(queue, wait=wait)

    async def _remove_expired_files(self, background: Executor) -> None:
        # The list is taken before the checkpoint. The checkpoint may not record the new beginnings of queues whose
        # files are found while it runs.
        dead, self.retention.expired_files = deque(self.retention.expired_files), []
        try:
            with contextlib.suppress(StorageError):  # the gate reports the error; a full disk must not keep these files
                await self.checkpointer.checkpoint(background, force=True)
            async for each in cooperatively(list(dead)):
                self.retention.remove_expired_files(each)
                dead.popleft()
        finally:
            self.retention.expired_files[:0] = dead  # the next run tries again

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self.parts.filesystem.remove(path)

    def _remove_deleted(self) -> None:
        try:
            self.parts.queues.files.deleted.remove()
        except OSError as error:
            raise StorageError(f"cannot remove deleted files: {error.strerror or error}") from error

    async def save_offsets(self, background: Executor) -> None:
        """Save the consumer offsets if they have changed. The log is flushed first. A consumer offset means that all
        earlier messages are handled, so a power cut must not lose the log records written for them (retries, pop
        checkpoints, transaction decisions).

        Raises:
            StorageError: the offsets could not be written.
        """
        async with self.offsets_lock:
            if (snapshot := self.parts.consumer_offsets.snapshot()) is not None:
                await self.parts.flusher.wait_flushed(self.parts.log.end_offset)
                await background.run(self._save_offsets, snapshot)

    def _save_offsets(self, snapshot: Snapshot) -> None:
        try:
            self.parts.consumer_offsets.save_snapshot(snapshot)
        except OSError as error:
            self.parts.gate.fail(_OFFSETS, f"cannot save the consumer offsets in {self.parts.paths.config}", error)
        self.parts.gate.clear_full(_OFFSETS)

    async def save_ledgers(self, background: Executor) -> None:
        """Save the ledgers. After the return no crash restores deleted topics or their conversions.

        Raises:
            StorageError: a ledger could not be written; the timer tries again.
        """
        if not self.parts.deletions.is_saved:
            # Otherwise a power cut may leave tombstones beyond the end of the log, and another program may append
            # records below them.
            await self.parts.flusher.wait_flushed(max(self.parts.deletions.entries.values(), default=0))
            self.parts.deletions.clamp(self.parts.log.min_offset, self.parts.log.end_offset)
        for ledger in (
            self.parts.deletions,
            self.parts.conversions,
        ):  # deletions first, because a deletion overrides a conversion
            await ledger.save(background)
            self.parts.gate.clear_full(ledger.key)

    def flush_all(self) -> None:
        """Write everything and make it durable, in this thread.

        Raises:
            StoreReadOnly: the disk failed.
            StorageError: something could not be written.
        """
        errors: list[StorageError] = []
        ledgers = [partial(self._flush_ledger, each) for each in (self.parts.deletions, self.parts.conversions)]
        steps: list[Callable[[], None]] = [self.checkpointer.checkpoint_blocking, *ledgers, self._flush_offsets]
        for step in steps:
            try:
                step()
            except StorageError as error:
                errors.append(error)
        if errors:
            raise next((each for each in errors if isinstance(each, StoreReadOnly)), errors[0])

    def _flush_ledger(self, ledger: TopicLedger[Any]) -> None:
        try:
            ledger.save_now()
        except OSError as error:
            self.parts.gate.fail(ledger.key, f"cannot save {ledger.path}", error)
        self.parts.gate.clear_full(ledger.key)

    def _flush_offsets(self) -> None:
        if (snapshot := self.parts.consumer_offsets.snapshot()) is not None:
            self.parts.flusher.flush()
            self._save_offsets(snapshot)
