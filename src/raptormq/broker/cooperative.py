"""Cooperative work on the event loop, and clocks for time limits.

:func:`run_cooperatively` and :func:`written` yield to the event loop during very large requests: a topic may have
65,536 queues, and a client as many subscriptions.

:func:`steady_ms` is a monotonic clock: unlike the time of day it is never set by people or NTP.
:func:`steady_time_of_day` starts at the time of day and is monotonic too.

:mod:`raptormq.storage.background` has the loop over many items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from raptormq.protocol.bodies.steps import Steps


def steady_ms() -> int:
    """Return the ms of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def steady_time_of_day(clock: Callable[[], int]) -> Callable[[], int]:
    """Return a monotonic clock (ms) that starts at the current time of ``clock``."""
    offset = clock() - steady_ms()
    return lambda: offset + steady_ms()


T = TypeVar("T")

STEPS_PER_YIELD = 64
"""Steps between two yields to the event loop. Steps are short and of similar length."""
LARGE_BODY_BYTES = 32_768
"""Size of a request body from which on its items are processed cooperatively."""
_LARGE = 2_048
"""Number of items from which on a body is encoded in a thread."""


async def run_cooperatively(steps: Steps[T]) -> T:
    """Return the result of ``steps``; yields to the event loop every :data:`STEPS_PER_YIELD` steps."""
    while True:
        try:
            for _ in range(STEPS_PER_YIELD):
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


async def written(write: Callable[[], bytes], count: int) -> bytes:
    """Return the result of ``write``, which encodes ``count`` items. Large bodies are encoded in a thread; nothing else
    may change the items meanwhile.
    """
    return await asyncio.to_thread(write) if count >= _LARGE else write()
