"""Orderly pops: a queue is blocked for its group until everything popped from it is acknowledged or visible again
(``ConsumerOrderInfoManager``).

There are no checkpoints: the group's offset stays at the first message that is not acknowledged, from which the queue
is popped again. In memory only; after a restart that is where the group goes on anyway.

A pop may name its attempt. The same attempt once more is that of a consumer that the answer has not reached: what it
has popped itself does not block it, and the messages that it gets again count as popped once.
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
        """When each message that is not acknowledged is visible again."""


class OrderlyPops:
    """What each orderly group has popped last from each queue."""

    def __init__(self) -> None:
        self._runs: dict[Place, _Run] = {}
        self._times: dict[Place, dict[int, int]] = {}

    def is_blocked(self, place: Place, now_ms: int, attempt: str | None = None) -> bool:
        """True while something is invisible to a pop, which its own ``attempt`` is not."""
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
        """Note what was popped; return how often each of the messages had been popped before, where it had."""
        known = self._times.get(place, {})
        before = {offset: known.get(offset, 0) for offset in offsets}
        if self._is_repeated(place, attempt):
            before = {offset: max(times - 1, 0) for offset, times in before.items()}
        self._times[place] = {offset: times + 1 for offset, times in before.items()}
        self._runs[place] = _Run(attempt, pop_time, pop_time + invisible_ms, offsets)
        return {offset: times for offset, times in before.items() if times}

    def acknowledge(self, place: Place, offset: int, pop_time: int) -> int | None:
        """Note that a message is done; return the offset that the group goes on from, None for a pop of long ago."""
        run = self._runs.get(place)
        if run is None or run.pop_time != pop_time:
            return None
        run.visible_at.pop(offset, None)
        if run.visible_at:
            return min(run.visible_at)
        self.forget(place)
        return run.offsets[-1] + 1

    def forget(self, place: Place) -> None:
        """Let nothing that was popped hold the queue up; acknowledgements of it say nothing any more."""
        self._runs.pop(place, None)
        self._times.pop(place, None)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: one of the same name that is made later is not held up by what it had."""
        for place in [place for place in self._runs if place[0] == topic]:
            self.forget(place)

    def change(self, place: Place, offset: int, pop_time: int, visible_at: int) -> None:
        """Let a message be visible again at another time."""
        run = self._runs.get(place)
        if run is not None and run.pop_time == pop_time and offset in run.visible_at:
            run.visible_at[offset] = visible_at
