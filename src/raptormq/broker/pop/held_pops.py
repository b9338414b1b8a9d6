"""Holds pops that found no message until one arrives (long polling, ``PopLongPollingService``).

An arrival wakes one held pop of each group, the longest waiting one, because a message goes to one consumer. A pop that
leaves messages behind wakes the next one.
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
    """One held pop; armed again for every attempt."""

    def __init__(self, topic: str, group: str, queue_id: int, tags: frozenset[int] | None = None) -> None:
        """A ``queue_id`` below 0 stands for any queue. ``tags`` are the tag codes of the messages of ``topic`` that
        wake it; None stands for all.
        """
        self.topic, self.tags = topic, tags
        queue_id = max(queue_id, _ANY)
        retries = {pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)} - {topic}
        self.places: tuple[tuple[_Key, int], ...] = (
            ((topic, group), queue_id), *(((each, group), _ANY) for each in sorted(retries))
        )  # fmt: skip
        """Queues whose arrivals wake it: a queue of its topic, and all queues of its retry topics. A retry topic has
        none."""
        self.turn = 0
        """Sequence number of the last :meth:`HeldPops.arm`; 0 while it is not armed."""
        self.woken = asyncio.Event()

    def takes(self, topic: str, tag_code: int | None) -> bool:
        """Whether a message of ``topic`` wakes it. A tag code of None stands for any message."""
        return self.tags is None or tag_code is None or topic != self.topic or tag_code in self.tags


_Line = OrderedDict[HeldPop, None]
"""Held pops of one queue in arrival order. A plain dict would scan deleted entries to find the first one."""


class HeldPops:
    """The held pops of a broker, at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: dict[str, dict[str, dict[int, _Line]]] = {}
        self._turns = itertools.count(1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True while no more pops may be held."""
        return self._count >= self._most

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of pops held for a queue; -1 counts those for any queue."""
        return len(self._groups.get(topic, {}).get(group, {}).get(max(queue_id, _ANY), ()))

    def arm(self, waiter: HeldPop) -> None:
        """Let arrivals wake ``waiter`` from now on."""
        waiter.woken.clear()
        if waiter.turn:
            return
        waiter.turn = next(self._turns)
        for (topic, group), queue_id in waiter.places:
            lines = self._groups.setdefault(topic, {}).setdefault(group, {})
            lines.setdefault(queue_id, OrderedDict())[waiter] = None

    def disarm(self, waiter: HeldPop) -> None:
        """Remove ``waiter``."""
        if not waiter.turn:
            return
        waiter.turn = 0
        for (topic, group), queue_id in waiter.places:
            groups = self._groups[topic]
            lines = groups[group]
            del lines[queue_id][waiter]
            if not lines[queue_id]:
                del lines[queue_id]
                if not lines:
                    del groups[group]
                    if not groups:
                        del self._groups[topic]

    async def wait(self, waiter: HeldPop, seconds: float) -> None:
        """Return when ``waiter`` is woken, or after ``seconds``."""
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

    def wake(self, topic: str, group: str, queue_id: int, tag_code: int | None = None) -> None:
        """Wake the longest held pop of a group for a queue (-1: any queue) that takes a message with ``tag_code``."""
        lines = self._groups.get(topic, {}).get(group, {})
        wanted = lines if queue_id < 0 else (queue_id, _ANY)
        found = (next((each for each in lines[q] if each.takes(topic, tag_code)), None) for q in wanted if q in lines)
        firsts = [each for each in found if each is not None]
        if firsts:
            waiter = min(firsts, key=lambda first: first.turn)
            self.disarm(waiter)
            waiter.woken.set()
