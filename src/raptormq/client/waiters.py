"""Who waits for the outcome of a send: the one who awaits a future, or a callback that is called with it.

A callback costs a fifth of a future, whose callbacks take a turn of the loop each.
Neighbours: `open_batch` keeps waiters, `departures` tells them. Source: RocketMQ `SendCallback`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from raptormq.client.results import SendResult

log = logging.getLogger(__name__)

CLOSED = "the producer was closed before the broker answered"
CALLBACK_FAILED = "a callback of a send has failed"
Callback = Callable[[SendResult | BaseException], None]
"""Called once, with what `Producer.send` would have returned or raised."""
Waiter = asyncio.Future[SendResult] | Callback


def tell(waiter: Waiter, outcome: SendResult | BaseException) -> None:
    """Tell one; a future that is done already stays as it is, an error of a callback is logged."""
    if not isinstance(waiter, asyncio.Future):
        try:
            waiter(outcome)
        except Exception:
            log.exception(CALLBACK_FAILED)
    elif not waiter.done():
        if isinstance(outcome, BaseException):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


def fail(waiters: Iterable[Waiter], error: BaseException) -> None:
    """Tell all of them about an error."""
    for waiter in waiters:
        tell(waiter, error)


def is_given_up(waiter: Waiter | None) -> bool:
    """Whether nobody wants to know any more."""
    return isinstance(waiter, asyncio.Future) and waiter.cancelled()
