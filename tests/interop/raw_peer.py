"""Single requests to a server with all fields, for requests that no client library sends and responses that none
shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from raptormq.client import AdminClient
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool

TIMEOUT_S = 10.0


class _Silent:
    """Receives requests of a server and does not respond."""

    def handle(self, _: Connection, requests: list[RemotingCommand]) -> None:
        """Respond to no request of a server."""

    def closed(self, _: Connection) -> None:
        """Send a oneway request."""


class RawPeer:
    """A connection to one server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, timeout: float = TIMEOUT_S
    ) -> RemotingCommand:
        """Send a request with these header fields and return the response; raises TransportError."""
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return await self._connection.request(RemotingCommand(code, texts, body), timeout)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[RawPeer]:
    """Connect to `host:port`."""
    pool = ConnectionPool(_Silent())
    try:
        yield RawPeer(await pool.connection(address))
    finally:
        await pool.close()


async def broker_address(name_servers: str) -> str:
    """Return the address of the only broker, `broker-a`."""
    async with AdminClient(name_servers=name_servers) as admin:
        return (await admin.cluster_info()).brokers["broker-a"].broker_addrs[0]
