"""A coroutine that is begun at once and awaited later, if it has to wait for something.

Most listeners count, compute or write to memory, and are done without waiting. For those neither a time-out has to be
set nor another worker to be woken.
Neighbour: `listening` calls listeners with it. Source: none (Python 3.12 has eager tasks).
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar, cast

T = TypeVar("T")


class FirstStep(Generator[Any, Any, T]):
    """Runs a coroutine up to where it waits for the first time; awaited once, it goes on from there.

    What the coroutine raises before it waits is raised by the constructor.
    """

    __slots__ = ("_waits_for", "_was_awaited", "coroutine", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.coroutine = coroutine
        self._waits_for: Any = None
        self._was_awaited = False
        self.is_done = False
        self.result = cast("T", None)
        """What the coroutine has returned, when it waits for nothing."""
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        """Tell what is waited for, at first what the first step has found; ends as the coroutine does."""
        if self.is_done:
            raise StopIteration(self.result)
        if self._was_awaited:
            return self.coroutine.send(value)
        self._was_awaited = True
        return self._waits_for

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise in the coroutine what its waiting has ended with, a cancellation for one."""
        self._was_awaited = True
        return self.coroutine.throw(kind if value is None else value)
