"""Waiters for the outcome of a send: a future or a callback.

A callback takes a fifth of the time of a future, whose callbacks need an iteration of the event loop each. See also:
`producer.open_batch` keeps waiters, `producer.batch_sender` completes them. Source: RocketMQ `SendCallback`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable

from raptormq.client.background import PROGRAM_ENDS
from raptormq.client.results import SendResult
from raptormq.errors import ClientError
from raptormq.logs import get_logger

log = get_logger(__name__)

CLOSED = "the producer was closed before the broker responded"
Callback = Callable[[SendResult | BaseException], None]
"""Called once, with the value that `Producer.send` would have returned or raised."""
Waiter = asyncio.Future[SendResult] | Callback


def require_callback(callback: object) -> None:
    """Check that a callback can be called and is a plain function.

    Raises:
        ClientError: the callback cannot be called, or is async.
    """
    if not callable(callback):
        raise ClientError(f"the callback must be a function of one argument, not {callback!r}")
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004
        raise ClientError(
            f"the callback must be a plain function, but {callback!r} is async: await submit or send instead"
        )


def complete_all(outcomes: Iterable[tuple[Waiter, SendResult | BaseException]]) -> None:
    """Complete each waiter with its outcome. A future that is done is not changed; exceptions of callbacks are
    logged."""
    future = asyncio.Future
    for waiter, outcome in outcomes:
        if not isinstance(waiter, future):
            try:
                waiter(outcome)
            except PROGRAM_ENDS:
                raise
            except BaseException:  # code of the application; the waiters after it need their outcomes
                log.exception("the callback of a send failed")
        elif not waiter.done():
            if isinstance(outcome, BaseException):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)


def complete(waiter: Waiter, outcome: SendResult | BaseException) -> None:
    """Complete one waiter, like `complete_all`."""
    complete_all([(waiter, outcome)])


def fail_all(waiters: Iterable[Waiter], error: BaseException) -> None:
    """Complete all waiters with an error."""
    complete_all((waiter, error) for waiter in waiters)


def is_cancelled(waiter: Waiter | None) -> bool:
    """Return whether the sender has cancelled the send."""
    return isinstance(waiter, asyncio.Future) and waiter.cancelled()
