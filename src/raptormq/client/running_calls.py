"""Counts the listener calls that have messages of one queue, and tells when the last one has ended.

Neighbours: `listening` counts, `queue_reader` waits before its queue goes to another member. Source: none.
"""

from __future__ import annotations

import asyncio


class RunningCalls:
    """How many calls run now."""

    __slots__ = ("_ended", "count")

    def __init__(self) -> None:
        self.count = 0
        self._ended: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Count one more."""
        self.count += 1

    def end(self) -> None:
        """Count one less; the last one lets those go on who wait for it."""
        self.count -= 1
        if not self.count and self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
            self._ended = None

    async def ended(self, timeout: float) -> bool:
        """Wait until none runs, at most `timeout` seconds; false when some still do."""
        if not self.count:
            return True
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._ended], timeout=timeout)
        return bool(done)
