"""Turns of the event loop, counted: who else would have been served while something was worked off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted_turns() -> Iterator[Callable[[], int]]:
    """How many turns the loop has had: what it yields says so when it is called."""
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
    """Let everybody who can go on do so: what still waits after that waits for something else."""
    for _ in range(count):
        await asyncio.sleep(0)
