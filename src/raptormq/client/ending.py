"""The end of what was started: it is gone through to its own end, also when who asked for it gives up waiting.

    close() ---run--> listeners, batches, membership, connections
       `-----wait-------^          (a time-out, or a second Ctrl-C, cancels close() and not this)
    close() again, or start() --wait--^

Half an end would leave tasks that nobody can stop any more, and a membership that keeps the next consumer out.
Neighbours: `producer`, `push_consumer`, `pull_consumer`, `admin`. Source: none, Java's shutdown is not interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from raptormq.client.background import background


class Ending:
    """The ends of one client, one after the other."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._ended: Collection[asyncio.Task[None]] = ()

    async def run(self, work: Coroutine[Any, Any, None], ended: Collection[asyncio.Task[None]] = ()) -> None:
        """Go through `work`, which is bounded by time-outs of its own, and wait for it, but in one of the tasks that it
        ends.
        """
        self._task, self._ended = background(work, f"end of {self._what}"), ended
        await self.wait()

    async def wait(self) -> None:
        """Wait for what `run` has begun and nobody waits for any more; raises what it raised."""
        while (task := self._task) is not None and asyncio.current_task() not in self._ended:
            try:
                await asyncio.shield(task)
            finally:
                # Another waiter was here first, perhaps, and the next end has begun since.
                if self._task is task and task.done():
                    self._task, self._ended = None, ()
