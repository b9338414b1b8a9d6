"""What works beside the requests: delivery of delayed messages, check-back of transactions, revival of popped ones."""

from __future__ import annotations

import asyncio
from typing import Protocol


class BackgroundService(Protocol):
    """Started once the store serves and before clients can find the broker; stopped before the store closes."""

    def start(self) -> None:
        """Begin, inside the running loop; must not wait and must not raise."""

    async def stop(self) -> None:
        """End soon and finish what is half done; may be called without a start, and must not raise."""


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel what a service does and wait for its end; what made it fail is raised."""
    task.cancel()
    await asyncio.wait([task])  # a cancellation of who waits here stays one
    if not task.cancelled():
        task.result()
