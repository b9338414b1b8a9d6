"""Resets that consumers have not heard of yet (``ConsumerOffsetManager.assignResetOffset``).

An administrator's reset (222) sets the group's offset at once, and waits here until the next pull of the queue takes
it: that pull is answered with 21 and the new offset, from which the client goes on. Until then what clients commit is
ignored, because it is what they had done before; unless nobody pulls for the group, who would never hear of the reset:
Spark only commits for a group. In memory only: after a restart clients ask for the offset anyway.
"""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.statistics import Statistics
from raptormq.transport.connection import Connection

_Place = tuple[str, str, int]


class OffsetResets:
    """The resets of one broker by topic, group and queue."""

    def __init__(self, registry: ClientRegistry[Connection], statistics: Statistics) -> None:
        self._registry = registry
        self._statistics = statistics
        self._offsets: dict[_Place, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def assign(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let the next pull of the queue begin at ``offset``."""
        self._offsets[topic, group, queue_id] = offset

    def pending(self, topic: str, group: str, queue_id: int) -> bool:
        """True while no pull has taken the reset; one that no pull can be expected to take is forgotten."""
        place = topic, group, queue_id
        if place not in self._offsets:
            return False
        if group not in self._registry.consumers and place not in self._statistics.pulled:
            del self._offsets[place]
            return False
        return True

    def take(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset to begin at, once; None without a reset."""
        return self._offsets.pop((topic, group, queue_id), None)

    def forget_topic(self, topic: str) -> None:
        """Drop the resets of a topic that is gone."""
        for place in [place for place in self._offsets if place[0] == topic]:
            del self._offsets[place]
