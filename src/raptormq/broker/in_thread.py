"""Work that waits for the disk before the loop serves anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_completion(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, which a thread does. Who is cancelled waits until it is over all the same: the
    files that it uses are closed afterwards.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
