"""Requests that wait for their answers, against a plain dictionary that is searched as a whole."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raptormq.errors import RequestTimeout
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.pending_requests import BUCKET_SECONDS, Answer, PendingRequests
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server


class PendingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pending = PendingRequests()
        self.now = 1000.0
        self.opaque = 0
        self.model: dict[int, tuple[Answer, float]] = {}

    def teardown(self) -> None:
        self.loop.close()

    @rule(timeout=st.floats(0, 40))
    def add(self, timeout: float) -> None:
        self.opaque += 1
        future: Answer = self.loop.create_future()
        deadline = self.now + timeout
        due = self.pending.add(self.opaque, future, deadline)
        assert deadline <= due <= deadline + BUCKET_SECONDS + 1e-6
        self.model[self.opaque] = future, due

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        opaque = data.draw(st.integers(0, self.opaque + 1))
        assert self.pending.take(opaque) is self.model.pop(opaque, (None,))[0]

    @rule(passed=st.floats(0, 5))
    def take_overdue(self, passed: float) -> None:
        self.now += passed
        overdue = {opaque: future for opaque, (future, due) in self.model.items() if due <= self.now}
        assert set(self.pending.take_overdue(self.now)) == set(overdue.values())
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
    await pool.request(address, request(2), 5)  # comes behind it
    await pool.close()
    await server.stop()
