"""Limits how often the client logs events of the same kind, such as tracebacks from the same line of code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class LogThrottle(Generic[Kind]):
    """Permits one log entry of each kind per interval.

    Args:
        interval: seconds.
        clock: returns seconds.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._logged_at: dict[Kind, float] = {}

    def permits(self, kind: Kind) -> bool:
        """Return whether to log an event of this kind now. If so, the event counts as logged."""
        now = self._clock()
        if now - self._logged_at.get(kind, -math.inf) < self._interval:
            return False
        self._logged_at = {known: at for known, at in self._logged_at.items() if now - at < self._interval}
        self._logged_at[kind] = now
        return True
