"""The lifecycle of a client: `async with`, the event loop that it belongs to, and its shutdown.

`Startable` gives a client `async with`: it is started at the beginning of the block and closed at its end. A client
that is never closed is reported when it is collected.

`require_loop` checks that the running event loop is the one that the client was started in. Connections and tasks of a
client cannot be used in another loop.

`Shutdown` completes the shutdown of a client, even if the caller stops waiting for it::

    close() ---run--> listeners, batches, membership, connections
       `-----wait-------^          (a timeout, or a second Ctrl-C, cancels close() and not this)
    close() again, or start() --wait--^

An incomplete shutdown would leave tasks that nothing can stop any more, and a membership that keeps the next consumer
out of the group.

Neighbours: `producer.producer`, `consumer.pull_consumer` and `admin.client` are startable; `consumer.push_consumer` has
`stop` and implements `async with` itself; `cluster.client_instance` knows the loop, and producers and consumers check
it before use. Source: none; Java has threads, and its shutdown is not interrupted.
"""

from __future__ import annotations

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine
from types import TracebackType
from typing import Any, Self

from raptormq.client.background import background
from raptormq.errors import ClientClosed


def require_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Check that `loop` is the running event loop.

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
    """The shutdowns of one client, one after the other."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._ended: Collection[asyncio.Task[None]] = ()

    async def run(self, work: Coroutine[Any, Any, None], ended: Collection[asyncio.Task[None]] = ()) -> None:
        """Run `work`, which is bounded by its own timeouts, and wait for it, except in a task that it ends."""
        self._task, self._ended = background(work, f"end of {self._what}"), ended
        await self.wait()

    async def wait(self) -> None:
        """Wait for a shutdown that is still running; raises its error."""
        while (task := self._task) is not None and asyncio.current_task() not in self._ended:
            try:
                await asyncio.shield(task)
            finally:
                # Another waiter may have been first, and the next shutdown may have begun since.
                if self._task is task and task.done():
                    self._task, self._ended = None, ()


def warn_unclosed(client: object, end: str = "close") -> None:
    """Warn that a started client is dropped: its connections, and its membership of a group, stay."""
    text = f"unclosed {type(client).__name__}: await its {end}(), or use async with"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=client)


class Startable(ABC):
    """A client that can be started and closed. One that is collected while it is started causes a `ResourceWarning`."""

    _instance: object | None = None
    """What the client uses while it is started; None while it is not."""

    @abstractmethod
    async def start(self) -> None:
        """Start the client; does nothing when it is started."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client; does nothing when it is closed."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._instance is not None:
            warn_unclosed(self)
