"""A minimal HTTP server for probes and scrapes: GET /metrics, /healthz and /readyz, one response per connection.

Probes and scrapes need nothing more, and an HTTP framework would be larger than the broker's request handling. The size
of a request and the time of an exchange are limited, so that a peer that does not read cannot hold a large response in
memory. The number of connections is limited too: a new connection closes the oldest, so that idle peers cannot block
probes.
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
"""Maximum time in seconds from the accepted connection to the last byte of the response."""
MAX_OPEN = 16
"""Maximum number of open connections. Their descriptors come from the reserve of
:mod:`~raptormq.transport.descriptors`."""
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Page = Callable[[], Awaitable[tuple[int, bytes]]]
"""Returns the status and body of a page. A body that begins with ``{`` is sent as JSON."""


class HealthServer:
    """Serves one page for each path."""

    def __init__(self, pages: dict[str, Page], host: str, port: int) -> None:
        self._pages = pages
        self._host = host
        self._port = port
        self._acceptor: Acceptor | None = None
        self._open: dict[asyncio.Task[None], None] = {}
        """Tasks of open connections, oldest first."""

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    async def start(self) -> None:
        """Bind the port and start listening.

        Raises:
            ConfigError: the address is in use or does not belong to this host.
        """
        try:
            sockets = await listen(self._host, self._port)
        except ConfigError as error:
            raise ConfigError(f"cannot serve metrics: {error}") from error
        self._port = sockets[0].getsockname()[1]
        self._acceptor = Acceptor(sockets, self._take, self._make_room, Refusals())

    async def stop(self) -> None:
        """Stop listening and abort open connections."""
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
            # A peer that does not send an HTTP request in time gets no response.
            async with asyncio.timeout(REQUEST_S):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
                try:
                    await self._exchange(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
                finally:
                    transport.abort()  # close() would wait without limit for the peer to read the rest

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
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {_JSON if body[:1] == b'{' else _TEXT}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
