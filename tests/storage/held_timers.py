"""Timers of a store that a test advances, so that tests do not depend on the speed of the machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from raptormq.errors import StorageError
from raptormq.storage import MessageStore
from raptormq.storage.background import Background

P = ParamSpec("P")
T = TypeVar("T")


class HeldTimers(Background):
    """Runs due timers in order when the time is advanced, and functions for threads immediately."""

    def __init__(self, store: MessageStore) -> None:
        self.now_ms = 0
        self._timers: list[tuple[int, Callable[[], object]]] = []
        self._due: list[int] = []
        assert store._opened is not None
        flusher = store._flusher

        async def reach(end_offset: int) -> None:
            flusher.flush()

        flusher.wait_flushed = reach  # type: ignore[method-assign]  # its thread does not run here
        store._opened.maintenance.start(self, lambda size: None)

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        """See :class:`Background`."""
        self._timers.append((interval_ms, work))
        self._due.append(interval_ms)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See :class:`Background`."""
        return work(*args, **kwargs)

    async def advance(self, ms: int) -> None:
        """Advance the time."""
        end = self.now_ms + ms
        while (due := min(self._due)) <= end:
            self.now_ms = due
            number = self._due.index(due)
            interval_ms, work = self._timers[number]
            self._due[number] += interval_ms
            try:
                result = work()
                if inspect.iscoroutine(result):
                    await result
            except StorageError:
                pass  # the gate logs it
        self.now_ms = end
