"""Counts the sends that run in coroutines of the application, so that `Producer.close` can wait for them.

The producer has no tasks for these coroutines, and a count takes less time than a task for each send. See also:
`producer.producer` enters and waits; `producer.accumulator` waits for batches.
"""

from __future__ import annotations

import asyncio


class PendingSends:
    """The pending sends of one producer. Each is a `with` block."""

    __slots__ = ("_count", "_ended")

    def __init__(self) -> None:
        self._count = 0
        self._ended: asyncio.Event | None = None
        """Set when the last send ends; None while nobody waits."""

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._ended is not None and not self._count:
            self._ended.set()

    async def wait(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until no send is pending. The caller begins no further sends."""
        if not self._count:
            return
        ended = self._ended = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await ended.wait()
        except TimeoutError:
            pass
        finally:
            self._ended = None
