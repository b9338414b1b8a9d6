"""Orderly pops: a queue is blocked for its group until everything popped from it is acknowledged or visible again
(``ConsumerOrderInfoManager``).

There are no checkpoints. The group's offset stays at the first unacknowledged message, from which the queue is popped
again. The state is in memory only; after a restart the group continues from its offset.

A pop may carry an attempt id. If a consumer repeats an attempt, the response to the first one was lost: its own pop
does not block the repetition, and the messages count as popped once.
"""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[str, str, int]
"""Topic, group and queue."""


class _Run:
    __slots__ = ("attempt", "offsets", "pop_time", "visible_at")

    def __init__(self, attempt: str | None, pop_time: int, visible_at: int, offsets: Sequence[int]) -> None:
        self.attempt = attempt
        self.pop_time = pop_time
        self.offsets = list(offsets)
        self.visible_at: dict[int, int] = dict.fromkeys(offsets, visible_at)
        """When each unacknowledged message becomes visible again (ms), by offset."""


class OrderlyPops:
    """The last pop of each orderly group from each queue."""

    def __init__(self) -> None:
        self._runs: dict[Place, _Run] = {}
        self._times: dict[Place, dict[int, int]] = {}

    def is_blocked(self, place: Place, now_ms: int, attempt: str | None = None) -> bool:
        """True while messages of the queue are invisible; a repeated ``attempt`` is not blocked by its own messages."""
        run = self._runs.get(place)
        if run is None or self._is_repeated(place, attempt):
            return False
        return any(until > now_ms for until in run.visible_at.values())

    def _is_repeated(self, place: Place, attempt: str | None) -> bool:
        run = self._runs.get(place)
        return bool(attempt) and run is not None and run.attempt == attempt

    def started(
        self, place: Place, pop_time: int, invisible_ms: int, offsets: Sequence[int], attempt: str | None = None
    ) -> dict[int, int]:
        """Record a pop; return how often each message was popped before, without those that were not."""
        known = self._times.get(place, {})
        before = {offset: known.get(offset, 0) for offset in offsets}
        if self._is_repeated(place, attempt):
            before = {offset: max(times - 1, 0) for offset, times in before.items()}
        self._times[place] = {offset: times + 1 for offset, times in before.items()}
        self._runs[place] = _Run(attempt, pop_time, pop_time + invisible_ms, offsets)
        return {offset: times for offset, times in before.items() if times}

    def acknowledge(self, place: Place, offset: int, pop_time: int) -> int | None:
        """Acknowledge a message; return the group's next offset, None when the pop is not the last one of the queue."""
        run = self._runs.get(place)
        if run is None or run.pop_time != pop_time:
            return None
        run.visible_at.pop(offset, None)
        if run.visible_at:
            return min(run.visible_at)
        self.forget(place)
        return run.offsets[-1] + 1

    def forget(self, place: Place) -> None:
        """Unblock a queue; later acknowledgements of its last pop have no effect."""
        self._runs.pop(place, None)
        self._times.pop(place, None)

    def forget_topic(self, topic: str) -> None:
        """Unblock the queues of a deleted topic, so that a later topic of the same name is not blocked."""
        for place in [place for place in self._runs if place[0] == topic]:
            self.forget(place)

    def change(self, place: Place, offset: int, pop_time: int, visible_at: int) -> None:
        """Change the time at which a message becomes visible again."""
        run = self._runs.get(place)
        if run is not None and run.pop_time == pop_time and offset in run.visible_at:
            run.visible_at[offset] = visible_at
