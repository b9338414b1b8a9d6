"""Pops that found nothing and wait for a message of their topic (``PopLongPollingService``).

An arrival wakes one waiter of each group, the one that has waited longest: a message is for one consumer. Whoever finds
more than it may take wakes the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.transport.event_wait import set_within

_Key = tuple[str, str]
"""Topic and group."""


class Waiter:
    """One waiting pop; armed anew for every try."""

    def __init__(self, topic: str, group: str, queue_id: int) -> None:
        retries = (pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True))
        self.keys: tuple[_Key, ...] = tuple((each, group) for each in (topic, *retries))
        self.queue_id = queue_id
        self.woken = asyncio.Event()

    def wants(self, topic: str, queue_id: int) -> bool:
        """True when a message of this queue is for it: a retry topic's always is."""
        return self.queue_id < 0 or queue_id < 0 or self.queue_id == queue_id or topic != self.keys[0][0]


class Waiters:
    """All waiting pops of a broker, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: dict[str, dict[str, dict[Waiter, None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True while nobody more may wait."""
        return self._count >= self._most

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many wait for a queue; below 0 those that wait for any."""
        waiting = self._groups.get(topic, {}).get(group, ())
        return sum(1 for waiter in waiting if waiter.queue_id == max(queue_id, -1))

    def arm(self, waiter: Waiter) -> None:
        """Let arrivals wake it from now on."""
        waiter.woken.clear()
        for topic, group in waiter.keys:
            self._groups.setdefault(topic, {}).setdefault(group, {})[waiter] = None

    def disarm(self, waiter: Waiter) -> None:
        """Forget it."""
        for topic, group in waiter.keys:
            groups = self._groups.get(topic)
            waiting = groups.get(group) if groups is not None else None
            if groups is None or waiting is None:
                continue
            waiting.pop(waiter, None)
            if not waiting:
                del groups[group]
                if not groups:
                    del self._groups[topic]

    async def wait(self, waiter: Waiter, seconds: float) -> None:
        """Return when it is woken or time is up."""
        self._count += 1
        try:
            await set_within(waiter.woken, seconds)
        finally:
            self._count -= 1

    def arrived(self, arrivals: Iterable[tuple[str, int, int, int]]) -> None:
        """Wake one waiter of each group for each message."""
        if not self._groups:
            return
        for topic, queue_id, _, _ in arrivals:
            for group in list(self._groups.get(topic, ())):
                self.wake(topic, group, queue_id)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Wake the waiter of a group that has waited longest for a queue (-1: any)."""
        for waiter in self._groups.get(topic, {}).get(group, ()):
            if waiter.wants(topic, queue_id):
                self.disarm(waiter)
                waiter.woken.set()
                return
