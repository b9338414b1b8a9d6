"""Lazily read connections: all data arrives in batches; closes and errors are detected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from raptormq.protocol.command import RemotingCommand, encode, request, response_to
from raptormq.transport import lazy_reader as lazy_reading
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server, ServerLimits

ECHO, REST, HURRY, BULK = range(1, 5)
TIMEOUT = 10.0
NOBODY_COMES_BY_CHANCE = 3600.0


class LazyPeer:
    """A server whose connections set whether they are read promptly."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.connections: dict[int, Connection] = {}
        self.gone: asyncio.Queue[Connection] = asyncio.Queue()
        router = Router()
        router.add(ECHO, None, lambda connection, asked, header: response_to(asked, body=asked.body))
        router.add(REST, None, self._rest)
        router.add(HURRY, None, self._hurry)
        router.add(BULK, None, lambda connection, asked, header: response_to(asked, body=bytes(1 << 20)))
        router.on_closed(self.gone.put_nowait)
        self.router = router
        self.server = Server(router, "127.0.0.1", 0, limits)

    def _rest(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        self.connections[connection.peer[1]] = connection
        connection.read_lazily()
        return response_to(asked)

    def _hurry(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        connection.read_promptly(for_good=True)
        return response_to(asked)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def lazy_count(self) -> int:
        return len(self.server._lazy_reader)


@asynccontextmanager
async def serving(limits: ServerLimits | None = None) -> AsyncIterator[tuple[LazyPeer, ConnectionPool]]:
    peer, pool = LazyPeer(limits), ConnectionPool()
    await peer.server.start()
    try:
        yield peer, pool
    finally:
        await pool.close()
        await peer.router.stop()
        await peer.server.stop()


async def lazy(peer: LazyPeer, pool: ConnectionPool) -> Connection:
    """Open a connection that the server reads lazily. Return the client's end."""
    connection = await pool.connection(peer.address)
    await connection.request(request(REST), TIMEOUT)
    return connection


@contextmanager
def nothing_is_read_lazily(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(lazy_reading, "REST_S", NOBODY_COMES_BY_CHANCE)
        yield


async def test_a_lazily_read_connection_gets_all_its_answers() -> None:
    async with serving() as (peer, pool):
        connection = await lazy(peer, pool)
        assert peer.lazy_count == 1
        for turn in range(3):
            bodies = [b"%d-%d" % (turn, n) for n in range(20)]
            answers = await asyncio.gather(*(connection.request(request(ECHO, body=b), TIMEOUT) for b in bodies))
            assert [answer.body for answer in answers] == bodies
        assert peer.lazy_count == 1


async def test_it_is_said_twice_and_taken_back_twice() -> None:
    async with serving() as (peer, pool):
        connection = await lazy(peer, pool)
        await connection.request(request(REST), TIMEOUT)
        assert peer.lazy_count == 1
        (served,) = peer.connections.values()
        for _ in range(2):
            served.read_promptly()
            assert peer.lazy_count == 0
            assert (await connection.request(request(ECHO, body=b"x"), TIMEOUT)).body == b"x"


async def test_one_in_a_hurry_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_is_read_lazily(monkeypatch):
        async with serving() as (peer, pool):
            connection = await lazy(peer, pool)
            waiting = connection.request(request(ECHO, body=b"x"), TIMEOUT)
            (served,) = peer.connections.values()
            served.read_promptly()
            assert (await waiting).body == b"x"


async def test_one_that_is_always_in_a_hurry_stays_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_is_read_lazily(monkeypatch):
        async with serving() as (peer, pool):
            connection = await pool.connection(peer.address)
            await connection.request(request(HURRY), TIMEOUT)
            await connection.request(request(REST), TIMEOUT)
            assert peer.lazy_count == 0
            assert (await connection.request(request(ECHO, body=b"x"), TIMEOUT)).body == b"x"


async def test_many_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_reading, "_AT_A_TIME", 3)
    async with serving() as (peer, _):
        pools = [ConnectionPool() for _ in range(10)]
        connections = [await lazy(peer, pool) for pool in pools]
        waiting = [each.request(request(ECHO, body=b"x"), TIMEOUT) for each in connections]
        assert [answer.body for answer in await asyncio.gather(*waiting)] == [b"x"] * 10
        assert peer.lazy_count == 10
        for pool in pools:
            await pool.close()
        assert {await peer.gone.get() for _ in pools} == set(peer.connections.values())
        assert peer.lazy_count == 0


async def test_the_end_of_a_lazily_read_connection_is_noticed() -> None:
    async with serving() as (peer, pool):
        connection = await lazy(peer, pool)
        connection.oneway(request(ECHO, body=b"x", oneway=True))
        connection.close()
        assert await peer.gone.get() in peer.connections.values()
        assert (peer.lazy_count, peer.server.connection_count) == (0, 0)


async def test_a_reset_is_noticed() -> None:
    async with serving() as (peer, _):
        with socket.create_connection(("127.0.0.1", peer.server.port)) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(raw, encode(request(REST)))
            await asyncio.get_running_loop().sock_recv(raw, 1000)
        assert await peer.gone.get() in peer.connections.values()
        assert peer.lazy_count == 0


async def test_garbage_ends_a_lazily_read_connection() -> None:
    async with serving() as (peer, pool):
        connection = await lazy(peer, pool)
        connection.send_raw(b"\xff" * 8)
        assert await peer.gone.get() in peer.connections.values()
        assert peer.lazy_count == 0


async def test_who_has_much_to_say_is_read_promptly_again() -> None:
    async with serving() as (peer, pool):
        connection = await lazy(peer, pool)
        body = bytes(5_000_000)
        assert (await connection.request(request(ECHO, body=body), TIMEOUT)).body == body
        assert peer.lazy_count == 0


async def test_one_that_does_not_read_is_not_read_either() -> None:
    limits = ServerLimits(connection=ConnectionLimits(write_high_water_bytes=1 << 16, hold_reading=True))
    async with serving(limits) as (peer, pool):
        connection = await lazy(peer, pool)
        (served,) = peer.connections.values()
        connection._transport.pause_reading()
        waiting = [connection.request(request(BULK), TIMEOUT) for _ in range(20)]
        while not served.is_held_back:
            await asyncio.sleep(0)
        assert peer.lazy_count == 0
        served.read_lazily()
        assert peer.lazy_count == 0
        connection._transport.resume_reading()
        assert {len(answer.body) for answer in await asyncio.gather(*waiting)} == {1 << 20}


async def test_the_server_ends_lazily_read_connections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_is_read_lazily(monkeypatch):
        async with serving() as (peer, pool):
            connection = await lazy(peer, pool)
            await peer.server.stop()
            await connection.wait_closed()
            assert (peer.lazy_count, peer.server.connection_count) == (0, 0)


async def test_a_closed_connection_cannot_be_read_lazily() -> None:
    async with serving() as (peer, pool):
        await lazy(peer, pool)
        (served,) = peer.connections.values()
        served.abort()
        served.read_lazily()
        assert peer.lazy_count == 0
        assert await peer.gone.get() is served


async def test_a_client_has_no_lazy_reader() -> None:
    async with serving() as (peer, pool):
        connection = await pool.connection(peer.address)
        connection.read_lazily()
        assert (await connection.request(request(ECHO, body=b"x"), TIMEOUT)).body == b"x"
