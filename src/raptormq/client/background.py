"""Background tasks that run until cancelled, and concurrent calls that must all complete.

An unexpected error in a task is logged immediately. asyncio logs it only when the task is garbage-collected.

Code of the application may raise any `BaseException`, such as those of `pytest.fail` or of a `BaseExceptionGroup`. Its
callers treat all of them as failures of this code, except those that end the program or the coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from raptormq.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

CANCELLED_S = 1.0
"""Seconds in which cancelled code of the application has to end."""

PROGRAM_ENDS = KeyboardInterrupt, SystemExit, GeneratorExit
"""Errors that are not failures of the code that raises them: the program ends, or a coroutine is closed."""


def background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start `work` as a task. The caller must keep a reference and cancel it."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def sleep_forever() -> None:
    """Wait until the task is cancelled."""
    await asyncio.get_running_loop().create_future()


async def cancel_all(tasks: Iterable[asyncio.Task[T]], timeout: float | None = None) -> set[asyncio.Task[T]]:
    """Cancel tasks and wait up to `timeout` seconds for their end. Return the tasks that are still running, because
    code of the application may ignore the cancellation.
    """
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    return (await asyncio.wait(tasks, timeout=timeout))[1] if tasks else set()


async def gather_all(works: Iterable[Awaitable[object]]) -> None:
    """Run `works` concurrently. Raise the first error after all of them have ended."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _log_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if not isinstance(error, PROGRAM_ENDS):
        log.error("%s ended unexpectedly, which is a bug", task.get_name(), exc_info=error)
