"""Orderly pops (``ConsumerOrderInfoManager``).

A pop blocks its queue for the group until all popped messages are acknowledged or visible again. Orderly pops write no
checkpoints. The group's offset stays at the first unacknowledged message, where the next pop starts. The state is in
memory only. After a restart the group continues from its offset.

A pop may carry an attempt id. A consumer repeats an attempt when it did not receive the response. The first pop does
not block the repetition, and the messages count as popped once.
"""

from __future__ import annotations

from collections.abc import Sequence

QueueKey = tuple[str, str, int]
"""Topic, group and queue."""


class _Pop:
    __slots__ = ("attempt", "offsets", "pop_time", "visible_at")

    def __init__(self, attempt: str | None, pop_time: int, visible_at: int, offsets: Sequence[int]) -> None:
        self.attempt = attempt
        self.pop_time = pop_time
        self.offsets = list(offsets)
        self.visible_at: dict[int, int] = dict.fromkeys(offsets, visible_at)
        """Time at which each unacknowledged message becomes visible again (ms since 1970), by offset."""


class OrderlyPops:
    """The last pop of each orderly group from each queue."""

    def __init__(self) -> None:
        self._pops: dict[QueueKey, _Pop] = {}
        self._pop_counts: dict[QueueKey, dict[int, int]] = {}

    def is_blocked(self, key: QueueKey, now_ms: int, attempt: str | None = None) -> bool:
        """Return whether invisible messages of the last pop block the queue. A repetition of its ``attempt`` is not
        blocked.
        """
        pop = self._pops.get(key)
        if pop is None or self._is_repeated(key, attempt):
            return False
        return any(until > now_ms for until in pop.visible_at.values())

    def _is_repeated(self, key: QueueKey, attempt: str | None) -> bool:
        pop = self._pops.get(key)
        return bool(attempt) and pop is not None and pop.attempt == attempt

    def started(
        self, key: QueueKey, pop_time: int, invisible_ms: int, offsets: Sequence[int], attempt: str | None = None
    ) -> dict[int, int]:
        """Record a pop. Return the number of earlier pops by message offset. Messages that are popped for the first
        time are omitted.
        """
        known = self._pop_counts.get(key, {})
        before = {offset: known.get(offset, 0) for offset in offsets}
        if self._is_repeated(key, attempt):
            before = {offset: max(count - 1, 0) for offset, count in before.items()}
        self._pop_counts[key] = {offset: count + 1 for offset, count in before.items()}
        self._pops[key] = _Pop(attempt, pop_time, pop_time + invisible_ms, offsets)
        return {offset: count for offset, count in before.items() if count}

    def acknowledge(self, key: QueueKey, offset: int, pop_time: int) -> int | None:
        """Acknowledge a message. Return the group's next offset, or None if ``pop_time`` is not that of the last pop of
        the queue.
        """
        pop = self._pops.get(key)
        if pop is None or pop.pop_time != pop_time:
            return None
        pop.visible_at.pop(offset, None)
        if pop.visible_at:
            return min(pop.visible_at)
        self.forget(key)
        return pop.offsets[-1] + 1

    def forget(self, key: QueueKey) -> None:
        """Unblock a queue. Later acknowledgements of its last pop have no effect."""
        self._pops.pop(key, None)
        self._pop_counts.pop(key, None)

    def clear(self) -> None:
        """Unblock all queues, because another member of the Dledger group serves them from now on."""
        self._pops.clear()
        self._pop_counts.clear()

    def forget_topic(self, topic: str) -> None:
        """Unblock the queues of a deleted topic: they must not block a new topic of the same name."""
        for key in [key for key in self._pops if key[0] == topic]:
            self.forget(key)

    def change(self, key: QueueKey, offset: int, pop_time: int, visible_at: int) -> None:
        """Change the time at which a message becomes visible again."""
        pop = self._pops.get(key)
        if pop is not None and pop.pop_time == pop_time and offset in pop.visible_at:
            pop.visible_at[offset] = visible_at
