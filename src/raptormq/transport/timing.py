"""Backoff, waiting for an event with a time-out, and a one-shot timer.

- :class:`Backoff` computes exponential pauses between attempts.
- :func:`wait_event` waits for an event or a time-out, for tasks that run periodically and on demand.
- :class:`OneShotTimer` schedules one call at a time; the memory budgets use it for their periodic checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

_MAX_DOUBLINGS = 32
"""Exceeds any limit; prevents an overflow, since 2.0 ** 1024 is not a float."""


class Backoff(NamedTuple):
    """Exponential backoff: pauses that double from ``first`` to ``longest``, both in seconds."""

    first: float
    longest: float

    def pause(self, earlier: int) -> float:
        """Return the length in seconds of the pause that follows ``earlier`` pauses."""
        return min(self.first * 2.0 ** min(earlier, _MAX_DOUBLINGS), self.longest)


async def wait_event(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, at most ``seconds``; None waits without a limit.

    ``asyncio.wait_for`` is not used: before Python 3.12 it loses a cancellation that arrives in the same event loop
    iteration as the event, and the caller of ``cancel`` waits for ever
    (https://github.com/python/cpython/issues/86296).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class OneShotTimer:
    """Calls ``callback`` once per scheduling, in the running event loop."""

    __slots__ = ("_callback", "_timer")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> None:
        """Schedule the call in ``seconds``; no effect if a call is scheduled already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._callback)

    def cancel(self) -> None:
        """Cancel the scheduled call. ``callback`` must call this before it schedules another call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
