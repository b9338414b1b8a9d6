"""Background task of the conversion of queues between SimpleCQ and BatchCQ.

The store builds, compares and replaces the queues (:mod:`raptormq.storage.conversion.manager`). This module updates the
topic table, from which producers and consumers read the type. :mod:`raptormq.broker.handlers.conversions` handles the
requests.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import ChangeBarrier, TopicTable
from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE, SIMPLE_CQ
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

_PAUSE_S = 1.0
"""Pause in seconds before a failed step is retried, for example on a full disk."""


class Conversions:
    """Runs requested conversions. Implements :class:`~raptormq.storage.conversion.job.QueueTypes`."""

    def __init__(self, store: MessageStore, topics: TopicTable, barrier: ChangeBarrier) -> None:
        self.converter = store.converter
        self._store = store
        self._topics = topics
        self._barrier = barrier
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        topics.listen(self._topic_changed)

    def start(self) -> None:
        """Start the task. Resume conversions of an earlier run, and correct the queue types in a restored or outdated
        topic table. The table of a replicated broker is that of its group, and is not corrected.
        """
        if self._store.replica is None:
            self._correct_types()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _correct_types(self) -> None:
        for topic in self._store.topics():
            self.set(topic, is_batch=self._store.is_batch_topic(topic))
        for topic, is_batch in self.converter.types().items():
            if topic in self._topics.configs:
                self.set(topic, is_batch=is_batch)
            elif self._store.queue_ids(topic):  # the topic table was lost: use the type of the existing queues
                self.converter.drop_topic(topic)
            else:  # the topic was deleted before a crash, which prevented the update of the converter's file
                self._store.delete_topic(topic)

    def role_changed(self, *, leads: bool) -> None:
        """No effect: the queues of a replicated broker are not converted."""

    async def stop(self) -> None:
        """Stop the task. A conversion in progress resumes at the next start."""
        if self._task is not None:
            task, self._task = self._task, None
            await cancel_and_wait(task)

    async def order(self, topic: str, *, to_batch: bool) -> None:
        """Start the conversion of a topic. For errors see :meth:`QueueConverter.order`."""
        try:
            await self.converter.order(topic, self, to_batch=to_batch)
        finally:
            self._wake.set()  # also after an error: the request may be in the file although its sync failed

    def set(self, topic: str, *, is_batch: bool) -> None:
        """See :class:`raptormq.storage.conversion.job.QueueTypes`."""
        config = self._topics.get(topic)
        if config is not None and config.is_batch is not is_batch:
            attributes = config.attributes | {QUEUE_TYPE: BATCH_CQ if is_batch else SIMPLE_CQ}
            self._topics.put(replace(config, attributes=attributes))

    async def saved(self) -> None:
        """See :class:`raptormq.storage.conversion.job.QueueTypes`."""
        await self._barrier.begin().passed()  # the queues of a replicated broker are not converted

    def _topic_changed(self, topic: str) -> None:
        if topic not in self._topics.configs:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            is_well = True
            topic = None
            try:
                await self.converter.save_ledger()
                # Chosen after save_ledger(), because the conversion may be stopped or the topic deleted during that
                # call.
                topic = self.converter.next_topic()
                if topic is not None:
                    is_well = await self.converter.convert(topic, self)
            except StorageError as error:
                logger.error("%s", error)
                is_well = False
            except Exception as error:
                logger.exception("the conversion of topic %s failed", topic)
                is_well = False
                if topic is not None:
                    await self._record_failure(topic, error)
            if not is_well:
                await asyncio.sleep(_PAUSE_S)
            elif self.converter.next_topic() is None:
                await self._wake.wait()

    async def _record_failure(self, topic: str, error: Exception) -> None:
        try:
            await self.converter.fail(topic, self, f"{type(error).__name__}: {error}")
        except Exception:  # the conversion is tried again, and the other conversions go on
            logger.exception("the failure of the conversion of topic %s cannot be recorded", topic)
