"""One conversion of the queues of a topic. A conversion that was stopped continues with the step that it had reached::

    build     copy until the new queues have caught up with the old ones, compare, make everything durable
    switch    write the switch to the ledger, then replace the queues in memory within one event loop iteration
    finish    set the new type in the topic table, remove the old files

A conversion to SimpleCQ changes the topic table before the switch, so that no more batches arrive. A conversion may be
interrupted at any point. The next start opens the new queues if the ledger says ``switched``, otherwise the old ones.
Both are complete at that point.

See also: :mod:`~raptormq.storage.conversion.manager` runs the steps, :mod:`~raptormq.storage.queue.topic_state` keeps
the ledger.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

from raptormq.errors import ConversionRefused, StorageError
from raptormq.logs import get_logger
from raptormq.storage.background import Executor, cooperatively
from raptormq.storage.conversion.rebuild import QueueConversion
from raptormq.storage.conversion.verify import Checksums, QueueComparison
from raptormq.storage.fs import MAX_NOWAIT_ATTEMPTS, PagesMissing, load_pages
from raptormq.storage.maintenance import Checkpointer
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import BUILDING, SWITCHED, ConsumeQueue, ConversionEntry

logger = get_logger(__name__)

_SLICE_S = 0.002
"""Maximum duration of the work between two pauses, in seconds."""
_PAUSE_S = 0.002
"""Length in seconds of a pause, in which other tasks run."""


class QueueTypes(Protocol):
    """The queue types in the broker's topic table."""

    def set(self, topic: str, *, is_batch: bool) -> None:
        """Set the queue type of ``topic``. Producers see the type at once; the table's file is written later. A
        deleted topic is ignored."""

    async def saved(self) -> None:
        """Wait until all types set so far are durable.

        Raises:
            StorageError: the types could not be saved.
        """


class StopRequested(Exception):
    """Raised to end a conversion that was cancelled or whose topic was deleted. It is not an error."""


class _Step(Protocol):
    def __call__(self, *, wait: bool) -> bool:
        """Do one slice of work; return True when the work is complete."""


@dataclass(slots=True)
class ConversionProgress:
    """State of a conversion."""

    to_batch: bool
    phase: str = "waiting"
    """``waiting``, ``copying``, ``comparing``, ``switching``; ``stopped`` and ``failed`` can be resumed; ``done`` and
    ``refused`` are final.
    """
    remark: str = ""
    done: int = 0
    """Messages copied or compared."""
    total: int = 0
    offset: int = 0
    """Log offset of the switch."""
    checksums: Checksums | None = None


@dataclass(slots=True)
class ConversionJob:
    """The state of one conversion: its ledger entry, its progress and its queues."""

    entry: ConversionEntry
    conversion: QueueConversion
    progress: ConversionProgress
    comparison: QueueComparison | None = None
    stop_requested: bool = False
    is_topic_deleted: bool = False
    """Whether the topic was deleted."""
    old_queues: list[ConsumeQueue] = field(default_factory=list)
    """Queues of the old type whose files still exist."""
    switched_at: int = 0
    """End of the log at the switch."""


