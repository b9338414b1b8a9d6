"""A very small HTTP server for probes and scrapes: GET /metrics, /healthz, /readyz, one answer per connection.

Kubernetes and Prometheus need no more, and a framework would be larger than the broker's request handling. What a
peer may send is bounded in size, and the whole exchange in time: an answer of a megabyte is kept for nobody who does
not read it. A few exchanges are open at a time, and one more ends the oldest: peers without a word keep no probe out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from raptormq.errors import ConfigError
from raptormq.transport.accept import Acceptor, Refusals, listen

MAX_REQUEST_BYTES = 8_192
REQUEST_S = 5.0
"""From the connection to the last byte that the peer takes of its answer."""
MAX_OPEN = 16
"""Exchanges at a time. Their descriptors are of the reserve."""
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Page = Callable[[], Awaitable[tuple[int, bytes]]]
"""Returns status and body of a path."""


class HealthServer:
    """Serves pages by path."""

    def __init__(self, pages: dict[str, Page], host: str, port: int) -> None:
        self._pages = pages
        self._host = host
        self._port = port
        self._acceptor: Acceptor | None = None
        self._open: dict[asyncio.Task[None], None] = {}
        """What is under way, the oldest first."""

    @property
    def port(self) -> int:
        """The port that is really bound."""
        return self._port

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            ConfigError: the address is in use or not ours.
        """
        try:
            sockets = await listen(self._host, self._port)
        except ConfigError as error:
            raise ConfigError(f"cannot serve metrics: {error}") from error
        self._port = sockets[0].getsockname()[1]
        self._acceptor = Acceptor(sockets, self._take, self._make_room, Refusals())

    async def stop(self) -> None:
        """Stop serving; requests under way are cut."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for each in self._open:
            each.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _make_room(self) -> bool:
        going_on = [each for each in self._open if not each.cancelling()]
        if len(going_on) >= MAX_OPEN:
            going_on[0].cancel()
        return True

    def _take(self, peer: socket.socket) -> None:
        task = asyncio.create_task(self._serve(peer), name="probe or scrape")
        self._open[task] = None
        task.add_done_callback(partial(self._ended, peer))

    def _ended(self, peer: socket.socket, task: asyncio.Task[None]) -> None:
        del self._open[task]
        peer.close()

    async def _serve(self, peer: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=MAX_REQUEST_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A peer that does not speak HTTP, or not in time, gets no answer.
            async with asyncio.timeout(REQUEST_S):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
                try:
                    await self._exchange(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
                finally:
                    transport.abort()  # closing would wait, for ever, for the peer to read what it has not yet taken

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(_response(*await self._answer(head)))
        writer.close()
        await writer.wait_closed()

    async def _answer(self, head: bytes) -> tuple[int, bytes]:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3:
            return 400, b"bad request\n"
        if parts[0] != b"GET":
            return 405, b"only GET\n"
        page = self._pages.get(parts[1].split(b"?", 1)[0].decode("ascii", "replace"))
        return await page() if page is not None else (404, b"not found\n")


def _response(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {_TEXT}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
