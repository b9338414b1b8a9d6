"""A task whose result many callers wait for: a connection that is being made, a route that is being fetched.

A hundred thousand sends may wait for one connection to a broker that does not answer. With `asyncio.shield` each caller
that gives up is searched for among all others, and all callers whose time is over are woken in one turn of the event
loop; both block the loop for seconds. :class:`SharedTask` finds a caller at once, has one timer for all, and wakes a
bounded number of callers per turn (:func:`complete_in_turns`).

Neighbours: :mod:`~raptormq.transport.pool` and `raptormq.client.cluster.routes` wait, and
:mod:`~raptormq.transport.requests` has the deadlines. Source: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from raptormq.errors import ClientClosed
from raptormq.transport.requests import TimedWaiters, complete_in_turns

T = TypeVar("T")


class SharedTask(Generic[T]):
    """Runs `work` once, for all who wait.

    Args:
        work: what to run.
        name: of the task.
        closed: what callers get (`ClientClosed`) when the task is cancelled.
    """

    def __init__(self, work: Coroutine[Any, Any, T], name: str, closed: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = closed
        self._waiters: TimedWaiters[T] = TimedWaiters()
        self.task = self._loop.create_task(work, name=name)
        """The task; a caller that is cancelled leaves it running."""
        self.task.add_done_callback(self._end)

    async def wait(self, deadline: float | None = None) -> T:
        """Return the result, or raise the error of the task.

        Args:
            deadline: loop time, kept to about 0.1 s.

        Raises:
            TimeoutError: the deadline came first; the task goes on.
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
            complete_in_turns(waiting, lambda future: future.set_result(result))
        else:
            complete_in_turns(waiting, lambda future: future.set_exception(error))
