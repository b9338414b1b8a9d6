"""What waits for one of several workers, who are woken one by one.

A worker that is woken takes as much as it can. Only one that has to wait for something wakes the next, so that a
hundred batches whose listener waits for nothing cost one turn of the event loop and not a hundred.
Neighbour: `listening`, whose workers call listeners. Source: none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkLine(Generic[T]):
    """A line without bounds; first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._someone_comes = False
        """A worker was woken and has not looked yet."""

    def put(self, work: T) -> None:
        """Append to the line."""
        self._waiting.append(work)
        if not self._someone_comes:
            self.share()

    async def take(self) -> T:
        """Return the first of the line, waiting for one. Who has to wait while working on it calls `share` before."""
        while not self._waiting:
            call = asyncio.get_running_loop().create_future()
            self._idle.append(call)
            try:
                await call
            except asyncio.CancelledError:
                if call.done() and not call.cancelled():  # it was woken, another one has to come in its place
                    self._someone_comes = False
                    self.share()
                raise
            self._someone_comes = False
        return self._waiting.popleft()

    def share(self) -> None:
        """Wake another worker if there is something left to do."""
        while self._waiting and self._idle:
            call = self._idle.popleft()
            if not call.done():  # else its worker was cancelled
                call.set_result(None)
                self._someone_comes = True
                return
