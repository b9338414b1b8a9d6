"""What a broker does by the clock: takes samples of its counters and forgets clients and locks that have gone
silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from raptormq.logs import get_logger

logger = get_logger(__name__)


class Maintenance:
    """Runs a few quick jobs every ``period_s`` seconds on the loop."""

    def __init__(self, jobs: Sequence[Callable[[], None]], period_s: float) -> None:
        self._jobs = jobs
        self._period_s = period_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Run for the first time one period from now."""
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._run)

    def stop(self) -> None:
        """Run no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        for job in self._jobs:
            try:
                job()
            except Exception:
                logger.exception("a periodic job of the broker failed")
        self.start()
