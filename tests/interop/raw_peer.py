"""Requests to one server as they are, field by field: for what no client sends, and for what none shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from raptormq.client import AdminClient
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool

TIMEOUT_S = 10.0


class _Silent:
    """Takes what a server asks and says nothing."""

    def handle(self, _: Connection, requests: list[RemotingCommand]) -> None:
        """Servers that ask get no answer."""

    def closed(self, _: Connection) -> None:
        """Nobody waits for it."""


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
    """The address of the one broker, `broker-a`."""
    async with AdminClient(name_servers=name_servers) as admin:
        return (await admin.cluster_info()).brokers["broker-a"].broker_addrs[0]
