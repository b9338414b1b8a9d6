"""Background services: delivery of delayed messages, transaction checks, revival of popped messages, conversions."""

from __future__ import annotations

import asyncio
from typing import Protocol


class BackgroundService(Protocol):
    """Started after the store opens and before the broker registers; stopped before the store closes."""

    def start(self) -> None:
        """Start in the running event loop. Must neither block nor raise."""

    async def stop(self) -> None:
        """Stop soon and finish the work in progress. May be called without a start. Must not raise."""


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel the task of a service and wait for its end; its error is raised."""
    task.cancel()
    # Unlike `await task`, this keeps a cancellation of the caller distinct from that of the task
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
