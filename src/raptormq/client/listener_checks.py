"""Checks of asynchronous functions of the application, before and after their call.

A lambda, a decorated function or an object may also return an awaitable, which only a call reveals. Before the call,
the checks reject values that are not callable, generator functions, and functions whose declared result is not
awaitable. A plain `def` without an annotation causes a warning. See also: `consumer.push_consumer` and
`consumer.listener_call` for listeners, `producer.transactions` for checks and local transactions. Java has no
asynchronous listeners.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Awaitable
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from raptormq.errors import ClientError
from raptormq.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")
_VALUES = (NoneType, bool, int, list, set, tuple, enum.Enum)
"""Result types of listeners and checks; none is awaitable."""


def require_async(function: Any, what: str) -> None:
    """Check a function before it is called.

    Raises:
        ClientError: the function cannot be called, or does not return an awaitable.
    """
    if not callable(function):
        raise ClientError(f"{what} must be an async function, not {function!r}")
    code = _code(function)
    if inspect.iscoroutinefunction(code) or hasattr(
        code, "__wrapped__"
    ):  # a decorator keeps the annotations of the function
        return
    if _yields(code) or _returns_a_value(code):
        raise ClientError(f"{what} must be async def, not {function!r}")


def warn_if_plain(function: Any, what: str) -> None:
    """Log a warning for a plain `def` that may not return an awaitable."""
    code = _code(function)
    if (
        (inspect.isfunction(code) or inspect.ismethod(code))
        and not inspect.iscoroutinefunction(code)
        and not inspect.iscoroutinefunction(function)  # objects may be marked as coroutine functions, such as AsyncMock
        and not hasattr(code, "__wrapped__")
        and "return" not in code.__annotations__
        and code.__name__ != "<lambda>"
    ):
        log.warning(
            "%s should be async def, and %r is a plain function: its first call fails unless it returns an "
            "awaitable; write async def, or annotate the result as Awaitable",
            *(what, function),
        )


def _code(function: Any) -> Any:
    """Return the function that runs when a function, an object or a partial is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _yields(code: Any) -> bool:
    """Whether the function returns a generator that cannot be awaited; those of `types.coroutine` can."""
    is_old_coroutine = inspect.isgeneratorfunction(code) and code.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE
    return inspect.isasyncgenfunction(code) or (inspect.isgeneratorfunction(code) and not is_old_coroutine)


def _returns_a_value(code: Any) -> bool:
    """Whether the function declares a result that cannot be awaited."""
    declared = getattr(code, "__annotations__", {}).get("return", code)
    if declared in (None, "None"):
        return True
    try:
        declared = get_type_hints(code).get("return", code)
    except (
        NameError,
        TypeError,
        AttributeError,
        SyntaxError,
        ValueError,
    ):  # for example, names that are not defined here
        return False
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    classes = [get_origin(kind) or kind for kind in kinds]
    return all(
        isinstance(each, type) and issubclass(each, _VALUES) and not issubclass(each, Awaitable) for each in classes
    )


def require_awaitable(result: Awaitable[T], what: str, error: type[ClientError] = ClientError) -> Awaitable[T]:
    """Return `result` if it is awaitable; otherwise raise `error`, because the function is a plain function that has
    already run.
    """
    if not inspect.isawaitable(result):
        raise error(f"{what} must be async def: it returned {result!r}, which cannot be awaited")
    return result
