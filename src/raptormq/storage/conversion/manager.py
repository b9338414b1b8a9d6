"""Runs the conversions of a store, one after another in the background.

See also: :mod:`~raptormq.storage.conversion.job` does the work, :mod:`~raptormq.storage.queue.topic_state` persists
the state for the next start. The broker's ``conversions`` decides which topics may be converted.
"""

from __future__ import annotations

import asyncio

from raptormq.errors import ConversionRefused, StorageError, StoreDamaged
from raptormq.logs import get_logger
from raptormq.storage.background import Executor
from raptormq.storage.conversion.job import (
    ConversionJob,
    ConversionProgress,
    ConversionRunner,
    QueueTypes,
    StopRequested,
)
from raptormq.storage.conversion.rebuild import QueueConversion
from raptormq.storage.maintenance import Checkpointer
from raptormq.storage.parts import StoreParts
from raptormq.storage.queue import BUILDING, STOPPED, SWITCHED, ConversionEntry
from raptormq.storage.recovery import RebuildRequired, load_queue, queue_ids

logger = get_logger(__name__)


class QueueConverter:
    """Converts topics between the queue types. Must be used on the thread of the store."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._table = parts.queues
        self._ledger = parts.conversions
        self._jobs: dict[str, ConversionJob] = {}
        """One job per entry of the ledger."""
        self._ended: dict[str, ConversionProgress] = {}
        self._order_lock = asyncio.Lock()
        self._runner: ConversionRunner | None = None

    # --- start and stop ---

    def prepare(self) -> None:
        """Set the types of the topics in the ledger. Called after the declared and deleted topics are known and before
        the queues are loaded.

        Raises:
            StoreDamaged: the ledger cannot be read.
        """
        self._ledger.load()
        self._table.conversions = self._ledger.entries
        for topic, entry in list(self._ledger.entries.items()):
            if self._is_overruled(entry):
                logger.warning("the conversion of topic %s is dropped: the topic was deleted meanwhile", topic)
                del self._ledger.entries[topic]
                self._ledger.mark_changed()
            else:
                self._table.set_type(topic, is_batch=entry.is_batch)

    def _is_overruled(self, entry: ConversionEntry) -> bool:
        """Return whether ``entry`` belongs to a topic that was deleted. A crash may leave such an entry. Besides the
        tombstone, the topic table reveals it: the table never declares BatchCQ for a topic whose SimpleCQ queues are in
        use, so a later topic of the same name has BatchCQ queues.
        """
        tombstone_offset = self._table.topic_tombstones.get(entry.topic, 0)
        was_deleted = entry.tombstone_offset is not None and tombstone_offset > entry.tombstone_offset
        return was_deleted or (entry.topic in self._table.batch_topics and not entry.is_batch)

    def load(self, replay_from: int | None) -> None:
        """Load the new queues after the recovery, without items of records from ``replay_from`` on."""
        for topic, entry in self._ledger.entries.items():
            job = self._jobs[topic] = self._job(entry)
            if entry.state == SWITCHED:
                continue
            folder = f"{self._table.files.formats[entry.to_batch].folder}/{topic}"
            for queue_id in queue_ids(self._parts.filesystem, folder):
                queue = job.conversion.make(queue_id)
                try:
                    load_queue(self._table, queue, replay_from, rebuild=True)
                except (RebuildRequired, StoreDamaged):
                    self._table.reset(queue)

    def _job(self, entry: ConversionEntry) -> ConversionJob:
        conversion = QueueConversion(entry.topic, self._parts.log, self._table, to_batch=entry.to_batch)
        phase = "stopped" if entry.state == STOPPED else "waiting"
        return ConversionJob(entry, conversion, ConversionProgress(entry.to_batch, phase, offset=entry.offset))

    def start(self, background: Executor, checkpointer: Checkpointer) -> None:
        """Set the executor and the checkpointer. Required before any method that is awaited."""
        self._runner = ConversionRunner(self._parts, background, checkpointer)

    # --- starting and stopping ---

    def types(self) -> dict[str, bool]:
        """Return the topics under conversion and whether their queues are of type BatchCQ now."""
        return {topic: entry.is_batch for topic, entry in self._ledger.entries.items()}

    def next_topic(self) -> str | None:
        """Return the next topic to work on, None when there is none."""
        return next((topic for topic, entry in self._ledger.entries.items() if entry.state != STOPPED), None)

    async def order(self, topic: str, types: QueueTypes, *, to_batch: bool) -> None:
        """Start or resume the conversion of ``topic``, which must exist. Has no effect if the topic already has the
        type.

        If the old type is ordered for a stopped conversion, its new queues are discarded.

        Raises:
            ConversionRefused: the topic is being converted to the other type.
            StorageError: the ledger could not be saved; the conversion is not started.
        """
        async with self._order_lock:
            await self._order(topic, types, to_batch)

    async def _order(self, topic: str, types: QueueTypes, to_batch: bool) -> None:
        entry = self._ledger.entries.get(topic)
        is_new = entry is None
        self._ended.pop(topic, None)
        if entry is None:
            if (topic in self._table.batch_topics) is to_batch:
                return
            tombstone_offset = self._table.topic_tombstones.get(topic, 0)
            entry = self._ledger.entries[topic] = ConversionEntry(topic, to_batch, tombstone_offset=tombstone_offset)
            self._jobs[topic] = self._job(entry)
        elif entry.to_batch is to_batch:
            job = self._jobs[topic]
            job.stop_requested = False
            if job.progress.phase in ("stopped", "failed"):
                job.progress.phase = "waiting"
            if entry.state != STOPPED:
                return
            entry.state = BUILDING
        elif entry.state == STOPPED:
            await self._abandon(entry, types)
        else:
            raise ConversionRefused(f"topic {topic} is being converted to the other type; stop that conversion first")
        try:
            await self._save()
        except StorageError:
            if is_new:
                self.drop_topic(topic)
            else:
                self._pause(topic)
            raise

    async def _abandon(self, entry: ConversionEntry, types: QueueTypes) -> None:
        """Discard the new queues after the ledger no longer refers to them. A switch to SimpleCQ that is being stopped
        may already have changed the topic table.
        """
        assert self._runner is not None
        topic = entry.topic
        job = self._jobs[topic]
        types.set(topic, is_batch=entry.is_batch)
        await types.saved()  # without an entry a start uses the topic table
        if job.is_topic_deleted:
            return
        del self._ledger.entries[topic]
        try:
            await self._save()
        except (StorageError, asyncio.CancelledError):
            if not job.is_topic_deleted:
                self._ledger.entries[topic] = entry
                self._ledger.mark_changed()
            raise
        if not job.is_topic_deleted:
            del self._jobs[topic]
            self._runner.discard_new_queues(job)

    async def stop(self, topic: str) -> None:
        """Stop a conversion. A conversion that has switched is not stopped: it is always completed.

        Raises:
            StorageError: the stop could not be saved.
        """
        if self._pause(topic):
            await self._save()

    def _pause(self, topic: str) -> bool:
        """Stop a conversion that has not switched; return False when there is none."""
        entry = self._ledger.entries.get(topic)
        if entry is None or entry.state != BUILDING:
            return False
        job = self._jobs[topic]
        entry.state, job.stop_requested = STOPPED, True
        if job.progress.phase == "waiting":
            job.progress.phase = "stopped"
        return True

    def drop_topic(self, topic: str) -> None:
        """Drop a conversion whose topic is deleted with all its files, or whose entry could not be saved.
        The ledger has to be saved afterwards (:meth:`save_ledger`).
        """
        self._ended.pop(topic, None)
        job = self._jobs.pop(topic, None)
        if job is not None:
            self._parts.dispatcher.detach(job.conversion)
            job.stop_requested = job.is_topic_deleted = True
            if not job.conversion.is_switched:
                job.conversion.discard()
            self._ledger.entries.pop(topic, None)  # a concurrent order may have removed the entry
            self._ledger.mark_changed()

    def progress(self, topic: str) -> ConversionProgress | None:
        """Return the state of the current or last conversion of ``topic``; None if there was none since the start."""
        job = self._jobs.get(topic)
        if job is None:
            return self._ended.get(topic)
        progress = job.progress
        progress.done, progress.total = job.conversion.progress()
        if progress.phase == "comparing" and job.comparison is not None:
            progress.done = job.comparison.messages
        return progress

    # --- work ---

    async def save_ledger(self) -> None:
        """Write the ledger if a topic has been dropped from it.

        Raises:
            StorageError: the ledger could not be written.
        """
        assert self._runner is not None
        await self._ledger.save(self._runner.background)

    async def convert(self, topic: str, types: QueueTypes) -> bool:
        """Run the conversion of ``topic``. Return False if the call has to be repeated later.

        May be cancelled at any point before the store is closed; the next start resumes the conversion.
        """
        assert self._runner is not None
        job = self._jobs[topic]
        try:
            if job.entry.state == STOPPED:
                raise StopRequested
            if job.entry.state == BUILDING:
                await self._runner.build(job)
                await self._runner.switch(job, types)
            await self._runner.finish(job, types)
        except StopRequested:
            await self._suspend(job, types, "stopped", "")
        except ConversionRefused as error:
            await self._reject(job, types, str(error))
        except (StorageError, OSError) as error:
            prefix = "the new queues cannot be written: "
            remark = f"{prefix}{error.strerror}" if isinstance(error, OSError) else str(error)
            await self._suspend(job, types, "failed", remark)
            return job.entry.state != SWITCHED
        else:
            await self._complete(job, "done", "")
        return True

    async def fail(self, topic: str, types: QueueTypes, remark: str) -> None:
        """Suspend a conversion whose :meth:`convert` has raised an unexpected error."""
        job = self._jobs.get(topic)
        if job is not None:
            await self._suspend(job, types, "failed", remark)

    async def _reject(self, job: ConversionJob, types: QueueTypes, remark: str) -> None:
        """End a conversion that is impossible, and discard the new queues."""
        logger.warning("topic %s is not converted: %s", job.entry.topic, remark)
        assert self._runner is not None
        entry = job.entry
        types.set(entry.topic, is_batch=entry.is_batch)
        await types.saved()  # without an entry a start uses the topic table
        async with self._order_lock:  # a concurrent order may be abandoning the conversion
            if self._jobs.get(entry.topic) is job:
                self._runner.discard_new_queues(job)  # a start that still finds the entry restarts the conversion
                await self._complete(job, "refused", remark)

    async def _suspend(self, job: ConversionJob, types: QueueTypes, phase: str, remark: str) -> None:
        """Stop a conversion that has not switched; the new queues are kept."""
        entry = job.entry
        if self._jobs.get(entry.topic) is not job:
            return
        job.progress.phase, job.progress.remark = phase, remark
        if remark:
            logger.error("the conversion of topic %s has stopped: %s", entry.topic, remark)
        if entry.state != SWITCHED:
            entry.state = STOPPED
            self._parts.dispatcher.detach(job.conversion)
            types.set(entry.topic, is_batch=entry.is_batch)
            await self._save_or_warn()

    async def _complete(self, job: ConversionJob, phase: str, remark: str) -> None:
        """Remove a job, then publish its end, because a reader of the state may stop the broker immediately."""
        topic = job.entry.topic
        if self._jobs.get(topic) is not job:
            return
        del self._ledger.entries[topic]
        await self._save_or_warn()
        progress = self.progress(topic)
        if (
            self._jobs.get(topic) is job and progress is not None
        ):  # unless the topic was deleted or ordered again meanwhile
            progress.phase, progress.remark = phase, remark
            progress.done = progress.total if phase == "done" else progress.done
            self._ended[topic] = progress
            del self._jobs[topic]

    async def _save(self) -> None:
        assert self._runner is not None
        await self._ledger.rewrite(self._runner.background)

    async def _save_or_warn(self) -> None:
        try:
            await self._save()
        except StorageError as error:
            logger.error("%s", error)
