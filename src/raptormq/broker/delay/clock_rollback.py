"""Due times of delayed messages after the system clock was set back.

Store timestamps never decrease. After the system clock was set back, stored due times are too far in the future until
the clock has caught up. During this time a message is due one delay after the broker has seen it first, measured by a
monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_GRAIN_MS = 1_000
"""Messages that are first seen within this time (ms) are due together. This limits the number of marks of a level."""


class ClockRollback:
    """Due times of the messages of one delay level, by queue offset."""

    def __init__(self, delay_ms: int, steady_clock: Callable[[], int]) -> None:
        self._delay_ms = delay_ms
        self._clock = steady_clock
        self._marks: deque[tuple[int, int]] = deque()
        self._due = 0

    def due(self, end: int) -> int:
        """Return the queue offset below which all messages are due. ``end`` is the current end of the queue."""
        now = self._clock()
        marks = self._marks
        if not marks or (marks[-1][0] < end and now + self._delay_ms - marks[-1][1] >= _GRAIN_MS):
            marks.append((end, now + self._delay_ms))
        while marks and marks[0][1] <= now:
            self._due = marks.popleft()[0]
        return self._due

    def next_in_ms(self) -> int:
        """Return the time until the result of :meth:`due` changes, in ms."""
        return max(0, self._marks[0][1] - self._clock()) if self._marks else self._delay_ms

    def forget(self) -> None:
        """Discard all marks after the system clock has caught up."""
        self._marks.clear()
