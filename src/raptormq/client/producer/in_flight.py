"""Limit of the bytes in flight over all sends of a client.

Without a limit, many concurrent sends of large messages would fill the buffer of a connection, which is closed when its
peer does not keep up. See also: `producer.sender` and `producer.queue_batches` acquire bytes before an attempt and
release them afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque

from raptormq.client.cluster import ClientInstance
from raptormq.transport.requests import TimedWaiters

LIMIT_BYTES = 32 * 1024 * 1024
"""Maximum bytes in flight over all producers of one client."""


class InFlight:
    """A budget of bytes that is granted in FIFO order.

    Args:
        limit_bytes: maximum bytes in flight; a larger message is sent alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._timed: TimedWaiters[None] | None = None
        """The deadlines of `_waiting`."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @classmethod
    def of(cls, _: ClientInstance) -> InFlight:
        """Return the budget of a client, for :meth:`ClientInstance.shared`."""
        return cls(LIMIT_BYTES)

    @property
    def bytes(self) -> int:
        """Bytes in flight."""
        return self._bytes

    def try_acquire(self, size: int) -> bool:
        """Acquire `size` bytes if the limit permits and no other sender waits."""
        if self._waiting or (self._bytes and self._bytes + size > self._limit):
            return False
        self._bytes += size
        return True

    async def acquire(self, size: int, deadline: float | None = None) -> None:
        """Acquire `size` bytes after all earlier requests.

        Raises:
            TimeoutError: `deadline`, a loop time, came first.
        """
        if self.try_acquire(size):
            return
        if self._timed is None:
            self._timed = TimedWaiters()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await self._timed.wait(waiter, deadline)
        except (asyncio.CancelledError, TimeoutError):
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(size)  # granted at the same time as the cancellation
            else:
                self._wake()  # the next request may be smaller
            raise

    def release(self, size: int) -> None:
        """Release bytes and wake waiting senders."""
        self._bytes -= size
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            size, waiter = self._waiting[0]
            if not waiter.done():
                if self._bytes and self._bytes + size > self._limit:
                    return
                self._bytes += size
                waiter.set_result(None)
            self._waiting.popleft()
