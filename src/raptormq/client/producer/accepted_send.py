"""The outcome of a send whose message is in a batch already, in the form of a coroutine.

`Producer.send` returns a coroutine. With AutoBatch it adds the message to a batch at once, if the message does not have
to wait, and returns an `AcceptedSend`. `asyncio.gather`, `wait_for` and `shield` wrap a coroutine in a task, which adds
half of the time that the rest of a send takes, but take a future as it is. `asyncio.create_task` and
`TaskGroup.create_task` take coroutines only. An `AcceptedSend` is both::

                              future             coroutine
    await, gather, wait_for   waits for it
    create_task                                  send() yields the future to the task, then raises its outcome
    cancellation              cancel()           throw() cancels: a message in an open batch is not sent

See also: `producer.producer` creates it, `producer.callbacks` completes it. There is no counterpart in Java.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

from raptormq.client.results import SendResult

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, object]])


class AcceptedSend(asyncio.Future[SendResult], Coroutine[Any, Any, SendResult]):
    """A future with the methods of a coroutine."""

    __slots__ = ()

    def send(self, _: None, /) -> AcceptedSend:
        """Yield this future until it is done, then end with its outcome."""
        if self.done():
            raise StopIteration(self.result())
        self._asyncio_future_blocking = True  # tells the task that it is awaited
        return self

    def throw(
        self, kind: type[BaseException] | BaseException, value: object = None, trace: TracebackType | None = None, /
    ) -> NoReturn:
        """Cancel the send, and end with the exception."""
        self.cancel()
        raise kind

    def close(self) -> None:
        """Cancel the send."""
        self.cancel()


class Cancellable(Protocol):
    """A message whose send can be cancelled."""

    def cancelled(self) -> None:
        """Called when the future of the message was cancelled."""


class WaitingFuture(asyncio.Future[SendResult]):
    """The outcome of a submitted message that waits for the limits. A cancellation is passed to the message directly,
    because a callback of the future would take more memory than all other parts.
    """

    __slots__ = ("in_line",)

    in_line: Cancellable | None
    """The message while it waits."""

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the send: a message that still waits is not sent."""
        is_new = super().cancel(msg)
        if is_new and self.in_line is not None:
            self.in_line.cancelled()
        return is_new


class WaitingSend(WaitingFuture, AcceptedSend):
    """The outcome of `Producer.send` while the message waits. `asyncio.wait` refuses it, like all coroutines."""

    __slots__ = ()


def returns_coroutine(function: F) -> F:
    """Mark a function as async for libraries that ask, such as `unittest.mock`: it returns a coroutine."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    return function
