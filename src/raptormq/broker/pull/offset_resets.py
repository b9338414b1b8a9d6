"""Offset resets that consumers have not received yet (``ConsumerOffsetManager.assignResetOffset``).

An administrator's reset (222) sets the group's offset at once. The next pull of the queue is answered with 21 and the
new offset, from which the client continues. Until that pull, commits of clients are ignored, because they predate the
reset. Commits are accepted when no pull can be expected: Spark, for example, only commits for a group. A pull is
expected from a member that subscribes to the topic, and for ``PULLED_AGAIN_MS`` after the reset from a client that has
pulled the queue. Resets are in memory only: after a restart clients ask for their offset anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.metrics import Statistics
from raptormq.broker.pull.held_pulls import MAX_WAIT_MS
from raptormq.storage.queue import ConsumerOffsets
from raptormq.transport.connection import Connection

PULLED_AGAIN_MS = MAX_WAIT_MS + 30_000
"""A client that is not a member pulls again within this time: the longest hold, and time to process the messages."""
_Place = tuple[str, str, int]


class OffsetResets:
    """Pending resets of one broker by topic, group and queue."""

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
        """Offset and time of each reset."""

    def __len__(self) -> int:
        return len(self._offsets)

    def assign(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the group's offset, from which the next pull of the queue starts."""
        self._offsets[topic, group, queue_id] = offset, self._steady_clock()
        self._consumer_offsets.commit(topic, group, queue_id, offset)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset that a client commits; ignored while a reset is pending, because it predates the reset."""
        if not self._is_pending(topic, group, queue_id):
            self._consumer_offsets.commit(topic, group, queue_id, offset)

    def _is_pending(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether a reset waits for a pull. A reset that no pull can be expected to take is dropped."""
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
        """Return and remove the offset of a reset; None without one."""
        assigned = self._offsets.pop((topic, group, queue_id), None)
        return assigned[0] if assigned is not None else None

    def forget_topic(self, topic: str) -> None:
        """Drop the resets of a deleted topic."""
        for place in [place for place in self._offsets if place[0] == topic]:
            del self._offsets[place]
