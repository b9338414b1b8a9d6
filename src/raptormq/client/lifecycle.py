"""Lifecycle of a client: `async with`, the check of its event loop, and its shutdown.

`Startable` implements `async with`: the client is started at the beginning of the block and closed at its end. A client
that is garbage-collected without being closed causes a warning.

`require_loop` checks that the running event loop is the one in which the client was started. Connections and tasks
cannot be used in another event loop.

`Shutdown` completes the shutdown of a client, even if the caller stops waiting for it::

    close() ---run--> listeners, batches, membership, connections
       `-----wait-------^          (a timeout, or a second Ctrl-C, cancels close() and not this)
    close() again, or start() --wait--^

An incomplete shutdown would leave running tasks, and a group membership that prevents the next consumer from joining.

See also: `producer.producer` and the subclasses of `cluster.client_instance.InstanceClient` are startable;
`consumer.push_consumer` has `stop` and implements `async with` itself; `cluster.client_instance` stores the event loop,
and producers and consumers check it. There is no counterpart in Java.
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

running_loop = asyncio._get_running_loop  # noqa: SLF001 - `get_running_loop` raises where no event loop runs
"""Returns the running event loop; None in a thread without one."""


def require_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Check that `loop` is the running event loop.

    Raises:
        ClientClosed: another event loop is running, or none.
    """
    here = running_loop()
    if here is not loop:
        state = "has ended" if loop.is_closed() else "is not this one" if here else "does not run in this thread"
        raise ClientClosed(
            f"the client was started in an event loop that {state} (each asyncio.run has its own): "
            "start, use and close it in one"
        )


class Shutdown:
    """Runs the shutdowns of one client sequentially."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._ended: Collection[asyncio.Task[None]] = ()

    async def run(self, work: Coroutine[Any, Any, None], ended: Collection[asyncio.Task[None]] = ()) -> None:
        """Run `work` and wait for its end. A calling task in `ended`, which `work` itself ends, does not wait. `work`
        must have its own timeouts.
        """
        self._task, self._ended = background(work, f"end of {self._what}"), ended
        await self.wait()

    async def wait(self) -> None:
        """Wait for a running shutdown; raises its error."""
        while (task := self._task) is not None and asyncio.current_task() not in self._ended:
            try:
                await asyncio.shield(task)
            finally:
                # Another waiter may have started the next shutdown since.
                if self._task is task and task.done():
                    self._task, self._ended = None, ()


class WarnsIfUnclosed:
    """A client that causes a `ResourceWarning` when it is garbage-collected while it is started, because its
    connections and its group membership still exist."""

    _how_to_close: str = ""
    """Advice of the warning for a client inside of a blocking one; empty for the advice to use `async with`."""

    def advise_closing(self, how_to_close: str) -> None:
        """Set what the warning advises: the class that the application knows, and how to close it."""
        self._how_to_close = how_to_close

    def _warn_unclosed(self, end: str = "close") -> None:
        advice = self._how_to_close or f"{type(self).__name__}: await its {end}(), or use async with"
        warnings.warn(f"unclosed {advice}", ResourceWarning, stacklevel=3, source=self)


class Startable(WarnsIfUnclosed, ABC):
    """Base class of clients with `start` and `close`."""

    _instance: object | None = None
    """The client instance while started, otherwise None."""

    @abstractmethod
    async def start(self) -> None:
        """Start the client; no effect if it is started."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client; no effect if it is closed."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._instance is not None:
            self._warn_unclosed()
