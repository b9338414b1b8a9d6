"""What works beside the requests: delivery of delayed messages, check-back of transactions, revival of popped ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol


class BackgroundService(Protocol):
    """Started once the store serves and before clients can find the broker; stopped before the store closes."""

    def start(self) -> None:
        """Begin, inside the running loop; must not wait and must not raise."""

    async def stop(self) -> None:
        """End soon and finish what is half done; may be called without a start, and must not raise."""


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel what a service does and wait for its end; what made it fail is raised."""
    task.cancel()
    await asyncio.wait([task])  # a cancellation of who waits here stays one
    if not task.cancelled():
        task.result()


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or for so long; None waits without end.

    Not ``asyncio.wait_for``: before Python 3.12 it returns in the turn in which the event is set although the task is
    cancelled, and :func:`ended` would wait for ever (https://github.com/python/cpython/issues/86296).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
