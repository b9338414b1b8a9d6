"""Background work of the store: timers on the event loop, and threads for blocking calls.

An error never ends a timer. It is logged and, when writes have to stop, reported to the write gate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from raptormq.errors import StorageError
from raptormq.logs import get_logger

logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 3
_SLICE_S = 0.002


class Executor(Protocol):
    """Runs blocking calls."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` in another thread and return its result."""


class Background:
    """Timers and threads of one store. All methods are called on the thread of ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        """Call ``work`` every ``interval_ms``, counted from the end of the previous call. A returned coroutine is
        awaited.
        """
        self._tasks.append(self._loop.create_task(self._repeat(interval_ms / 1000, work)))

    async def _repeat(self, interval_s: float, work: Callable[[], object]) -> None:
        trouble = ""
        while True:
            await asyncio.sleep(interval_s)
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
                trouble = ""
            except StorageError as error:
                # The error repeats at every interval until it is resolved: one line is enough.
                if str(error) != trouble:
                    trouble = str(error)
                    logger.error("%s", trouble)
            except Exception:
                logger.exception("background work of the store failed")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` in a thread and return its result."""
        return await self._loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def stop(self) -> None:
        """Cancel the timers and wait for the threads. Work that has begun is finished."""
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=True)


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield ``items``, and yield to the event loop every 2 ms.

    The interval is a time and not a number of items, because on a busy loop one iteration takes milliseconds and
    frequent pauses would stall the caller.
    """
    pause_at = time.monotonic() + _SLICE_S
    for item in items:
        yield item
        if time.monotonic() > pause_at:
            await asyncio.sleep(0)
            pause_at = time.monotonic() + _SLICE_S
