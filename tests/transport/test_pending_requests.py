"""Pending requests compared with a model: a dictionary that is scanned completely."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raptormq.errors import CommandError, RequestTimeout
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.requests import BUCKET_S, Deadlines
from raptormq.transport.router import Router
from raptormq.transport.server import Server


class PendingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pending: Deadlines[RemotingCommand] = Deadlines()
        self.now = 1000.0
        self.opaque = 0
        self.model: dict[int, tuple[asyncio.Future[RemotingCommand], float]] = {}

    def teardown(self) -> None:
        self.loop.close()

    @rule(timeout=st.floats(0, 40))
    def add(self, timeout: float) -> None:
        self.opaque += 1
        future: asyncio.Future[RemotingCommand] = self.loop.create_future()
        deadline = self.now + timeout
        due = self.pending.add(self.opaque, future, deadline)
        assert deadline <= due <= deadline + BUCKET_S + 1e-6
        self.model[self.opaque] = future, due

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        opaque = data.draw(st.integers(0, self.opaque + 1))
        assert self.pending.take(opaque) is self.model.pop(opaque, (None,))[0]

    @rule(passed=st.floats(0, 5))
    def take_expired(self, passed: float) -> None:
        self.now += passed
        overdue = {opaque: future for opaque, (future, due) in self.model.items() if due <= self.now}
        assert set(self.pending.take_expired(self.now)) == set(overdue.values())
        for opaque in overdue:
            del self.model[opaque]

    @rule()
    def take_all(self) -> None:
        assert set(self.pending.take_all()) == {future for future, _ in self.model.values()}
        self.model.clear()
        assert self.pending.next_due is None

    @invariant()
    def nobody_is_forgotten(self) -> None:
        if self.model:
            due = self.pending.next_due
            assert due is not None
            assert due <= min(due for _, due in self.model.values())


TestPendingRequests = PendingMachine.TestCase


async def test_a_short_time_out_is_kept_beside_a_long_one() -> None:
    router = Router()
    router.add(1, None, lambda connection, asked, header: None)
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.port}"
    long = asyncio.ensure_future(pool.request(address, request(1), float("inf")))
    await pool.connection(address)
    with pytest.raises(RequestTimeout):
        await asyncio.wait_for(pool.request(address, request(1), 0.05), 5)
    assert not long.done()
    long.cancel()
    await pool.close()
    await server.stop()


async def test_an_answer_that_nobody_waits_for_any_more_is_left_out() -> None:
    held: list[tuple[Connection, RemotingCommand]] = []
    router = Router()
    router.add(1, None, lambda connection, asked, header: held.append((connection, asked)))
    router.add(2, None, lambda connection, asked, header: response_to(asked))
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.port}"
    with pytest.raises(RequestTimeout):
        await pool.request(address, request(1), 0.05)
    for connection, asked in held:
        connection.send(response_to(asked))
    await pool.request(address, request(2), 5)  # arrives after it
    await pool.close()
    await server.stop()


async def test_requests_end_although_the_connection_cannot_because_its_peer_does_not_read() -> None:
    """Invalid data of the peer closes the connection, which first waits until queued data is sent."""
    closing, finished, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.write(b"\xff" * 64)
        await finished.wait()
        writer.transport.abort()
        gone.set()

    server = await asyncio.start_server(speak, "127.0.0.1", 0, limit=1024)
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = await pool.connection(address)
    large = asyncio.ensure_future(pool.request(address, request(1, body=bytes(15 << 20)), 0.2))
    small = asyncio.ensure_future(pool.request(address, request(1), 0.5))
    await asyncio.sleep(0)
    closing.set()
    async with asyncio.timeout(30):
        results = await asyncio.gather(large, small, return_exceptions=True)
    assert [type(each) for each in results] == [RequestTimeout, RequestTimeout]
    assert connection.is_closed
    finished.set()
    await gone.wait()
    await pool.close()
    await connection.wait_closed()
    server.close()


async def test_a_request_that_cannot_be_encoded_is_forgotten() -> None:
    server = Server(Router(), "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.port}"
    connection = await pool.connection(address)
    with pytest.raises(CommandError, match=r"bytes of header .* do not fit a frame"):
        await pool.request(address, RemotingCommand(1, {"topic": "x" * (17 << 20)}), 5)
    assert connection._requests.pending.take_all() == []
    await pool.close()
    await server.stop()


def test_what_a_server_accepts_sends_at_once() -> None:
    """The test also uses the event loop of asyncio."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        assert runner.run(_no_delay_of_what_is_accepted())


async def _no_delay_of_what_is_accepted() -> int:
    router = Router()
    seen: list[int] = []

    def look(connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        peer = connection._transport.get_extra_info("socket")
        seen.append(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return response_to(asked)

    router.add(1, None, look)
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool()
    await pool.request(f"127.0.0.1:{server.port}", request(1), 5)
    await pool.close()
    await server.stop()
    return seen[0]
