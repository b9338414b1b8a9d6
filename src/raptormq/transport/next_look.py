"""The timer of who looks again after a while: at most one is set. :mod:`.answer_budget` and :mod:`.frame_budget` do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class NextLook:
    """Calls ``look`` once, in the loop that runs when it is set."""

    __slots__ = ("_look", "_timer")

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> None:
        """Look by then; does nothing when a look is to come already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def cancel(self) -> None:
        """Do not; ``look`` itself says so first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
