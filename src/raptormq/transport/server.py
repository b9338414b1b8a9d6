"""A listening socket with bounded connections (the shell of name servers and brokers)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

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
    """Bounds of a server."""

    max_connections: int = MAX_CONNECTIONS
    """Connections beyond this are closed at once; see :mod:`~raptormq.transport.descriptors`."""
    idle_seconds: float = 120.0
    """A connection that sent nothing for so long is closed (RocketMQ's ``serverChannelMaxIdleTimeSeconds``)."""
    first_word_seconds: float = 10.0
    """The same for one that has never sent anything. Clients connect when they have something to send."""
    max_unfinished_bytes: int = 256 << 20
    """What unfinished frames of all connections may take; see :mod:`~raptormq.transport.memory.receive_budget`."""
    unfinished_patience_seconds: float = 3.0
    """How long one of them may come no further while they take most of it. Clients give up after 3 s."""
    max_unread_bytes: int = 256 << 20
    """What answers that their peers have not read may take; see :mod:`~raptormq.transport.memory.send_budget`."""
    unread_patience_seconds: float = 3.0
    """How long a peer may read nothing while they take most of it."""
    connection: ConnectionLimits = field(default_factory=lambda: ConnectionLimits(hold_reading=True))
    """Bounds of each connection."""

    @property
    def silence_seconds(self) -> float:
        """How long one that has never sent anything is kept."""
        return min(self.first_word_seconds, self.idle_seconds)


class Server:
    """Accepts connections for one handler."""

    def __init__(
        self,
        handler: RequestHandler,
        host: str,
        port: int,
        limits: ServerLimits | None = None,
        tls: ServerTls | None = None,
        second_port: int | None = None,
    ) -> None:
        """Without ``tls`` every connection is plain. ``second_port`` is served too, unless somebody else has it."""
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
        """Keeps what unfinished frames take within bounds."""
        self.answer_budget = SendBudget(self._limits.max_unread_bytes, self._limits.unread_patience_seconds)
        """Keeps what unread answers take within bounds."""
        self._listener: Listener | None = None
        self._refusals = Refusals()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that is really bound (of interest where 0 was asked for)."""
        return self._port

    @property
    def max_connections(self) -> int:
        """How many may be open."""
        return self._limits.max_connections

    @property
    def refused_count(self) -> int:
        """Connections that were closed at once, since the start: too many were open, or no descriptor was left."""
        return self._refusals.count

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Bind and accept.

        Raises:
            ConfigError: the address is in use or not ours, or a certificate cannot be used.
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
            self._listener = Listener(
                sockets, self._tls, self._make, self._has_room, self._refusals, self._limits.silence_seconds
            )
        except BaseException:
            for each in sockets:
                each.close()
            raise
        self._sweeper = loop.call_later(_IDLE_SWEEP_S, self._sweep_idle)

    async def stop(self, timeout: float = 2.0) -> None:
        """Stop accepting, send what is queued, close; what has not ended within ``timeout`` seconds is cut."""
        if self._sweeper is None:
            return
        self._sweeper.cancel()
        self._sweeper = None
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
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
        waiting = self._listener.waiting_count if self._listener is not None else 0
        return len(self._connections) + waiting < self._limits.max_connections

    def _admit(self, connection: Connection) -> bool:
        if len(self._connections) >= self._limits.max_connections:
            self._refusals.refused(connection.peer_name, "as many are open as may be")
            return False
        self._connections.add(connection)
        return True

    def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Pass on (RequestHandler)."""
        self._handler.handle(connection, requests)

    def closed(self, connection: Connection) -> None:
        """Forget and pass on (RequestHandler)."""
        self.answer_budget.forget(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self._handler.closed(connection)

    def _sweep_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        oldest, oldest_mute = now - self._limits.idle_seconds, now - self._limits.silence_seconds
        for connection in [c for c in self._connections if c.last_read < (oldest if c.has_received else oldest_mute)]:
            if connection.is_closed:  # since an earlier sweep: it does not read what it is owed, and never will
                connection.abort()
                continue
            logger.info("closing %s: idle for %.0f s", connection.peer_name, now - connection.last_read)
            connection.close()
        self._sweeper = loop.call_later(_IDLE_SWEEP_S, self._sweep_idle)
