"""Limits how often events of the same kind are logged, such as the failures of a step that is retried every second, or
tracebacks from the same line of code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from logging import Logger
from typing import Generic, TypeVar

Kind = TypeVar("Kind")

SUMMARY_S = 60.0
"""Default interval in seconds between two log entries of the same kind."""
_REMEMBERED_INTERVALS = 10
"""Number of intervals after which a kind without events is forgotten. This bounds the table."""


class LogThrottle(Generic[Kind]):
    """Permits one log entry of each kind per interval.

    Args:
        interval: seconds.
        clock: returns seconds.
    """

    def __init__(self, interval: float = SUMMARY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._logged_at: dict[Kind, float] = {}
        self._omitted: dict[Kind, int] = {}
        """Events since the last log entry of the kind."""

    def permits(self, kind: Kind) -> bool:
        """Return whether to log an event of this kind now. If so, the event counts as logged."""
        now = self._clock()
        if now - self._logged_at.get(kind, -math.inf) < self._interval:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return False
        oldest = now - _REMEMBERED_INTERVALS * self._interval
        self._logged_at = {known: at for known, at in self._logged_at.items() if at > oldest}
        self._omitted = {known: count for known, count in self._omitted.items() if known in self._logged_at}
        self._logged_at[kind] = now
        return True

    def log(self, logger: Logger, level: int, kind: Kind, message: str, *args: object) -> None:
        """Log an event of this kind if :meth:`permits` does. The entry says how many events were omitted since the last
        one of the kind. ``message`` is the format of ``args``.
        """
        if not self.permits(kind):
            return
        if omitted := self._omitted.pop(kind, 0):
            message, args = f"{message} (%d more since the last entry)", (*args, omitted)
        logger.log(level, message, *args, stacklevel=2)
