"""What waits for one of several workers, who are woken one by one.

A worker that is woken takes as much as it can. Only one that has to wait for something wakes the next, so that a
hundred batches whose listener waits for nothing cost one turn of the event loop and not a hundred; but after `TURN_S`
everything else has its turn: heartbeats, commits and answers must not wait for a thousand calls.
Neighbour: `listening`, whose workers call listeners. Source: none.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
TURN_S = 0.005
"""How long workers that never wait keep the event loop, but for the call that is running."""


class WorkLine(Generic[T]):
    """A line without bounds; first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._someone_comes = False
        """A worker was woken and has not looked yet."""
        self._turn_began: float | None = None
        """When the first worker took something in this turn of the loop; `None`: nobody has."""

    def put(self, work: T) -> None:
        """Append to the line."""
        self._waiting.append(work)
        if not self._someone_comes:
            self.share()

    async def take(self) -> T:
        """Return the first of the line, waiting for one. Who has to wait while working on it calls `share` before."""
        while not self._waiting or self._is_turn_over():
            if self._waiting:
                await asyncio.sleep(0)
            else:
                await self._called()
        return self._waiting.popleft()

    async def _called(self) -> None:
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

    def _is_turn_over(self) -> bool:
        """Whether workers, all together, have had the event loop for long enough in this turn of it."""
        now = time.monotonic()
        if self._turn_began is None:
            self._turn_began = now
            asyncio.get_running_loop().call_soon(self._next_turn)
        return now - self._turn_began > TURN_S

    def _next_turn(self) -> None:
        self._turn_began = None

    def share(self) -> None:
        """Wake another worker if there is something left to do."""
        while self._waiting and self._idle:
            call = self._idle.popleft()
            if not call.done():  # else its worker was cancelled
                call.set_result(None)
                self._someone_comes = True
                return
