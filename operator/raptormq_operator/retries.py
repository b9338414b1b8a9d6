"""Exponential backoff by key. Pure; the clock and the random source are passed in.

The delay doubles from `first` up to `most`, with a jitter of 20 percent so that objects that failed together are not
retried together. A success or a different cause resets the backoff.
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
    """Backoff delays in seconds, by key."""

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
        """Record a failure and return the delay. A failure with the same cause before the delay has expired does not
        increase it; such an attempt was triggered by an event."""
        before = self._failing.get(name)
        alike = before is not None and before.cause == cause
        if before is not None and alike and before.due > self._clock():
            return before.due - self._clock()
        count = before.count + 1 if before is not None and alike else 0
        wait = min(self._most, self._first * 2.0 ** min(count, 32)) * (0.8 + 0.4 * self._vary())
        self._failing[name] = _Failing(cause, count, self._clock() + wait)
        return wait

    def succeeded(self, name: T) -> None:
        """Remove the key after a success, or when its object was deleted."""
        self._failing.pop(name, None)

    def is_due(self, name: T) -> bool:
        """Return whether the delay has expired; True for a key without failures."""
        failing = self._failing.get(name)
        return failing is None or failing.due <= self._clock()

    def wait(self, name: T) -> float:
        """Return the seconds until the key is due; 0 for a key without failures."""
        failing = self._failing.get(name)
        return 0.0 if failing is None else max(0.0, failing.due - self._clock())

    def due(self) -> set[T]:
        """Return the keys whose delay has expired."""
        now = self._clock()
        return {name for name, failing in self._failing.items() if failing.due <= now}

    def next_wait(self) -> float | None:
        """Return the seconds until the first key is due; None without failures."""
        first = min((failing.due for failing in self._failing.values()), default=None)
        return None if first is None else max(0.0, first - self._clock())
