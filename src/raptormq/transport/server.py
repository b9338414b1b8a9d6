"""The TCP server of name servers and brokers, with limits for its connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from socket import socket

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.accept import Listener, Refusals, listen
from raptormq.transport.connection import Connection, RequestHandler
from raptormq.transport.lazy_reader import LazyReader
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.memory import ReceiveBudget, SendBudget
from raptormq.transport.tls import ServerTls

logger = get_logger(__name__)

_IDLE_SWEEP_S = 5.0
MAX_CONNECTIONS = 16_384


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server."""

    max_connections: int = MAX_CONNECTIONS
    """Connections beyond this are closed at once; see :mod:`~raptormq.transport.descriptors`."""
    idle_seconds: float = 120.0
    """Time without received data after which a connection is closed (RocketMQ ``serverChannelMaxIdleTimeSeconds``)."""
    first_word_seconds: float = 10.0
    """Idle time limit of a connection on which no data was ever received. Clients send a request right after they
    connect."""
    max_unfinished_bytes: int = 256 << 20
    """Maximum memory of incomplete frames of all connections; see :mod:`~raptormq.transport.memory.receive_budget`."""
    unfinished_patience_seconds: float = 3.0
    """Time without progress of an incomplete frame after which its connection is closed while memory is short. Clients
    time out after 3 s."""
    max_unread_bytes: int = 256 << 20
    """Maximum memory of unread responses of all connections; see :mod:`~raptormq.transport.memory.send_budget`."""
    unread_patience_seconds: float = 3.0
    """Time without reads by the peer after which its connection is closed while memory is short."""
    connection: ConnectionLimits = field(default_factory=lambda: ConnectionLimits(hold_reading=True))
    """Limits of each connection."""

    @property
    def silence_seconds(self) -> float:
        """Time after which a connection that has never received data is closed."""
        return min(self.first_word_seconds, self.idle_seconds)


class Server:
    """Accepts connections and passes their requests to one handler."""

    def __init__(
        self,
        handler: RequestHandler,
        host: str,
        port: int,
        limits: ServerLimits | None = None,
        tls: ServerTls | None = None,
        second_port: int | None = None,
    ) -> None:
        """Without ``tls`` all connections are unencrypted. The server also listens on ``second_port`` if it is free."""
        self._handler = handler
        self._host = host
        self._port = port
        self._limits = limits or ServerLimits()
        self._tls = tls
        self._second_port = second_port
        self._connections: set[Connection] = set()
        self._lazy_reader = LazyReader()
        self.frame_budget = ReceiveBudget(
            self._limits.max_unfinished_bytes, self._limits.unfinished_patience_seconds, self._connections
        )
        """Limits the memory of incomplete frames."""
        self.answer_budget = SendBudget(self._limits.max_unread_bytes, self._limits.unread_patience_seconds)
        """Limits the memory of unread responses."""
        self._listener: Listener | None = None
        self._opened: dict[int, Listener] = {}
        """Listeners of the additional ports that :meth:`open_port` has opened, by port."""
        self._refusals = Refusals()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The bound port, also if port 0 was requested."""
        return self._port

    @property
    def max_connections(self) -> int:
        """Maximum number of open connections."""
        return self._limits.max_connections

    @property
    def refused_count(self) -> int:
        """Number of connections refused since the start because the connection limit or the descriptor limit was
        reached."""
        return self._refusals.count

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Bind the port and start accepting connections.

        Raises:
            ConfigError: the address is in use or does not belong to this host, or a certificate cannot be used.
        """
        loop = asyncio.get_running_loop()
        sockets = await listen(self._host, self._port)
        self._port = sockets[0].getsockname()[1]
        if self._second_port is not None:
            try:
                sockets += await listen(self._host, self._second_port)
            except ConfigError as error:
                logger.warning("port %d is not served: %s", self._second_port, error)
        try:
            self._listener = self._listen(sockets)
        except BaseException:
            for each in sockets:
                each.close()
            raise
        self._sweeper = loop.call_later(_IDLE_SWEEP_S, self._sweep_idle)

    async def open_port(self, port: int) -> None:
        """Listen on an additional port until :meth:`close_port`. The server must be started.

        Raises:
            ConfigError: the address is in use or does not belong to this host, or a certificate cannot be used.
        """
        sockets = await listen(self._host, port)
        try:
            self._opened[port] = self._listen(sockets)
        except BaseException:
            for each in sockets:
                each.close()
            raise

    async def close_port(self, port: int) -> int:
        """Stop listening on an additional port, and close its connections after all queued data is sent. Return the
        number of these connections.
        """
        listener = self._opened.pop(port, None)
        if listener is None:
            return 0
        await listener.close()
        ending = self.connections_on(port)
        for connection in ending:
            connection.close()
        return len(ending)

    def connections_on(self, port: int) -> list[Connection]:
        """Return the open connections that were accepted on ``port``."""
        return [connection for connection in self._connections if connection.local_port == port]

    def _listen(self, sockets: list[socket]) -> Listener:
        silence = self._limits.silence_seconds
        return Listener(sockets, self._tls, self._make, self._has_room, self._refusals, silence)

    async def stop(self, timeout: float = 2.0) -> None:
        """Stop accepting, send all queued data and close the connections. Those still open after ``timeout`` seconds
        are aborted.
        """
        if self._sweeper is None:
            return
        self._sweeper.cancel()
        self._sweeper = None
        listeners = [*filter(None, [self._listener]), *self._opened.values()]
        self._listener = None
        self._opened.clear()
        for listener in listeners:
            await listener.close()
        waiting = [asyncio.ensure_future(connection.wait_closed()) for connection in self._connections]
        for connection in list(self._connections):
            connection.close()
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout)
            for connection in list(self._connections):
                connection.abort()
            for task in late:
                task.cancel()
        self._lazy_reader.close()
        self.frame_budget.close()
        self.answer_budget.close()

    def _make(self) -> Connection:
        return Connection(
            self, self._limits.connection, self._admit, self._lazy_reader, self.frame_budget, self.answer_budget
        )

    def _has_room(self) -> bool:
        listeners = [*filter(None, [self._listener]), *self._opened.values()]
        waiting = sum(listener.waiting_count for listener in listeners)
        return len(self._connections) + waiting < self._limits.max_connections

    def _admit(self, connection: Connection) -> bool:
        if len(self._connections) >= self._limits.max_connections:
            self._refusals.refused(connection.peer_name, "the connection limit is reached")
            return False
        self._connections.add(connection)
        return True

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Pass requests to the handler (RequestHandler)."""
        self._handler.handle(connection, requests)

    def closed(self, connection: Connection) -> None:
        """Remove the connection and notify the handler (RequestHandler)."""
        self.answer_budget.forget(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self._handler.closed(connection)

    def _sweep_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        oldest, oldest_mute = now - self._limits.idle_seconds, now - self._limits.silence_seconds
        for connection in [c for c in self._connections if c.last_read < (oldest if c.has_received else oldest_mute)]:
            if connection.is_closed:  # closed by an earlier sweep, but the peer does not read the queued data
                connection.abort()
                continue
            idle_seconds = now - connection.last_read
            logger.info("closing the connection from %s: idle for %.0f s", connection.peer_name, idle_seconds)
            connection.close()
        self._sweeper = loop.call_later(_IDLE_SWEEP_S, self._sweep_idle)
