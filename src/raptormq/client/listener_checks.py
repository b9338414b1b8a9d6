"""What is to be called and awaited: refused where it cannot be, and named where its answer cannot be.

Not only `async def` will do: a lambda, a decorated function or an object may return something to be awaited, which
shows when it is called. What shows before is whether it can be called, and a plain `def` that yields, or is declared to
return what nobody can await. One that declares nothing is warned of.
Neighbours: `consumer.push_consumer` and `consumer.listener_pool` for listeners, `producer.transactions` and
`producer.transactions` for theirs. Source: none, Java's listeners are not asynchronous.
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
"""What listeners and checks return once they are awaited; none can be awaited itself."""


def require_async(function: Any, what: str) -> None:
    """Look at a function before it is called.

    Raises:
        ClientError: it cannot be called, or returns nothing that can be awaited.
    """
    if not callable(function):
        raise ClientError(f"{what} is an async function, not {function!r}")
    code = _code(function)
    if inspect.iscoroutinefunction(code) or hasattr(code, "__wrapped__"):  # a decorator leaves the annotations it finds
        return
    if _yields(code) or _returns_a_value(code):
        raise ClientError(f"{what} must be async def, {function!r} is not")


def warn_if_plain(function: Any, what: str) -> None:
    """Log a warning of a `def` of which nobody can tell before its first call whether its answer can be awaited."""
    code = _code(function)
    if (
        (inspect.isfunction(code) or inspect.ismethod(code))
        and not inspect.iscoroutinefunction(code)
        and not inspect.iscoroutinefunction(function)  # which objects may say of themselves, AsyncMock for one
        and not hasattr(code, "__wrapped__")
        and "return" not in code.__annotations__
        and code.__name__ != "<lambda>"
    ):
        log.warning(
            "%s should be async def, and %r is a plain one: unless what it returns can be awaited, its first call "
            "fails; write async def, or declare that it returns an Awaitable",
            *(what, function),
        )


def _code(function: Any) -> Any:
    """Return what is run when the function, the object or the partial is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _yields(code: Any) -> bool:
    """Whether it returns a generator; of those some can be awaited, and tell it (`types.coroutine`)."""
    is_old_coroutine = inspect.isgeneratorfunction(code) and code.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE
    return inspect.isasyncgenfunction(code) or (inspect.isgeneratorfunction(code) and not is_old_coroutine)


def _returns_a_value(code: Any) -> bool:
    """Whether it declares to return nothing but what cannot be awaited."""
    declared = getattr(code, "__annotations__", {}).get("return", code)
    if declared in (None, "None"):
        return True
    try:
        declared = get_type_hints(code).get("return", code)
    except (NameError, TypeError, AttributeError, SyntaxError, ValueError):  # for one, names that are not known here
        return False
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    classes = [get_origin(kind) or kind for kind in kinds]
    return all(
        isinstance(each, type) and issubclass(each, _VALUES) and not issubclass(each, Awaitable) for each in classes
    )


def require_awaitable(result: Awaitable[T], what: str, error: type[ClientError] = ClientError) -> Awaitable[T]:
    """Return what a function has returned, to be awaited; raises `error` when it cannot be: it was a plain function and
    has run to its end.
    """
    if not inspect.isawaitable(result):
        raise error(f"{what} must be async def: it has returned {result!r}, which cannot be awaited")
    return result
