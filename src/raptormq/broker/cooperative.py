"""Time on the broker's event loop: long requests that let others have their turn, and a clock for time limits.

:func:`run_cooperatively` and :func:`written` yield to the event loop during very large requests:
a topic may have 65,536 queues, a client as many subscriptions.

:func:`steady_ms` is the clock of time limits inside the broker: it never jumps, unlike the time of day, which people
and NTP set. :func:`steady_time_of_day` starts at the time of day and does not jump either.

Neighbour: :mod:`raptormq.storage.background` has the loop over many things.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from raptormq.protocol.bodies.steps import Steps


def steady_ms() -> int:
    """Return ms since some moment in the past."""
    return time.monotonic_ns() // 1_000_000


def steady_time_of_day(clock: Callable[[], int]) -> Callable[[], int]:
    """Return a clock (ms) that shows the time of day that ``clock`` shows now and is not set with it later."""
    offset = clock() - steady_ms()
    return lambda: offset + steady_ms()


T = TypeVar("T")

STEPS_PER_YIELD = 64
"""Steps that are worked off before other requests have their turn: they are small, and alike."""
LARGE_BODY_BYTES = 32_768
"""Bodies from which on a request is worked off in turns, where it names many things."""
_LARGE = 2_048
"""Items from which on a body is written by a thread."""


async def run_cooperatively(steps: Steps[T]) -> T:
    """Return the result of ``steps``; others have their turn after every few."""
    while True:
        try:
            for _ in range(STEPS_PER_YIELD):
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


async def written(write: Callable[[], bytes], count: int) -> bytes:
    """Return what ``write`` makes of ``count`` items; a thread does it for many, which nobody else may change."""
    return await asyncio.to_thread(write) if count >= _LARGE else write()
