"""Blocking work in a thread that completes even if the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_completion(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result. A cancelled caller also waits for the end of ``work``, because
    the caller then closes the files that ``work`` uses.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
