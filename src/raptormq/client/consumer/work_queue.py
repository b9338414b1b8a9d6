"""Work queue for several workers, which are woken one at a time.

A woken worker takes items until the queue is empty. Only a worker that is about to wait wakes the next one
(`WorkQueue.share`), so a hundred items that need no waiting take one iteration of the event loop instead of a hundred.
After `TURN_S` the workers yield to the event loop, so that heartbeats, commits and responses are not delayed by many
items.

See also: `consumer.listener_pool` queues listener calls. Source: none.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

TURN_S = 0.005
"""Maximum time in seconds for which the workers occupy the event loop, not counting the current item."""


class WorkQueue(Generic[T]):
    """An unbounded first-in, first-out queue."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        """Futures of the workers that wait for an item."""
        self._is_waking = False
        """True if a worker was woken and has not run yet."""
        self._turn_began: float | None = None
        """Time at which the first worker took an item in this iteration of the event loop; None if none has."""

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.append(item)
        if not self._is_waking:
            self.share()

    async def take(self) -> T:
        """Remove and return the first item; wait while the queue is empty. A worker must call `share` before it waits
        during the processing of the item.
        """
        while not self._items or self._is_turn_over():
            await self._wait_for_item()
        return self._items.popleft()

    async def _wait_for_item(self) -> None:
        wake_up = asyncio.get_running_loop().create_future()
        self._idle.append(wake_up)
        try:
            await wake_up
        except asyncio.CancelledError:
            if wake_up.done() and not wake_up.cancelled():  # this woken worker was cancelled: wake another one
                self._is_waking = False
                self.share()
            raise
        self._is_waking = False

    def _is_turn_over(self) -> bool:
        """Return whether the workers have occupied the event loop for `TURN_S` in this iteration."""
        now = time.monotonic()
        if self._turn_began is None:
            self._turn_began = now
            asyncio.get_running_loop().call_soon(self._end_turn)
        return now - self._turn_began > TURN_S

    def _end_turn(self) -> None:
        self._turn_began = None
        if not self._is_waking:
            self.share()

    def share(self) -> None:
        """Wake another worker if items are left."""
        while self._items and self._idle:
            wake_up = self._idle.popleft()
            if not wake_up.done():  # a cancelled future belongs to a cancelled worker
                wake_up.set_result(None)
                self._is_waking = True
                return
