"""A coroutine that is begun at once and awaited later, if it has to wait for something.

Most listeners count, compute or write to memory, and are done without waiting. For those neither a time-out has to be
set nor another worker to be woken.
Neighbour: `listening` calls listeners with it. Source: none (Python 3.12 has eager tasks).
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class FirstStep(Generic[T]):
    """Runs a coroutine up to where it waits for the first time; awaited once, it goes on from there.

    What the coroutine raises before it waits is raised by the constructor.
    """

    __slots__ = ("_coroutine", "_waits_for", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self.is_done = False
        self.result = cast("T", None)
        """What the coroutine has returned, once it is done."""
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Do for the rest of the coroutine what `await` does: hand on what it waits for, and how that ended."""
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while not self.is_done:
                try:
                    outcome = yield waits_for
                except BaseException as error:  # noqa: BLE001 (all of it is the coroutine's, a cancellation too)
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(outcome)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value
        return self.result
