"""Long polling of pops: a pop that finds no message waits until one arrives (``PopLongPollingService``).

A message goes to one consumer of a group. An arrival therefore wakes, for each group, only the pop that has waited
longest. A pop that leaves messages in the queue wakes the next held pop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Iterable

from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.transport.timing import wait_event

_Key = tuple[str, str]
"""Topic and group."""
_ANY = -1


class HeldPop:
    """One held pop. It is armed before each attempt to read messages."""

    def __init__(self, topic: str, group: str, queue_id: int, tags: frozenset[int] | None = None) -> None:
        """Create a held pop.

        Args:
            topic: topic of the request.
            group: consumer group of the request.
            queue_id: a number below 0 means any queue.
            tags: tag codes of the messages of ``topic`` that wake the pop; None means all messages.
        """
        self.topic, self.tags = topic, tags
        queue_id = max(queue_id, _ANY)
        retries = {pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)} - {topic}
        self.places: tuple[tuple[_Key, int], ...] = (
            ((topic, group), queue_id), *(((each, group), _ANY) for each in sorted(retries))
        )  # fmt: skip
        """Queues whose arrivals wake this pop: the queue of its topic, and all queues of the group's retry topics. A
        retry topic has no retry topic of its own."""
        self.sequence = 0
        """Sequence number of the last :meth:`HeldPops.arm`, 0 while the pop is not armed."""
        self.woken = asyncio.Event()

    def matches(self, topic: str, tag_code: int | None) -> bool:
        """Return whether a message of ``topic`` with ``tag_code`` wakes this pop. A tag code of None matches any
        filter.
        """
        return self.tags is None or tag_code is None or topic != self.topic or tag_code in self.tags


_Waiters = OrderedDict[HeldPop, None]
"""Held pops of one queue in the order in which they were armed. An OrderedDict finds its first entry in constant time,
while a plain dict scans deleted entries.
"""


class HeldPops:
    """The held pops of a broker, at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._groups: dict[str, dict[str, dict[int, _Waiters]]] = {}
        self._sequence = itertools.count(1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True if the limit of held pops is reached."""
        return self._count >= self._limit

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of pops held for ``queue_id``; -1 counts the pops that requested any queue."""
        return len(self._groups.get(topic, {}).get(group, {}).get(max(queue_id, _ANY), ()))

    def arm(self, waiter: HeldPop) -> None:
        """Register ``waiter``, so that arrivals wake it."""
        waiter.woken.clear()
        if waiter.sequence:
            return
        waiter.sequence = next(self._sequence)
        for (topic, group), queue_id in waiter.places:
            by_queue = self._groups.setdefault(topic, {}).setdefault(group, {})
            by_queue.setdefault(queue_id, OrderedDict())[waiter] = None

    def disarm(self, waiter: HeldPop) -> None:
        """Unregister ``waiter``."""
        if not waiter.sequence:
            return
        waiter.sequence = 0
        for (topic, group), queue_id in waiter.places:
            groups = self._groups[topic]
            by_queue = groups[group]
            del by_queue[queue_id][waiter]
            if not by_queue[queue_id]:
                del by_queue[queue_id]
                if not by_queue:
                    del groups[group]
                    if not groups:
                        del self._groups[topic]

    async def wait(self, waiter: HeldPop, seconds: float) -> None:
        """Wait until ``waiter`` is woken, at most ``seconds``."""
        self._count += 1
        try:
            await wait_event(waiter.woken, seconds)
        finally:
            self._count -= 1

    def arrived(self, arrivals: Iterable[tuple[str, int, int, int]]) -> None:
        """Wake one held pop of each group for each message."""
        if not self._groups:
            return
        for topic, queue_id, _, tag_code in arrivals:
            for group in list(self._groups.get(topic, ())):
                self.wake(topic, group, queue_id, tag_code)

    def wake_all(self) -> None:
        """Wake all held pops."""
        by_queue = [queues for groups in self._groups.values() for queues in groups.values()]
        for waiter in {waiter for queues in by_queue for queue in queues.values() for waiter in queue}:
            self.disarm(waiter)
            waiter.woken.set()

    def wake(self, topic: str, group: str, queue_id: int, tag_code: int | None = None) -> None:
        """Wake the longest-waiting pop of a group that accepts a message of ``queue_id`` (-1: any queue) with
        ``tag_code``.
        """
        by_queue = self._groups.get(topic, {}).get(group, {})
        wanted = by_queue if queue_id < 0 else (queue_id, _ANY)
        queues = [by_queue[each] for each in wanted if each in by_queue]
        found = (next((each for each in queue if each.matches(topic, tag_code)), None) for queue in queues)
        firsts = [each for each in found if each is not None]
        if firsts:
            waiter = min(firsts, key=lambda first: first.sequence)
            self.disarm(waiter)
            waiter.woken.set()
