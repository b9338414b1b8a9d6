"""Commits the offsets of a group periodically, when a queue is revoked, and on stop.

`OffsetCommitter` commits the offsets of one consumer.

`commit_in_order` defines the order: one queue of each topic first, then the other queues of the broker, a bounded
number at a time; brokers in parallel. Apache RocketMQ loses one of two first commits of a group that arrive at the same
time: each creates the table of the topic's offsets, and the later table replaces the earlier one. After the first
response the table exists.

See also: `consumer.process_queue` computes the offset of a queue, `cluster.broker_call` sends it to the broker;
`consumer.pull_consumer` commits in the same order. Source: RocketMQ `RemoteBrokerOffsetStore`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import ClientInstance, call_broker
from raptormq.client.consumer.local_offsets import LocalOffsets
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.errors import NoRoute, RaptorMQError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)


T = TypeVar("T")
AT_A_TIME = 64
"""Maximum number of concurrent commits per broker. Sequential commits would take minutes for 10,000 queues of a busy
broker."""


async def commit_in_order(
    process_queue: Mapping[MessageQueue, T], commit: Callable[[MessageQueue, T], Awaitable[None]]
) -> dict[MessageQueue, RaptorMQError]:
    """Call `commit(queue, value)` for every queue. Return the failures by queue.

    After a connection error, the other queues of the broker get the same failure without another attempt.
    """
    by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in process_queue:
        by_broker[queue.broker_name].append(queue)
    failures: dict[MessageQueue, RaptorMQError] = {}

    async def commit_all(queues: list[MessageQueue]) -> None:
        unreachable: RaptorMQError | None = None
        committed_topics: set[str] = set()

        async def commit_one(queue: MessageQueue) -> None:
            nonlocal unreachable
            if unreachable is not None:
                failures[queue] = unreachable
                return
            try:
                await commit(queue, process_queue[queue])
                committed_topics.add(queue.topic)
            except (TransportError, NoRoute) as error:
                unreachable = failures[queue] = error
            except RaptorMQError as error:
                failures[queue] = error

        others: list[MessageQueue] = []
        for queue in queues:
            if queue.topic in committed_topics:
                others.append(queue)
            else:
                await commit_one(queue)
        await _commit_concurrently(others, commit_one)

    await asyncio.gather(*map(commit_all, by_broker.values()))
    return failures


async def _commit_concurrently(queues: list[MessageQueue], commit: Callable[[MessageQueue], Awaitable[None]]) -> None:
    waiting = iter(queues)

    async def work() -> None:
        for queue in waiting:
            await commit(queue)

    await asyncio.gather(*(work() for _ in range(min(AT_A_TIME, len(queues)))))


class OffsetCommitter:
    """Commits the offsets of one consumer's queues."""

    def __init__(
        self, instance: ClientInstance, group: str, interval: float, local: LocalOffsets | None = None
    ) -> None:
        self._instance = instance
        self._local = local
        self._group = group
        self._interval = interval
        self._committed: dict[MessageQueue, tuple[ProcessQueue, int]] = {}
        """Last committed offset of each queue, with its process queue. A reset creates another process queue and
        changes the broker's offset.
        """
        self._committed_topics: set[tuple[str, str]] = set()
        """Brokers and topics with a successful commit, see `commit_in_order`."""
        self._commit_locks: dict[tuple[str, str] | MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Locks for sequential commits per queue, and for the first commits of a topic on a broker."""
        self._logged: set[str] = set()
        """Failures logged since the last successful commit."""
        self._task: asyncio.Task[None] | None = None

    def start(self, readers: Callable[[], Iterable[QueueReader]]) -> None:
        """Commit the offsets of `readers()` every `interval` seconds."""
        self._task = background(self._run(readers), f"commits of {self._group}")

    async def stop(self) -> None:
        """Stop committing periodically."""
        if self._task is not None:
            await cancel_all([self._task])

    async def commit(self, readers: Iterable[QueueReader]) -> set[str]:
        """Commit changed offsets. A failure is logged and repeated by the next commit.

        Returns the names of the brokers that could not be reached.
        """
        failures = await self.commit_now(readers)
        self._log_failures(failures)
        return {queue.broker_name for queue, error in failures.items() if isinstance(error, TransportError | NoRoute)}

    async def commit_now(self, readers: Iterable[QueueReader]) -> dict[MessageQueue, RaptorMQError]:
        """Commit changed offsets. Return the failures by queue; they are repeated by the next commit."""
        changed = {reader.queue: reader for reader in readers if self._changed(reader) is not None}

        async def commit(queue: MessageQueue, reader: QueueReader) -> None:
            place = queue.broker_name, queue.topic
            async with self._commit_locks[
                queue if place in self._committed_topics or self._local is not None else place
            ]:
                # Read the offset inside the lock, because the queue may have moved to another member, whose offset must
                # not be overwritten.
                if (now := self._changed(reader)) is not None:
                    await self._commit_one(queue, *now)
                    self._committed[queue] = now
                    self._committed_topics.add(place)

        return await (commit_in_order if self._local is None else _commit_at_once)(changed, commit)

    def _log_failures(self, failures: Mapping[MessageQueue, RaptorMQError]) -> None:
        """Log failures with one line per broker."""
        if not failures:
            self._logged.clear()
        for text, queues in _by_text(failures).items():
            if text not in self._logged:
                self._logged.add(text)
                more = f" and {len(queues) - 1} more queues" if len(queues) > 1 else ""
                log.warning(
                    "the offset of group %s in %s%s is not committed yet: %s", self._group, queues[0], more, text
                )

    def forget(self, queue: MessageQueue) -> None:
        """Forget the last committed offset of a revoked queue; the broker keeps the offset."""
        self._committed.pop(queue, None)
        if (turn := self._commit_locks.get(queue)) is not None and not turn.locked():
            del self._commit_locks[queue]

    def _changed(self, reader: QueueReader) -> tuple[ProcessQueue, int] | None:
        """Return the offset to commit for a queue; None if it has not changed."""
        if reader.process_queue is None:
            return None
        now = reader.process_queue, reader.process_queue.commit_offset
        return now if now != self._committed.get(reader.queue) else None

    async def _run(self, readers: Callable[[], Iterable[QueueReader]]) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.commit(readers())

    async def _commit_one(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        topic_id = process_queue.topic_id
        if self._local is not None:
            await self._local.store(queue, offset, topic_id)
            return

        async def commit(address: str) -> None:
            await self._instance.offsets.commit(address, self._group, queue, offset, topic_id)

        await call_broker(self._instance.routes, queue, commit)


async def _commit_at_once(
    process_queue: Mapping[MessageQueue, QueueReader], commit: Callable[[MessageQueue, QueueReader], Awaitable[None]]
) -> dict[MessageQueue, RaptorMQError]:
    """Commit all offsets concurrently, so that they share one write of the offset file."""
    failures: dict[MessageQueue, RaptorMQError] = {}

    async def commit_one(queue: MessageQueue) -> None:
        try:
            await commit(queue, process_queue[queue])
        except RaptorMQError as error:
            failures[queue] = error

    await asyncio.gather(*map(commit_one, process_queue))
    return failures


def _by_text(failures: Mapping[MessageQueue, RaptorMQError]) -> dict[str, list[MessageQueue]]:
    by_text: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue, error in failures.items():
        by_text[str(error)].append(queue)
    return by_text
