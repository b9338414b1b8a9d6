"""Waits for unreachable brokers: one probe for all callers, and what wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.reconnector import Reconnector
from raptormq.client.cluster.routes import RouteTable
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from tests.client.eventually import eventually
from tests.client.route_tables import ASK
from tests.client.scripted_peer import Reply, ScriptedPeer, route, silence

FAR = 60.0


class CountingPool(ConnectionPool):
    """Counts the attempts to connect per address."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: dict[str, int] = {}

    async def _connect(self, address: str) -> Connection:
        self.attempts[address] = self.attempts.get(address, 0) + 1
        return await super()._connect(address)


class Client:
    """The parts of a client that wait for brokers."""

    def __init__(self, names: ScriptedPeer) -> None:
        self.names = names
        self.pool = CountingPool()
        self.routes = RouteTable(NameServers(self.pool, [names.address], timeout=FAR), lambda _changed: None)
        self.reconnector = Reconnector(self.pool, self.routes)

    def wait(self, broker_name: str | None = None, seconds: float = FAR) -> asyncio.Task[str | None]:
        """Wait for a broker by the route that is cached now."""
        deadline = asyncio.get_running_loop().time() + seconds
        return asyncio.create_task(self.reconnector.wait("t", self.routes.cached("t"), broker_name, deadline))


@asynccontextmanager
async def client(*replies: Reply) -> AsyncIterator[Client]:
    """A client that has asked for the route of topic t once."""
    async with ScriptedPeer() as names:
        names.on(ASK, *replies)
        parts = Client(names)
        await parts.routes.find("t")
        try:
            yield parts
        finally:
            await parts.routes.close()
            await parts.pool.close()
            parts.reconnector.close()


async def test_all_callers_share_one_probe_until_the_broker_is_back(free_port: int) -> None:
    async with ScriptedPeer(free_port) as broker, client(route(1, broker)) as parts:
        await broker.stop()
        waiting = [parts.wait() for _ in range(1000)]
        await parts.names.wait_for(ASK, 5)
        await broker.start()
        assert set(await asyncio.gather(*waiting)) == {"broker-0"}
        assert parts.pool.attempts[broker.address] <= len(parts.names.received[ASK])


async def test_any_broker_of_the_topic_ends_the_wait_without_a_queue(free_ports: Callable[[int], list[int]]) -> None:
    first, second = map(ScriptedPeer, free_ports(2))
    async with first, second, client(route(1, first, second)) as parts:
        await first.stop()
        await second.stop()
        free, pinned = parts.wait(), parts.wait("broker-0")
        await parts.names.wait_for(ASK, 3)
        await second.start()
        assert await free == "broker-1"
        assert not pinned.done()
        await first.start()
        assert await pinned == "broker-0"


async def test_another_route_ends_the_wait(free_ports: Callable[[int], list[int]]) -> None:
    first, second = (route(1, unreachable=f"127.0.0.1:{port}") for port in free_ports(2))
    async with client(first, first, second) as parts:
        failed = parts.routes.cached("t")
        assert await parts.wait("broker-0") is None
        moved = parts.routes.cached("t")
        assert moved != failed
        # An attempt by the first route that ends only now is repeated at once.
        asked = len(parts.names.received[ASK])
        assert await parts.reconnector.wait("t", failed, "broker-0", 0.0) is None
        assert len(parts.names.received[ASK]) == asked


async def test_a_topic_without_writable_queues_is_not_reached_by_a_connection() -> None:
    async with ScriptedPeer() as broker, client(route(1, broker, perm=4)) as parts:
        await parts.pool.connection(broker.address)
        waiting = [parts.wait(), parts.wait("broker-0")]
        await parts.names.wait_for(ASK, 4)
        assert not any(map(asyncio.Task.done, waiting))
        parts.names.on(ASK, route(1, broker))
        assert await asyncio.gather(*waiting) == [None, None]


async def test_a_silent_name_server_does_not_delay_the_connection(free_port: int) -> None:
    async with ScriptedPeer(free_port) as broker, client(route(1, broker), silence) as parts:
        assert await parts.wait() == "broker-0"


async def test_each_caller_has_its_own_deadline_and_the_probe_ends_with_the_last(free_port: int) -> None:
    async with client(route(1, unreachable=f"127.0.0.1:{free_port}")) as parts:
        clock = asyncio.get_running_loop().time
        began = clock()
        short, long = parts.wait(seconds=0.2), parts.wait(seconds=0.8)
        with pytest.raises(TimeoutError):
            await short
        assert not long.done()
        assert clock() - began >= 0.2
        with pytest.raises(TimeoutError):
            await long
        assert clock() - began >= 0.8
        await eventually(lambda: not parts.reconnector._waits)


async def test_a_closed_client_ends_the_wait(free_port: int) -> None:
    async with client(route(1, unreachable=f"127.0.0.1:{free_port}")) as parts:
        waiting = parts.wait()
        await parts.names.wait_for(ASK, 2)
        parts.reconnector.close()
        assert await waiting is None
