"""Offset resets that consumers have not received yet (``ConsumerOffsetManager.assignResetOffset``).

A reset (222) sets the group's offset immediately. The response to the next pull of the queue is code 21 with the new
offset, where the client continues. Until this pull, commits of clients are ignored, because they are older than the
reset.

Commits are accepted if no pull is expected. The Spark connector, for example, commits offsets of a group without
pulling as its member. A pull is expected if the group has a subscription to the topic, and for ``PULLED_AGAIN_MS``
after the reset if a client has pulled the queue. Resets are in memory only. After a restart or under another
leader of a Dledger group, clients query their offset.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.metrics import Statistics
from raptormq.broker.pull.held_pulls import MAX_WAIT_MS
from raptormq.storage.queue import ConsumerOffsets
from raptormq.transport.connection import Connection

PULLED_AGAIN_MS = MAX_WAIT_MS + 30_000
"""Time in ms within which a client that is not a member pulls again: the maximum hold, plus time to process messages.
"""
_QueueKey = tuple[str, str, int]


class OffsetResets:
    """Pending resets of one broker, by topic, group and queue."""

    def __init__(
        self,
        consumer_offsets: ConsumerOffsets,
        registry: ClientRegistry[Connection],
        statistics: Statistics,
        steady_clock: Callable[[], int],
    ) -> None:
        """Create an empty table. ``steady_clock`` returns ms of a monotonic clock."""
        self._consumer_offsets = consumer_offsets
        self._registry = registry
        self._statistics = statistics
        self._steady_clock = steady_clock
        self._offsets: dict[_QueueKey, tuple[int, int]] = {}
        """Offset and time (monotonic ms) of each reset."""

    def __len__(self) -> int:
        return len(self._offsets)

    def assign(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Reset the group's offset."""
        self._offsets[topic, group, queue_id] = offset, self._steady_clock()
        self._consumer_offsets.commit(topic, group, queue_id, offset)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Commit the offset of a client, unless a reset is pending."""
        if not self._is_pending(topic, group, queue_id):
            self._consumer_offsets.commit(topic, group, queue_id, offset)

    def _is_pending(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether a reset is pending. Discard a reset if no pull is expected."""
        key = topic, group, queue_id
        if key not in self._offsets:
            return False
        if self._registry.subscription(group, topic) is not None:
            return True
        if key in self._statistics.pull_offsets and self._steady_clock() < self._offsets[key][1] + PULLED_AGAIN_MS:
            return True
        del self._offsets[key]
        return False

    def take(self, topic: str, group: str, queue_id: int) -> int | None:
        """Remove a reset and return its offset, or None if there is none."""
        assigned = self._offsets.pop((topic, group, queue_id), None)
        return assigned[0] if assigned is not None else None

    def clear(self) -> None:
        """Discard all resets, when this broker begins or ceases to lead. Consumers may go on at another leader, and a
        later pull must not move them back.
        """
        self._offsets.clear()

    def forget_topic(self, topic: str) -> None:
        """Discard the resets of a deleted topic."""
        for key in [key for key in self._offsets if key[0] == topic]:
            del self._offsets[key]
