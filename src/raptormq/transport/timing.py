"""Pauses and waits by the clock: before another attempt, for an event, until the next look.

:class:`Backoff` says how long to pause before another attempt: twice as long each time, up to a limit. It is pure.
:mod:`~raptormq.transport.pool` pauses so, and so do the client's loops. Source: none.

:func:`wait_event` waits for an event no longer than a time: what every task does that works by the clock and when it is
woken.

:class:`OneShotTimer` is the timer of who looks again after a while: at most one is set.
:mod:`~raptormq.transport.memory.send_budget` and :mod:`~raptormq.transport.memory.receive_budget` look so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

_MAX_DOUBLINGS = 32
"""Beyond any limit; attempts go on for as long as they are wanted, and 2.0 ** 1024 is no float."""


class Backoff(NamedTuple):
    """Pauses that double from ``first`` to ``longest``, both in seconds."""

    first: float
    longest: float

    def pause(self, earlier: int) -> float:
        """Return the seconds to wait after `earlier` pauses for the same reason."""
        return min(self.first * 2.0 ** min(earlier, _MAX_DOUBLINGS), self.longest)


async def wait_event(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or for so long; None waits without end.

    Not ``asyncio.wait_for``: before Python 3.12 it returns in the turn in which the event is set although the task is
    cancelled, and who waits for its end waits for ever (https://github.com/python/cpython/issues/86296).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class OneShotTimer:
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
