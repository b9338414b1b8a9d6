"""Waiting for what nobody reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(reached: Callable[[], bool]) -> None:
    """Return when `reached()` is true; the time limit of the test bounds it."""
    while not reached():
        await asyncio.sleep(0.01)
