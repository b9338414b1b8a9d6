"""When what failed is tried again: later and later while it fails alike. Pure; clock and chance are passed in.

The wait doubles from `first` to `most` and varies by a fifth either way, so that a thousand objects that failed at the
same moment do not stay in step. Another cause, or a success in between, begins anew: something has moved.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class _Failing:
    cause: str
    count: int
    due: float


class Retries(Generic[T]):
    """Waits in seconds, by the name of what failed."""

    def __init__(
        self,
        first: float,
        most: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._most = most
        self._clock = clock
        self._vary = vary
        self._failing: dict[T, _Failing] = {}

    def failed(self, name: T, cause: str = "") -> float:
        """It failed; returns how long to wait. An attempt that came before its time, because something else happened,
        changes nothing when it fails alike."""
        before = self._failing.get(name)
        alike = before is not None and before.cause == cause
        if before is not None and alike and before.due > self._clock():
            return before.due - self._clock()
        count = before.count + 1 if before is not None and alike else 0
        wait = min(self._most, self._first * 2.0 ** min(count, 32)) * (0.8 + 0.4 * self._vary())
        self._failing[name] = _Failing(cause, count, self._clock() + wait)
        return wait

    def succeeded(self, name: T) -> None:
        """It is well, or gone: nothing is to be tried again."""
        self._failing.pop(name, None)

    def is_due(self, name: T) -> bool:
        """Whether its time has come; True for what has not failed."""
        failing = self._failing.get(name)
        return failing is None or failing.due <= self._clock()

    def wait(self, name: T) -> float:
        """Seconds until it is due; 0 for what has not failed."""
        failing = self._failing.get(name)
        return 0.0 if failing is None else max(0.0, failing.due - self._clock())

    def due(self) -> set[T]:
        """Everything whose time has come."""
        now = self._clock()
        return {name for name, failing in self._failing.items() if failing.due <= now}

    def next_wait(self) -> float | None:
        """Seconds until the first one is due; None when nothing failed."""
        first = min((failing.due for failing in self._failing.values()), default=None)
        return None if first is None else max(0.0, first - self._clock())
