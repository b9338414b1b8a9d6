"""Polling of a condition without an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(reached: Callable[[], bool]) -> None:
    """Wait until `reached()` is true. The time limit of the test bounds the wait."""
    while not reached():
        await asyncio.sleep(0.01)
