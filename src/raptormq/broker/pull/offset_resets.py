"""Resets that consumers have not heard of yet (``ConsumerOffsetManager.assignResetOffset``).

An administrator's reset (222) sets the group's offset at once, and waits here until the next pull of the queue takes
it: that pull is answered with 21 and the new offset, from which the client goes on. Until then what clients commit is
ignored, because it is what they had done before; unless nobody is there to pull, who would hear of the reset: Spark
only commits for a group. Who is there: a member that subscribes to the topic, however long it pauses; and who pulls
without being a member, for as long as it takes to pull again. In memory only: after a restart clients ask for the
offset anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.metrics import Statistics
from raptormq.broker.pull.held_pulls import MAX_WAIT_MS
from raptormq.storage.queue import ConsumerOffsets
from raptormq.transport.connection import Connection

PULLED_AGAIN_MS = MAX_WAIT_MS + 30_000
"""Who pulls without being a member pulls again within this time: after the longest hold, and work on what it got."""
_Place = tuple[str, str, int]


class OffsetResets:
    """The resets of one broker by topic, group and queue."""

    def __init__(
        self,
        consumer_offsets: ConsumerOffsets,
        registry: ClientRegistry[Connection],
        statistics: Statistics,
        steady_clock: Callable[[], int],
    ) -> None:
        """``steady_clock`` returns ms of a monotonic clock."""
        self._consumer_offsets = consumer_offsets
        self._registry = registry
        self._statistics = statistics
        self._steady_clock = steady_clock
        self._offsets: dict[_Place, tuple[int, int]] = {}
        """With each offset the moment it was assigned."""

    def __len__(self) -> int:
        return len(self._offsets)

    def assign(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the group's offset, from which the next pull of the queue starts."""
        self._offsets[topic, group, queue_id] = offset, self._steady_clock()
        self._consumer_offsets.commit(topic, group, queue_id, offset)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset that a client commits. It is ignored while a reset is pending: it is older than the reset."""
        if not self._is_pending(topic, group, queue_id):
            self._consumer_offsets.commit(topic, group, queue_id, offset)

    def _is_pending(self, topic: str, group: str, queue_id: int) -> bool:
        """True while no pull has taken the reset; one that no pull can be expected to take is forgotten."""
        place = topic, group, queue_id
        if place not in self._offsets:
            return False
        if self._registry.subscription(group, topic) is not None:
            return True
        if place in self._statistics.pull_offsets and self._steady_clock() < self._offsets[place][1] + PULLED_AGAIN_MS:
            return True
        del self._offsets[place]
        return False

    def take(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset to begin at, once; None without a reset."""
        assigned = self._offsets.pop((topic, group, queue_id), None)
        return assigned[0] if assigned is not None else None

    def forget_topic(self, topic: str) -> None:
        """Drop the resets of a topic that is gone."""
        for place in [place for place in self._offsets if place[0] == topic]:
            del self._offsets[place]
