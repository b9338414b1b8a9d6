"""The clock of time limits inside the broker: it never jumps, unlike the time of day, which people and NTP set."""

from __future__ import annotations

import time


def steady_ms() -> int:
    """Return ms since some moment in the past."""
    return time.monotonic_ns() // 1_000_000
