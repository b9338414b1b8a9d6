"""What is to be called and awaited: refused where it cannot be, and named where its answer cannot be.

Not only `async def` will do: a lambda, a decorated function or an object may return something to be awaited, which
shows when it is called. What shows before is whether it can be called, and a plain `def` declared to return None.
Neighbours: `push_consumer` and `listening` for listeners, `transaction_producer` and `transactions` for theirs.
Source: none, Java's listeners are not asynchronous.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

from raptormq.errors import ClientError

T = TypeVar("T")


def require_async(function: Any, what: str) -> None:
    """Look at a function before it is called.

    Raises:
        ClientError: it cannot be called, or returns nothing that can be awaited.
    """
    if not callable(function):
        raise ClientError(f"{what} is an async function, not {function!r}")
    while isinstance(function, functools.partial):
        function = function.func
    code = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(code) or hasattr(code, "__wrapped__"):  # a decorator leaves the annotations it finds
        return
    if getattr(code, "__annotations__", {}).get("return", code) in (None, "None"):
        raise ClientError(f"{what} must be async def, {function!r} is not")


def awaitable(answer: Awaitable[T], what: str, error: type[ClientError] = ClientError) -> Awaitable[T]:
    """Return what a function has returned, to be awaited; raises `error` when it cannot be: it was a plain function and
    has run to its end.
    """
    if not inspect.isawaitable(answer):
        raise error(f"{what} must be async def: it has returned {answer!r}, which cannot be awaited")
    return answer
