"""When messages are due whose times say nothing, because the time of day was set back after they were stored.

Store times never go back, so everything stored before the time of day has caught up waits for a time too far ahead.
Each such message waits its delay from the moment that it is seen first, by a clock that does not jump.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_GRAIN_MS = 1_000
"""Messages seen within so much time are due together: a level has few marks, however long its delay."""


class ClockRollback:
    """The messages of one delay level, by their offsets in its queue."""

    def __init__(self, delay_ms: int, steady_clock: Callable[[], int]) -> None:
        self._delay_ms = delay_ms
        self._clock = steady_clock
        self._marks: deque[tuple[int, int]] = deque()
        self._due = 0

    def due(self, end: int) -> int:
        """Return the offset before which all are due; ``end`` is where the queue ends now."""
        now = self._clock()
        marks = self._marks
        if not marks or (marks[-1][0] < end and now + self._delay_ms - marks[-1][1] >= _GRAIN_MS):
            marks.append((end, now + self._delay_ms))
        while marks and marks[0][1] <= now:
            self._due = marks.popleft()[0]
        return self._due

    def next_in_ms(self) -> int:
        """Return how long it is until :meth:`due` tells something new."""
        return max(0, self._marks[0][1] - self._clock()) if self._marks else self._delay_ms

    def forget(self) -> None:
        """The time of day can be believed again."""
        self._marks.clear()
