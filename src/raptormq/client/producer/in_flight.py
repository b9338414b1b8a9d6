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

    def try_take(self, size: int) -> bool:
        """Take room for `size` bytes if there is some and nobody waits for it."""
        if self._waiting or (self._bytes and self._bytes + size > self._limit):
            return False
        self._bytes += size
        return True

    async def take(self, size: int) -> None:
        """Take room for `size` bytes, after everyone who asked before."""
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)  # the room came together with the cancellation
            else:
                self._let_in()  # the next one may be smaller
            raise

    def give_back(self, size: int) -> None:
        """Give room back and let in who waits for it."""
        self._bytes -= size
        if self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if self._bytes and self._bytes + size > self._limit:
                    return
                self._bytes += size
                turn.set_result(None)
            self._waiting.popleft()
