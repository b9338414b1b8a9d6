"""A master that has lost its store does not begin a second history while its slave has the messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.ha import empty_master
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.ha.pair import Pair, become, end_of, master_of, pair, read
from tests.broker.harness import assembly_of, connected

Ports = Callable[[int], list[int]]
QUEUE: dict[str, object] = {"topic": "t", "queueId": 0, "consumerGroup": "g"}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_master, "RECHECK_S", 0.05)


async def lose_the_master(brokers: Pair) -> Broker:
    """Let a slave have a message, and the disk of its master be lost. Return the slave."""
    master, slave = await brokers.master(), await brokers.slave()
    async with connected(master) as peer:
        await peer.send("t", b"kept")
        await become(lambda: end_of(slave) == end_of(master) > 0)
        await become(lambda: "t" in assembly_of(slave).topics.configs)
    await master.stop()
    shutil.rmtree(brokers.folder / "master")
    return slave


async def test_it_serves_nobody_while_its_slave_has_messages(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        await lose_the_master(brokers)
        master = await brokers.master()
        assert "the log of the slave at 127.0.0.1:" in master_of(master).facts()["haReason"]
        assert master_of(master).gauges()["ha_refuses_empty_store"][1] == 1
        assert (await master._pages.readiness())[0] == 503
        async with connected(master) as peer:
            refused = await peer.send("t", b"second history")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "haMasterMayStartEmpty=true" in (refused.remark or "")
            assert (await peer.pull("t", 1)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not end_of(master)


async def test_it_serves_once_no_slave_has_messages(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await lose_the_master(brokers)
        master = await brokers.master()
        assert master_of(master).empty_store is not None
        assert master_of(master).facts()["haReason"]
        await slave.stop()
        await become(lambda: assembly_of(master).registrar.registered_count > 0)
        async with connected(master) as peer:
            assert (await peer.send("t", b"anew")).code == ResponseCode.SUCCESS


async def test_a_slave_that_comes_back_later_stops_it(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await lose_the_master(brokers)
        kept = end_of(slave)
        await slave.stop()
        master = await brokers.master()
        assert not master_of(master).facts().get("haReason")
        slave = await brokers.slave()
        await become(lambda: "haReason" in master_of(master).facts())
        assert "the log of the slave at 127.0.0.1:" in master_of(master).facts()["haReason"]
        assert master_of(master).gauges()["ha_refuses_empty_store"][1] == 1
        async with connected(master) as peer:
            refused = await peer.send("t", b"second history")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert end_of(slave) == kept
            await slave.stop()
            await become(lambda: "haReason" not in master_of(master).facts())
            assert (await peer.send("t", b"anew")).code == ResponseCode.SUCCESS


async def test_it_tells_what_it_has_accepted_before(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await lose_the_master(brokers)
        await slave.stop()
        master = await brokers.master()
        async with connected(master) as peer:
            assert (await peer.send("t", b"x")).code == ResponseCode.SUCCESS
        accepted = end_of(master)
        await brokers.slave()
        await become(lambda: "haReason" in master_of(master).facts())
        assert f"beyond the {accepted} bytes that this one has accepted" in master_of(master).facts()["haReason"]
        assert end_of(master) == accepted


async def test_it_serves_if_its_owner_gives_the_messages_up(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        await lose_the_master(brokers)
        master = await brokers.master(more={"haMasterMayStartEmpty": "true"})
        async with connected(master) as peer:
            assert (await peer.send("t", b"anew")).code == ResponseCode.SUCCESS
            assert await read(peer, "t", 1) == [b"anew"]


async def test_a_new_pair_serves_at_once(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await brokers.slave()
        master = await brokers.master()
        async with connected(master) as peer:
            assert (await peer.send("t", b"first")).code == ResponseCode.SUCCESS
        await become(lambda: end_of(slave) == end_of(master))
