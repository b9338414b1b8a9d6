"""A task whose result many callers await, such as opening a connection or fetching a route.

A hundred thousand sends may wait for one connection to an unresponsive broker. With `asyncio.shield`, removing a caller
that times out is a linear search, and all callers that time out together are woken in one event loop iteration. Both
block the loop for seconds. :class:`SharedTask` removes a caller in constant time, has one timer for all callers, and
wakes a bounded number of callers per iteration (:func:`complete_in_batches`).

See also: :mod:`~raptormq.transport.pool`, `raptormq.client.cluster.routes` and `raptormq.client.cluster.reconnector`
use it, and :mod:`~raptormq.transport.requests` implements the deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from raptormq.errors import ClientClosed
from raptormq.transport.requests import TimedWaiters, complete_in_batches

T = TypeVar("T")


class SharedTask(Generic[T]):
    """Runs the coroutine `work` once; all callers share its result.

    Args:
        work: the coroutine to run.
        name: the name of the task.
        closed: the text of the `ClientClosed` that callers get if the task is cancelled.
    """

    def __init__(self, work: Coroutine[Any, Any, T], name: str, closed: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = closed
        self._waiters: TimedWaiters[T] = TimedWaiters()
        self.task = self._loop.create_task(work, name=name)
        """The task. It continues when a caller is cancelled."""
        self.task.add_done_callback(self._end)

    @property
    def is_awaited(self) -> bool:
        """Whether any caller waits."""
        return bool(self._waiters)

    async def wait(self, deadline: float | None = None) -> T:
        """Return the result, or raise the error of the task.

        Args:
            deadline: a loop time in seconds, with a resolution of about 0.1 s.

        Raises:
            TimeoutError: the deadline has passed; the task continues.
            ClientClosed: the task was cancelled.
        """
        if self.task.done():
            return self._result()
        return await self._waiters.wait(self._loop.create_future(), deadline)

    def _result(self) -> T:
        if self.task.cancelled():
            raise ClientClosed(self._closed)
        return self.task.result()

    def _end(self, task: asyncio.Task[T]) -> None:
        error = ClientClosed(self._closed) if task.cancelled() else task.exception()
        waiting = self._waiters.take_all()
        if error is None:
            result = task.result()
            complete_in_batches(waiting, lambda future: future.set_result(result))
        else:
            complete_in_batches(waiting, lambda future: future.set_exception(error))
