"""Blocking work in a thread that must complete before its caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_completion(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result. A cancelled caller still waits for the end, because the files
    that ``work`` uses are closed afterwards.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
