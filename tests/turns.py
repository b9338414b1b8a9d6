"""Counts iterations of the event loop, in which other tasks can run during a long operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted_turns() -> Iterator[Callable[[], int]]:
    """Context that counts iterations of the event loop. It yields a function that returns the number."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    try:
        yield lambda: turns
    finally:
        counting.cancel()


async def some_turns(count: int = 20) -> None:
    """Let all tasks run that are ready. Those that still wait afterwards wait for another event."""
    for _ in range(count):
        await asyncio.sleep(0)
