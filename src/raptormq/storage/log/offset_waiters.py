"""Callbacks that wait until an offset of the log (flushed, confirmed) is reached."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from raptormq.errors import StorageError

OffsetCallback = Callable[[StorageError | None], None]
"""Called once: with None when the offset is reached, or with the error that prevents it."""

_END_OFFSET = itemgetter(0)


class OffsetWaiters:
    """Callbacks ordered by offset; those for the same offset are called in the order in which they were added."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, OffsetCallback]] = deque()

    def add(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` when :meth:`complete` reaches ``end_offset`` or reports a failure."""
        waiting = self._waiting
        if waiting and end_offset < waiting[-1][0]:
            insort(waiting, (end_offset, callback), key=_END_OFFSET)
        else:
            waiting.append((end_offset, callback))

    def complete(self, reached: int, failure: StorageError | None = None) -> None:
        """Call the callbacks for offsets up to ``reached`` with None. If there is a ``failure``, call all others with
        it.
        """
        waiting = self._waiting
        while waiting and (waiting[0][0] <= reached or failure is not None):
            end_offset, callback = waiting.popleft()
            callback(None if end_offset <= reached else failure)


async def wait_for_offset(register: Callable[[int, OffsetCallback], None], end_offset: int) -> None:
    """Register a callback for ``end_offset`` and return when it is called.

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
