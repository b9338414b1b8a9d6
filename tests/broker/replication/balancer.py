"""A load balancer in front of the members of a group, which represents the Service of the leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Balancer:
    """Forwards connections to one port, like a Service whose selector matches one pod. Without a port it refuses
    connections.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target: int | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for _ in range(5):  # a connection that was accepted before already has its task
            await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(OSError):
                if self.target is not None:
                    there, back = await asyncio.open_connection("127.0.0.1", self.target)
                    ways = {
                        asyncio.create_task(_copy(reader, back)),
                        asyncio.create_task(_copy(there, writer)),
                    }
                    try:
                        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for way in ways:
                            way.cancel()
                        await asyncio.gather(*ways, return_exceptions=True)
                        back.transport.abort()
        finally:
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
