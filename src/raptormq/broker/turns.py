"""Answers about tens of thousands of queues are made in turns with other requests: a topic may have 65,536 queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_A_TIME = 64
"""Items that are looked at before other requests have their turn."""
_LARGE = 2_048
"""Items from which on a body is written by a thread."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield ``items``; others have their turn after every few."""
    for number, item in enumerate(items, 1):
        yield item
        if number % AT_A_TIME == 0:
            await asyncio.sleep(0)


async def written(write: Callable[[], bytes], count: int) -> bytes:
    """Return what ``write`` makes of ``count`` items; a thread does it for many, which nobody else may change."""
    return await asyncio.to_thread(write) if count >= _LARGE else write()
