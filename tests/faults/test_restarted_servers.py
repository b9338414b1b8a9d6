"""Routes are correct immediately after a restart of a name server or of a broker. Apache RocketMQ needs up to 30 s, the
interval of registrations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.bodies.route import TopicRoute
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import assembly_of, connected, running

SOON = 25.0
"""Limit in seconds, below the interval of registrations."""


def name_server(folder: Path, port: int) -> NameServer:
    pairs = {
        "listenPort": str(port), "bindAddress": "127.0.0.1", "kvConfigPath": str(folder / "kv.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }  # fmt: skip
    return NameServer(NameServerConfig.from_pairs(pairs))


async def brokers_of(pool: ConnectionPool, address: str, topic: str) -> set[str]:
    """Return the addresses of a topic's brokers that a client receives."""
    command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await pool.request(address, command, SOON)
    if answer.code:
        return set()
    return {address for broker in TopicRoute.from_json(answer.body).brokers for address in broker.broker_addrs.values()}


async def until(
    pool: ConnectionPool, address: str, topic: str, right: Callable[[set[str]], bool], seconds: float = SOON
) -> set[str]:
    async with asyncio.timeout(seconds):
        while not right(found := await brokers_of(pool, address, topic)):
            await asyncio.sleep(0.01)
    return found


async def test_a_name_server_that_restarts_knows_all_routes(tmp_path: Path, free_port: int) -> None:
    first = name_server(tmp_path, free_port)
    await first.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{free_port}"
    async with running(tmp_path / "store", {"namesrvAddr": address}) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
        await until(pool, address, "t", {broker.address}.__eq__)
        await first.stop()
        again = name_server(tmp_path, free_port)
        await again.start()
        await until(pool, address, "t", {broker.address}.__eq__)
        await again.stop()
    await pool.close()


async def test_a_broker_that_restarts_elsewhere_is_found_there_and_only_there(tmp_path: Path) -> None:
    server = name_server(tmp_path, 0)
    await server.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.port}"
    async with running(tmp_path / "store", {"namesrvAddr": address}) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
        await until(pool, address, "t", {broker.address}.__eq__)
    assert await brokers_of(pool, address, "t") == set()  # it has unregistered
    async with running(tmp_path / "store", {"namesrvAddr": address}) as broker:
        await until(pool, address, "t", {broker.address}.__eq__)
    await pool.close()
    await server.stop()


async def test_a_broker_that_is_cut_off_is_in_no_route(tmp_path: Path) -> None:
    """Stop without unregistering, like a crash."""
    server = name_server(tmp_path, 0)
    await server.start()
    pool = ConnectionPool()
    address = f"127.0.0.1:{server.port}"
    async with running(tmp_path / "store", {"namesrvAddr": address}) as broker, connected(broker) as peer:
        await peer.send("t", b"1")
        await until(pool, address, "t", {broker.address}.__eq__)
        assembly = assembly_of(broker)
        assembly.registrar._task.cancel()  # type: ignore[union-attr]
        await assembly.registrar.close()
        await until(pool, address, "t", set().__eq__)
    await pool.close()
    await server.stop()
