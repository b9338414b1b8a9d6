"""Stores the progress of a group: every few seconds, when a queue is given up, and on stop.

Neighbours: `process_queue` knows how far a queue is, `offsets` tells the broker. Source: RocketMQ
`RemoteBrokerOffsetStore`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from raptormq.client.background import background, cancel_all
from raptormq.client.commit_order import commit_in_order
from raptormq.client.instance import ClientInstance
from raptormq.client.local_offsets import LocalOffsets
from raptormq.client.queue_broker import at_broker
from raptormq.client.queue_reader import QueueReader
from raptormq.protocol.message import MessageQueue

log = logging.getLogger(__name__)


class Commits:
    """The committed offsets of one consumer's queues."""

    def __init__(
        self, instance: ClientInstance, group: str, interval: float, local: LocalOffsets | None = None
    ) -> None:
        self._instance = instance
        self._local = local
        self._group = group
        self._interval = interval
        self._committed: dict[MessageQueue, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, readers: Callable[[], Iterable[QueueReader]]) -> None:
        """Commit what `readers()` have finished, every `interval` seconds."""
        self._task = background(self._run(readers), f"commits of {self._group}")

    async def stop(self) -> None:
        """Stop committing by itself."""
        if self._task is not None:
            await cancel_all([self._task])

    async def commit(self, readers: Iterable[QueueReader]) -> None:
        """Commit what has changed; a failure is logged, and the next time covers it."""
        changed = {
            reader.queue: reader.progress.commit_offset
            for reader in readers
            if reader.progress is not None and self._committed.get(reader.queue) != reader.progress.commit_offset
        }
        failures = await commit_in_order(changed, self._commit_one)
        for queue, error in failures.items():
            log.warning("progress of group %s in %s is not stored yet: %s", self._group, queue, error)
        self._committed |= {queue: offset for queue, offset in changed.items() if queue not in failures}

    def forget(self, queue: MessageQueue) -> None:
        """Forget what was committed: another member goes on."""
        self._committed.pop(queue, None)

    async def _run(self, readers: Callable[[], Iterable[QueueReader]]) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.commit(readers())

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        if self._local is not None:
            await self._local.put(queue, offset)
            return
        offsets = self._instance.offsets
        await at_broker(
            self._instance.routes, queue, lambda address: offsets.commit(address, self._group, queue, offset)
        )
