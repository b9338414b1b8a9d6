"""Counts connections that are refused, and tells of them in the log, but not of each: whoever opens thousands must not
fill the disk with lines, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from raptormq.logs import get_logger

logger = get_logger(__name__)

QUIET_S = 10.0
"""At least so long between two lines."""


class Refusals:
    """Those of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        self._clock = clock
        self._told_at = -QUIET_S
        self._told_count = 0
        self.count = 0
        """Since the start."""

    def refused(self, peer: str, reason: str) -> None:
        """A connection of ``peer`` was closed at once."""
        self.count += 1
        now = self._clock()
        if now - self._told_at >= QUIET_S:
            logger.warning(
                "refused %d connections, the last one of %s: %s", self.count - self._told_count, peer, reason
            )
            self._told_at, self._told_count = now, self.count
