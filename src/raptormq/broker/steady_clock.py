"""The clock of time limits inside the broker: it never jumps, unlike the time of day, which people and NTP set."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_ms() -> int:
    """Return ms since some moment in the past."""
    return time.monotonic_ns() // 1_000_000


def steady_time_of_day(clock: Callable[[], int]) -> Callable[[], int]:
    """Return a clock (ms) that shows the time of day that ``clock`` shows now and is not set with it later."""
    offset = clock() - steady_ms()
    return lambda: offset + steady_ms()
