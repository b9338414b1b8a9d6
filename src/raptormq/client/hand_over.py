"""How queues go from this member of a group to others, without a message being consumed twice.

    kept for it     cached messages are dropped at once, listener calls end      this member: `give`
                    progress is stored
                    the claim is given back
                    the claim is got, progress is asked for, reading begins      the next member: `takable`

A listener that takes its time holds its queue up for `timeout`; then messages come twice. The next member waits for the
claim as long as another one has it: that one may not have heard yet that it is to give the queue away, and the claims
of who is gone end, at a RaptorMQ broker with its membership, at Apache RocketMQ's after 60 s. A queue that nobody has
claimed may be that of a client of another kind, which stores its progress when it hears of the change: it gets a
moment. What a member had that brokers do not know any more is taken at once, or after `timeout` and a second where its
claim has not ended.
Neighbours: `rebalancing` decides which queues, `queue_claims` asks brokers. Source: none; the order is that of
Kafka's cooperative rebalancing: revoke, commit, assign.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence

from raptormq.client.background import background
from raptormq.client.commits import Commits
from raptormq.client.queue_claims import QueueClaims
from raptormq.client.queue_reader import QueueReader
from raptormq.protocol.message import MessageQueue

_MOMENT_S = 0.2
_MORE_S = 1.0
"""For storing progress and all that is under way."""
_AT_ONCE = 100
"""Queues whose progress is stored before their claims are given back."""


class HandOver:
    """The queues of one member that go, and those that are to come.

    Args:
        claims: what members know of each other's queues; `None` where every member reads all of them.
        commits: stores progress.
        timeout: seconds that listener calls get.
    """

    def __init__(self, claims: QueueClaims | None, commits: Commits, timeout: float) -> None:
        self._claims = claims
        self._commits = commits
        self._timeout = timeout
        self._leaving: dict[MessageQueue, QueueReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: dict[str, dict[MessageQueue, float]] = {}
        """By topic, when waiting for a queue ends, in the time of the loop; never for one that a member has claimed."""
        self._unclaimed: set[MessageQueue] = set()
        """Those of them that nobody had claimed when they were asked for first."""

    @property
    def awaited_topics(self) -> set[str]:
        """The topics of which queues are to come."""
        return {topic for topic, queues in self._awaited.items() if queues}

    def give(self, readers: Iterable[QueueReader]) -> None:
        """Let queues go, in the background."""
        readers = list(readers)
        for reader in readers:
            reader.leave()
            self._leaving[reader.queue] = reader
        # Those that listeners have must not hold up the others.
        busy = [[reader] for reader in readers if reader.is_busy]
        for group in ([reader for reader in readers if not reader.is_busy], *busy):
            if group:
                task = background(self._give_all(group), f"hand-over of {len(group)} queues from {group[0].queue}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def given(self) -> None:
        """Wait until all that was to go has gone."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_all(self, readers: Sequence[QueueReader]) -> None:
        unreached: set[str] = set()
        for first in range(0, len(readers), _AT_ONCE):  # the first ones need not wait for the last
            await self._give(readers[first : first + _AT_ONCE], unreached)

    async def _give(self, readers: Sequence[QueueReader], unreached: set[str]) -> None:
        """Let queues go; the brokers that are not reached are added to `unreached`, and not tried again."""

        def reachable() -> list[QueueReader]:
            return [reader for reader in readers if reader.queue.broker_name not in unreached]

        await asyncio.gather(*(reader.quiet(self._timeout) for reader in readers))
        unreached |= await self._commits.commit(reachable())
        for reader in readers:
            reader.let_go()
            self._commits.forget(reader.queue)
        if self._claims is not None:
            unreached |= await self._claims.release([reader.queue for reader in readers], unreached)
        for reader in readers:
            del self._leaving[reader.queue]

    async def takable(
        self, topic: str, queues: Sequence[MessageQueue], orphans: set[MessageQueue]
    ) -> list[MessageQueue]:
        """Claim queues and return those that can be read now; the others have to be asked for again soon.

        Args:
            topic: whose queues they are.
            queues: all that this member shall have of it, and has not.
            orphans: those of the topic whose member the brokers do not know any more.
        """
        wanted, awaited = set(queues), self._awaited.setdefault(topic, {})
        await self._await_no_more(awaited, [queue for queue in awaited if queue not in wanted])
        here = [queue for queue in queues if queue not in self._leaving]
        free = await self._claims.claim(here) if self._claims is not None else set(here)
        now = asyncio.get_running_loop().time()
        for queue in wanted - awaited.keys():
            awaited[queue] = now + _MOMENT_S if queue in free else math.inf
            if queue in free:
                self._unclaimed.add(queue)
        for queue in wanted & orphans:
            awaited[queue] = min(awaited[queue], now + self._timeout + _MORE_S)
        at_once = free & orphans | (free - self._unclaimed)
        takable = [queue for queue in here if queue in at_once or awaited[queue] <= now]
        self._forget(awaited, takable)
        if not awaited:
            del self._awaited[topic]
        return takable

    def _forget(self, awaited: dict[MessageQueue, float], queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            del awaited[queue]
            self._unclaimed.discard(queue)

    async def _await_no_more(self, awaited: dict[MessageQueue, float], queues: Sequence[MessageQueue]) -> None:
        self._forget(awaited, queues)
        if queues and self._claims is not None:
            await self._claims.release(queues)
