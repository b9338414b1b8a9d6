"""Who waits for the outcome of a send: the one who awaits a future, or a callback that is called with it.

A callback costs a fifth of a future, whose callbacks take a turn of the loop each.
Neighbours: `producer.open_batch` keeps waiters, `producer.batch_sender` tells them. Source: RocketMQ `SendCallback`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable

from raptormq.client.results import SendResult
from raptormq.errors import ClientError
from raptormq.logs import get_logger

log = get_logger(__name__)

CLOSED = "the producer was closed before the broker answered"
Callback = Callable[[SendResult | BaseException], None]
"""Called once, with what `Producer.send` would have returned or raised."""
Waiter = asyncio.Future[SendResult] | Callback


def require_callback(callback: object) -> None:
    """Look whether it can be called, and needs nobody to await what it returns.

    Raises:
        ClientError: it cannot, or does.
    """
    if not callable(callback):
        raise ClientError(f"a callback is a function of one argument, not {callback!r}")
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004
        raise ClientError(f"a callback is a plain function, nobody awaits {callback!r}: use submit or send for that")


def complete_all(outcomes: Iterable[tuple[Waiter, SendResult | BaseException]]) -> None:
    """Tell each its outcome; a future that is done already stays as it is, an error of a callback is logged."""
    future = asyncio.Future
    for waiter, outcome in outcomes:
        if not isinstance(waiter, future):
            try:
                waiter(outcome)
            except (Exception, asyncio.CancelledError):  # one of its own futures may have been cancelled
                log.exception("a callback of a send has failed")
        elif not waiter.done():
            if isinstance(outcome, BaseException):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)


def complete(waiter: Waiter, outcome: SendResult | BaseException) -> None:
    """Tell one, as `tell_all` does."""
    complete_all([(waiter, outcome)])


def fail_all(waiters: Iterable[Waiter], error: BaseException) -> None:
    """Tell all of them about an error."""
    complete_all((waiter, error) for waiter in waiters)


def is_cancelled(waiter: Waiter | None) -> bool:
    """Whether nobody wants to know any more."""
    return isinstance(waiter, asyncio.Future) and waiter.cancelled()
