"""Callbacks that wait until a bound of the log (flushed, confirmed) has reached an offset."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from raptormq.errors import StorageError

OffsetCallback = Callable[[StorageError | None], None]
"""Called once: with None when the offset is reached, or with the error because of which it never will be."""

_END_OFFSET = itemgetter(0)


class OffsetWaiters:
    """Callbacks ordered by the offset that each of them waits for; those of one offset in the order of their coming."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, OffsetCallback]] = deque()

    def add(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` when :meth:`complete` reaches ``end_offset``, or fails."""
        waiting = self._waiting
        if waiting and end_offset < waiting[-1][0]:
            insort(waiting, (end_offset, callback), key=_END_OFFSET)
        else:
            waiting.append((end_offset, callback))

    def complete(self, reached: int, failure: StorageError | None = None) -> None:
        """Call whoever waits for ``reached`` or less with None and, if there is a ``failure``, all others with it."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= reached or failure is not None):
            end_offset, callback = waiting.popleft()
            callback(None if end_offset <= reached else failure)


async def wait_for_offset(register: Callable[[int, OffsetCallback], None], end_offset: int) -> None:
    """Return when ``register`` calls back for ``end_offset``.

    Raises:
        StorageError: the offset is never reached.
    """
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(error: StorageError | None) -> None:
        if reached.done():  # the waiting task was cancelled
            return
        if error is None:
            reached.set_result(None)
        else:
            reached.set_exception(error)

    register(end_offset, complete)
    await reached
