"""How many bytes of messages may be under way at the same time, over all sends of a client.

Without a bound, a thousand concurrent sends of large messages would all lie in the buffer of one connection, which is
dropped when its peer does not keep up. Waiting costs nothing while there is room.
Neighbour: `producer.sender` takes room before an attempt and gives it back after.
"""

from __future__ import annotations

import asyncio
from collections import deque

from raptormq.client.cluster import ClientInstance

LIMIT_BYTES = 32 * 1024 * 1024
"""What all producers of one client may have under way."""


class InFlight:
    """A budget of bytes, given out in the order of asking.

    Args:
        limit_bytes: a single message larger than that is let through alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @classmethod
    def of(cls, _: ClientInstance) -> InFlight:
        """Return the budget of a client, for :meth:`ClientInstance.shared`."""
        return cls(LIMIT_BYTES)

    @property
    def bytes(self) -> int:
        """Bytes under way."""
        return self._bytes

    def try_acquire(self, size: int) -> bool:
        """Take room for `size` bytes if there is some and nobody waits for it."""
        if self._waiting or (self._bytes and self._bytes + size > self._limit):
            return False
        self._bytes += size
        return True

    async def acquire(self, size: int) -> None:
        """Take room for `size` bytes, after everyone who asked before."""
        if self.try_acquire(size):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(size)  # the room came together with the cancellation
            else:
                self._wake()  # the next one may be smaller
            raise

    def release(self, size: int) -> None:
        """Give room back and let in who waits for it."""
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
