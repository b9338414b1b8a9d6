"""The life of a client: `async with` around it, the event loop that it belongs to, and its end.

`Startable` gives a client `async with`: the client is started at the beginning of the block and closed at its end.

`require_loop` compares the running event loop with the one that the client was started in. The client belongs to that
loop: its connections and tasks are of no use in another.

`Shutdown` goes through the end of a client completely, also when the caller who asked for it gives up waiting:

    close() ---run--> listeners, batches, membership, connections
       `-----wait-------^          (a time-out, or a second Ctrl-C, cancels close() and not this)
    close() again, or start() --wait--^

Half an end would leave tasks that nobody can stop any more, and a membership that keeps the next consumer out.

Neighbours: `producer.producer`, `consumer.pull_consumer` and `admin.client` are clients of this kind;
`consumer.push_consumer` has `stop` and implements `async with` itself; `cluster.client_instance` knows the loop, and
producers and consumers ask before they use it. Source: none; Java has threads, and its shutdown is not interrupted.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine
from types import TracebackType
from typing import Any, Self

from raptormq.client.background import background
from raptormq.errors import ClientClosed


def require_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Look whether `loop` is the one that runs.

    Raises:
        ClientClosed: it is not.
    """
    if asyncio.get_running_loop() is not loop:
        state = "has ended" if loop.is_closed() else "is not this one"
        raise ClientClosed(
            f"the client was started in an event loop that {state} (each asyncio.run has its own): "
            "start, use and close it in one"
        )


class Shutdown:
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


class Startable(ABC):
    """What can be started and closed."""

    @abstractmethod
    async def start(self) -> None:
        """Make it usable; does nothing when it is."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what it uses; does nothing the second time."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
