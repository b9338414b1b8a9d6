"""Background services: delivery of delayed messages, transaction checks, revival of popped messages, conversions."""

from __future__ import annotations

import asyncio
from typing import Protocol

from raptormq.logs import get_logger

logger = get_logger(__name__)


class BackgroundService(Protocol):
    """A service that runs while the store is open. A member of a replication group runs it only as leader."""

    def start(self) -> None:
        """Start in the running event loop. Must not block and must not raise."""

    def role_changed(self, *, leads: bool) -> None:
        """Handle the beginning or end of this member's leadership. At the end the service must stop writing and discard
        its state, because another member may continue its work. :meth:`stop` follows. Must not raise.
        """

    async def stop(self) -> None:
        """Finish the work in progress and stop. May be called without a start. Must not raise."""


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel the task of a service and wait for its end. If the task has failed, log its error."""
    task.cancel()
    # `await task` could not distinguish a cancellation of the caller from the cancellation of the task.
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a background task had failed: %s", error, exc_info=error)
