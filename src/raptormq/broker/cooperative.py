"""Cooperative work on the event loop, and monotonic clocks.

:func:`run_cooperatively` yields to the event loop during very large requests, and :func:`written` encodes large
responses in a thread. A topic may have 65,536 queues, and a client as many subscriptions.

:func:`steady_ms` is a monotonic clock, which is independent of changes of the system clock. :func:`steady_time_of_day`
returns a monotonic clock that starts at the time of day.

:mod:`raptormq.storage.background` provides cooperative iteration.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from raptormq.protocol.bodies.steps import Steps


def steady_ms() -> int:
    """Return the time of a monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000


def steady_time_of_day(clock: Callable[[], int]) -> Callable[[], int]:
    """Return a monotonic clock (ms) that starts at the current time of ``clock``."""
    offset = clock() - steady_ms()
    return lambda: offset + steady_ms()


T = TypeVar("T")

STEPS_PER_YIELD = 64
"""Number of steps between two yields to the event loop. Steps are short and of similar length."""
LARGE_BODY_BYTES = 32_768
"""Minimum size of a request body whose items are processed cooperatively."""
_LARGE = 2_048
"""Minimum number of items of a body that is encoded in a thread."""


async def run_cooperatively(steps: Steps[T]) -> T:
    """Execute ``steps`` and return their result. Yields to the event loop every :data:`STEPS_PER_YIELD` steps."""
    while True:
        try:
            for _ in range(STEPS_PER_YIELD):
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


async def written(write: Callable[[], bytes], count: int) -> bytes:
    """Return the result of ``write``, which encodes ``count`` items. Many items are encoded in a thread. Callers must
    not change the items during the call.
    """
    return await asyncio.to_thread(write) if count >= _LARGE else write()
