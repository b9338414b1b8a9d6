"""Waiting for an event no longer than a time: what every task does that works by the clock and when it is woken."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or for so long; None waits without end.

    Not ``asyncio.wait_for``: before Python 3.12 it returns in the turn in which the event is set although the task is
    cancelled, and who waits for its end waits for ever (https://github.com/python/cpython/issues/86296).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
