"""A TCP proxy with faults, between clients and a broker.

::

    client --> 127.0.0.2:PORT (the address that the broker registers) --> 127.0.0.1:PORT (where it listens)
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum, auto
from random import Random
from types import TracebackType
from typing import Self

_CHUNK = 65536


class Fault(Enum):
    """What the proxy does with received bytes, in both directions."""

    DELAY = auto()
    """Forward them with a delay."""
    CORRUPT = auto()
    """Replace some of them."""
    SILENCE = auto()
    """Discard them. A connection that has lost bytes stays silent afterwards, like a half-open connection."""
    FROZEN = auto()
    """Do not read them until the fault ends."""


class FaultyProxy:
    """Forwards connections; ``fault`` is the current fault."""

    def __init__(self, listen: str, target: str, port: int, seed: int) -> None:
        self._listen, self._target, self._port = listen, target, port
        self._random = Random(seed)
        self._fault: Fault | None = None
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        """Number of connections that clients have opened."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._listen, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def begin(self, fault: Fault) -> None:
        """Begin a fault."""
        self._fault = fault

    def end(self) -> None:
        """End the fault."""
        self._fault = None
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_silent = False
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                while self._fault is Fault.FROZEN:
                    await self._changed.wait()
                if self._fault is Fault.DELAY:
                    await asyncio.sleep(0.05)
                elif self._fault is Fault.CORRUPT and self._random.random() < 0.2:
                    data = self._random.randbytes(len(data))
                is_silent = is_silent or self._fault is Fault.SILENCE
                if not is_silent:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