@dataclass(frozen=True, slots=True)
class ConversionRunner:
    """Runs the steps of a conversion."""

    parts: StoreParts
    background: Executor
    checkpointer: Checkpointer

    async def build(self, job: ConversionJob) -> None:
        """Copy until the new queues have caught up with the old ones, then compare them.

        Raises:
            StopRequested, ConversionRefused, StorageError, OSError: the new queues are kept as they are.
        """
        conversion, progress = job.conversion, job.progress
        conversion.begin()
        self.parts.dispatcher.detach(conversion)
        self.parts.dispatcher.attach(conversion)
        progress.phase, progress.remark = "copying", ""
        await self._run_in_slices(job, conversion.copy)
        comparison = job.comparison = QueueComparison(conversion, self.parts.queues)
        while not comparison.is_complete:
            progress.phase = "comparing"
            await self._run_in_slices(job, comparison.compare)
            await self._run_in_slices(job, conversion.copy)
        progress.checksums = comparison.checksums()
        logger.info(
            "topic %s: the new queues equal the old ones, checksum %s", job.entry.topic, progress.checksums.after
        )

    async def switch(self, job: ConversionJob, types: QueueTypes) -> None:
        """Replace the queues of the topic by the new queues.

        Raises:
            StopRequested, ConversionRefused, StorageError, OSError: the old queues are still those of the topic.
        """
        entry, conversion = job.entry, job.conversion
        job.progress.phase = "switching"
        if not entry.to_batch:
            types.set(entry.topic, is_batch=False)
            await types.saved()
            await self._wait_dispatched(self.parts.log.end_offset, job)
        await self._run_in_slices(job, conversion.copy)
        offset = self.parts.dispatcher.dispatched_offset
        await self.checkpointer.checkpoint(self.background, force=True)
        if job.stop_requested:
            raise StopRequested
        entry.state, entry.offset = SWITCHED, offset
        try:
            await self.parts.conversions.rewrite(self.background)
            if job.is_topic_deleted:
                raise StopRequested
            if not conversion.has_caught_up():
                raise ConversionRefused(conversion.refusal or "the new queues lag behind the old ones")
        except (StorageError, ConversionRefused):
            # The file may say SWITCHED. The next start then replays the log from ``offset``.
            entry.state = BUILDING
            raise
        job.old_queues = conversion.switch()
        job.switched_at = self.parts.log.end_offset
        job.progress.offset = offset
        types.set(entry.topic, is_batch=entry.to_batch)
        logger.info("topic %s: switched at offset %d of the log", entry.topic, offset)

    async def finish(self, job: ConversionJob, types: QueueTypes) -> None:
        """Remove the old queues after the switch.

        Raises:
            StopRequested: the topic was deleted.
            StorageError, OSError: something could not be saved or removed; call again.
        """
        job.progress.phase = "switching"
        await self.parts.conversions.rewrite(
            self.background
        )  # before the old queues are removed, because the backup of the ledger still refers to them
        if job.is_topic_deleted:  # another topic may have its name
            raise StopRequested
        types.set(job.entry.topic, is_batch=job.entry.to_batch)
        await types.saved()
        await self._remove_old_queues(job)
        await self._wait_dispatched(job.switched_at)
        self.parts.dispatcher.detach(job.conversion)
        await self.checkpointer.checkpoint(self.background, force=True)

    async def _remove_old_queues(self, job: ConversionJob) -> None:
        """Close the files of the old queues and remove their folder, in a thread because the disk may be slow.

        Raises:
            OSError: something could not be removed.
        """
        files = self.parts.queues.files
        async for queue in cooperatively(job.old_queues):
            if job.is_topic_deleted:  # another topic may have the names of these files
                return
            files.close_queue(queue)
        job.old_queues.clear()
        if not job.is_topic_deleted:
            files.move_to_deleted(job.entry.topic, is_batch=not job.entry.to_batch)
            await self.background.run(files.deleted.remove)

    def discard_new_queues(self, job: ConversionJob) -> None:
        """Discard the new queues and move their folder to the deleted folders. Both happen in one event loop iteration,
        because a topic that is created again may have files of the same names. A thread removes the folder later.

        Raises:
            OSError: the folder could be neither renamed nor removed.
        """
        self.parts.dispatcher.detach(job.conversion)
        job.conversion.discard()
        self.parts.queues.files.move_to_deleted(job.entry.topic, is_batch=job.entry.to_batch)

    async def _run_in_slices(self, job: ConversionJob, step: _Step) -> None:
        """Call ``step`` until it returns True, with a pause every 2 ms. A thread loads missing pages."""
        misses = 0
        while not job.stop_requested:
            until = time.monotonic() + _SLICE_S
            try:
                while not step(wait=misses >= MAX_NOWAIT_ATTEMPTS):
                    misses = 0
                    if time.monotonic() > until:
                        break
                else:
                    return
            except PagesMissing as missing:
                misses += 1
                await self.background.run(load_pages, self.parts.filesystem, missing.extents)
            await asyncio.sleep(_PAUSE_S)
        raise StopRequested

    async def _wait_dispatched(self, offset: int, job: ConversionJob | None = None) -> None:
        """Wait until the log below ``offset`` is in the queues, or ``job`` is cancelled."""
        while self.parts.dispatcher.dispatched_offset < offset:
            await asyncio.sleep(_PAUSE_S)
            if job is not None and job.stop_requested:
                raise StopRequested
