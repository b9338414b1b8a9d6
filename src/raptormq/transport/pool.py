"""Connection pool of clients: one shared connection per address, opened on first use and reopened after a loss.

Some peers accept connections and close them before they send anything: a proxy without a backend, a server that
requires TLS, or a server at its connection limit. The pool waits before it reconnects to such a peer (backoff).
Otherwise callers that retry after each loss would reconnect in a busy loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from raptormq.errors import ClientClosed, ConfigError, ConnectError, RequestTimeout
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection, RequestHandler
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.router import answer
from raptormq.transport.shared_task import SharedTask
from raptormq.transport.timing import Backoff
from raptormq.transport.tls import SHUTDOWN_S, ClientTls

_BACKOFF = Backoff(0.1, 2.0)
_REMEMBERED_S = 60.0
_CLOSED = "the connection pool is closed"


class RefuseRequests:
    """Rejects every incoming request with "not supported"; for clients that do not serve requests."""

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Reject the requests (RequestHandler)."""
        for request in requests:
            answer(connection, request, response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported"))

    def closed(self, connection: Connection) -> None:
        """Do nothing (RequestHandler)."""


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[IPv6 address]:port``.

    Raises:
        ConfigError: the port is missing or not a number from 1 to 65535.
    """
    host, _, port = address.strip().rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address!r} is not an address of the form host:port")
    return host, int(port)


class _Made(NamedTuple):
    """The most recent connection to an address."""

    connection: Connection
    at: float
    """Loop time when it was opened."""
    silent: int
    """Number of consecutive earlier connections on which no data was received."""

    def next_at(self) -> float:
        """Return the loop time from which the next connection may be opened. There is no wait after a single connection
        without data, because the server may have been restarting.
        """
        return (
            self.at + _BACKOFF.pause(self.silent - 1) if self.silent and not self.connection.has_received else self.at
        )


class ConnectionPool:
    """One connection per address. Host names are resolved for every new connection, so a server may change its IP
    address."""

    def __init__(
        self,
        handler: RequestHandler | None = None,
        limits: ConnectionLimits | None = None,
        connect_timeout: float = 3.0,
        tls: ClientTls | None = None,
        on_made: Callable[[str], None] = lambda _address: None,
    ) -> None:
        """Without ``tls`` connections are unencrypted. With ``tls.in_transition`` a peer that ends the handshake is
        connected without TLS. ``connect_timeout`` is in seconds and includes the TLS handshake. ``on_made`` is called
        with the address of each new connection.

        Raises:
            ConfigError: a certificate file of ``tls`` cannot be used.
        """
        self._contexts = tls.context() if tls is not None else None
        self._in_transition = tls is not None and tls.in_transition
        self._handler = handler or RefuseRequests()
        self._limits = limits or ConnectionLimits()
        self._connect_timeout = connect_timeout
        self._on_made = on_made
        self._made: dict[str, _Made] = {}
        self._replaced: set[Connection] = set()
        """Connections with pending requests that others have replaced, because a request has timed out in silence."""
        self._connecting: dict[str, SharedTask[Connection]] = {}
        self._closed = False

    def open_connection(self, address: str) -> Connection | None:
        """Return the open connection to ``address``, or None; the fast path of senders."""
        made = self._made.get(address)
        return made.connection if made is not None and made.connection.takes_requests else None

    async def connection(self, address: str, deadline: float | None = None) -> Connection:
        """Return the connection to ``address``, and open it if necessary. Concurrent callers share one attempt.

        ``deadline`` is a loop time in seconds. The attempt continues for other callers after the deadline.

        Raises:
            TimeoutError: the deadline has passed.
            ConnectError: the connection cannot be opened within the connect timeout, or the backoff after connections
                that were closed immediately has not passed.
            ClientClosed: the pool was closed.
        """
        if self._closed:
            raise ClientClosed(_CLOSED)
        connection = self.open_connection(address)
        if connection is not None:
            return connection
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = SharedTask(self._connect(address), f"connection to {address}", _CLOSED)
            self._connecting[address] = attempt
            attempt.task.add_done_callback(lambda done: self._connected(address, done))
        return await attempt.wait(deadline)

    async def _connect(self, address: str) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        last = self._made.get(address)
        if last is not None and loop.time() < last.next_at():
            reasons = "be a proxy without a server, or have too many connections"
            may = reasons if self._contexts is not None else f"want TLS, {reasons}"
            raise ConnectError(
                f"no connection to {address}: it closed the last connections before it sent anything; it may {may}"
            )
        secure: dict[str, Any] = {}
        if self._contexts is not None:
            secure = {"ssl": self._contexts.current(), "ssl_shutdown_timeout": SHUTDOWN_S}
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open(host, port, secure)
        except TimeoutError as error:
            raise ConnectError(f"no connection to {address} within {self._connect_timeout:g} s") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: the name breaks the rules of DNS names
            reason = str(error) or ("it ended the TLS handshake" if secure else type(error).__name__)
            raise ConnectError(f"no connection to {address}: {reason}") from error
        if self._closed:
            connection.abort()
            raise ClientClosed(_CLOSED)
        silent = last.silent + 1 if last is not None and not last.connection.has_received else 0
        self._remove_disconnected(loop.time())  # bounds the table in clusters whose members change addresses
        self._replaced = {each for each in self._replaced if not each.is_disconnected}
        if last is not None and not last.connection.is_closed:
            self._replaced.add(last.connection)
        self._made[address] = _Made(connection, loop.time(), silent)
        self._on_made(address)
        return connection

    async def _open(self, host: str, port: int, secure: dict[str, Any]) -> Connection:
        loop = asyncio.get_running_loop()

        def made() -> Connection:
            return Connection(self._handler, self._limits)

        try:
            return (await loop.create_connection(made, host, port, **secure))[1]
        except (ConnectionRefusedError, TimeoutError):
            raise
        except OSError:  # a server without TLS ends the handshake
            if not self._in_transition:
                raise
        return (await loop.create_connection(made, host, port))[1]

    def _remove_disconnected(self, now: float) -> None:
        for address, made in list(self._made.items()):
            if made.connection.is_disconnected and (made.connection.has_received or now - made.at >= _REMEMBERED_S):
                del self._made[address]

    def _connected(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # asyncio warns about an exception that no caller retrieves

    def request(self, address: str, message: RemotingCommand, timeout: float) -> Awaitable[RemotingCommand]:
        """Send a request and return an awaitable of the response, whatever its code. If the connection is open, the
        request is sent immediately.

        ``timeout`` in seconds includes connecting.

        Raises:
            ConnectError, ConnectionClosed, RequestTimeout: see :mod:`raptormq.errors`.
        """
        timeout = max(0.0, timeout)
        connection = self.open_connection(address)
        # Returns the future itself, because a coroutine for each of a consumer's thousands of requests is expensive.
        return (
            self._connect_and_request(address, message, timeout)
            if connection is None
            else connection.request(message, timeout)
        )

    async def connection_within(self, address: str, timeout: float) -> Connection:
        """Return the connection to ``address``, and open it if necessary, within ``timeout`` seconds.

        Raises:
            ConnectError: see :meth:`connection`.
            RequestTimeout: there was no connection in time.
        """
        try:
            return await self.connection(address, asyncio.get_running_loop().time() + timeout)
        except TimeoutError as error:
            raise RequestTimeout(f"no connection to {address} within {timeout:g} s") from error

    async def _connect_and_request(self, address: str, message: RemotingCommand, timeout: float) -> RemotingCommand:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        connection = await self.connection_within(address, timeout)
        return await connection.request(message, max(0.0, deadline - clock()))

    async def oneway(self, address: str, message: RemotingCommand) -> None:
        """Send a request without a response.

        Raises:
            ConnectError: the connection cannot be opened.
        """
        (await self.connection(address)).oneway(message)

    async def close(self, timeout: float = 2.0) -> None:
        """Close all connections, and abort those still open after ``timeout`` seconds. Idempotent."""
        self._closed = True
        attempts = [attempt.task for attempt in self._connecting.values()]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        connections = [*self._replaced, *(made.connection for made in self._made.values())]
        self._made, self._replaced = {}, set()
        waiting = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        for connection in connections:
            connection.close()
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout)
            for connection in connections:
                connection.abort()
            for task in late:
                task.cancel()
