"""A master whose disk is empty or an older copy accepts no messages while its slave has later ones."""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.ha import HistoryGuard, MasterClient, PromotionRecord, history_guard
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.store import MessageStore
from raptormq.transport.pool import ConnectionPool
from tests.broker.ha.pair import Pair, become, end_of, master_of, pair, read, slave_of
from tests.broker.harness import assembly_of, connected

Ports = Callable[[int], list[int]]
QUEUE: dict[str, object] = {"topic": "t", "queueId": 0, "consumerGroup": "g"}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_guard, "RECHECK_S", 0.05)
    monkeypatch.setattr(history_guard, "WATCH_S", 0.05)


async def lose_the_master(brokers: Pair) -> Broker:
    """Replicate a message to a slave, and delete the store of the master. Return the slave."""
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
        assert master_of(master).gauges()["ha_refuses_to_serve"][1] == 1
        assert (await master._pages.readiness())[0] == 503
        async with connected(master) as peer:
            refused = await peer.send("t", b"second history")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "haMasterMayStartBehind=true" in (refused.remark or "")
            assert (await peer.pull("t", 1)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not end_of(master)


async def test_it_serves_once_no_slave_has_messages(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await lose_the_master(brokers)
        master = await brokers.master()
        assert master_of(master).history is not None
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
        assert master_of(master).gauges()["ha_refuses_to_serve"][1] == 1
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
        assert f"beyond that of this master, which ends at {accepted}" in master_of(master).facts()["haReason"]
        assert end_of(master) == accepted


async def test_it_serves_if_its_owner_gives_the_messages_up(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        await lose_the_master(brokers)
        master = await brokers.master(more={"haMasterMayStartBehind": "true"})
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


async def older_disk(brokers: Pair) -> tuple[Path, Broker]:
    """Return the disk of a stopped master that lacks the last message, and its slave, which has it."""
    master, slave = await brokers.master(), await brokers.slave()
    async with connected(master) as peer:
        await peer.send("t", b"first")
        await become(lambda: end_of(slave) == end_of(master) > 0)
        await master.stop()
        older = brokers.folder / "older"
        shutil.copytree(brokers.folder / "master", older)
    master = await brokers.master()
    async with connected(master) as peer:
        await peer.send("t", b"second")
        await become(lambda: end_of(slave) == end_of(master))
        await become(lambda: "t" in assembly_of(slave).topics.configs)
    await master.stop()
    shutil.rmtree(brokers.folder / "master")
    shutil.copytree(older, brokers.folder / "master")
    return older, slave


async def test_an_older_disk_serves_nobody_until_the_slave_is_the_master(tmp_path: Path, free_ports: Ports) -> None:
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        _, slave = await older_disk(brokers)
        kept = end_of(slave)
        master = await brokers.master()
        own = end_of(master)
        reason = master_of(master).facts()["haReason"]
        assert f"ends at {kept}, beyond that of this master, which ends at {own}: stop this master, promote" in reason
        assert master_of(master).gauges()["ha_refuses_to_serve"][1] == 1
        status, text = await master._pages.readiness()
        assert (status, text.decode()) == (503, f"{reason}\n")
        assert not assembly_of(master).registrar.registered_count
        async with connected(master) as peer:
            refused = await peer.send("t", b"second history")
            assert (refused.code, reason in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
            assert (await peer.pull("t", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (end_of(master), end_of(slave)) == (own, kept)
        await master.stop()
        async with connected(slave) as peer:
            assert (await peer.call(RequestCode.PROMOTE)).code == ResponseCode.SUCCESS
            assert await read(peer, "t", 2) == [b"first", b"second"]
        shutil.move(brokers.folder / "master", brokers.folder / "slave-2")
        former = await brokers.slave(2)
        await become(lambda: end_of(former) == end_of(slave) == kept)


async def test_an_older_disk_stops_when_a_slave_with_more_comes_back(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        _, slave = await older_disk(brokers)
        kept = end_of(slave)
        await slave.stop()
        master = await brokers.master()
        own = end_of(master)
        assert assembly_of(master).registrar.registered_count
        slave = await brokers.slave()
        await become(lambda: "haReason" in master_of(master).facts())
        await become(lambda: not assembly_of(master).registrar.registered_count)  # consumers read from the slave
        assert (await master._pages.readiness())[0] == 503
        async with connected(master) as peer:
            assert (await peer.send("t", b"second history")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (end_of(master), end_of(slave)) == (own, kept)
            await slave.stop()
            await become(lambda: assembly_of(master).registrar.registered_count > 0)
            assert (await peer.send("t", b"given up")).code == ResponseCode.SUCCESS
        assert (await master._pages.readiness())[0] == 200


async def test_a_connection_of_a_slave_with_more_is_reason_to_ask_at_once(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave of Apache RocketMQ connects with any log, and a client can report any offset. Neither is more than a
    hint.
    """
    monkeypatch.setattr(history_guard, "WATCH_S", 3600)
    async with pair(tmp_path, free_ports(2)) as brokers:
        _, slave = await older_disk(brokers)
        await slave.stop()
        master = await brokers.master()
        asked = asyncio.Event()
        guard = master_of(master).history
        assert guard is not None
        check = guard.check

        async def checked() -> None:
            await check()
            asked.set()

        monkeypatch.setattr(guard, "check", checked)
        for is_registered in (False, True):
            if is_registered:
                await brokers.slave()
            asked.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", brokers.ha_port)
            writer.write(struct.pack(">q", 1 << 40))
            await asked.wait()
            writer.close()
            assert bool(guard.reason) is is_registered


async def test_a_master_with_slaves_that_are_equal_or_behind_always_serves(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for interval in ("RECHECK_S", "WATCH_S"):
        monkeypatch.setattr(history_guard, interval, 0)
    refused: list[str] = []
    monkeypatch.setattr(history_guard.logger, "error", lambda *text: refused.append(str(text)))
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        for restart in range(3):
            async with connected(master) as peer:
                for number in range(100):
                    sent = await peer.send("t", b"%d" % number)
                    assert sent.code == ResponseCode.SUCCESS, sent.remark
            if restart == 1:
                await slave.stop()  # and lags behind from now on
            await master.stop()
            master = await brokers.master()
        slave = await brokers.slave()
        await become(lambda: end_of(slave) == end_of(master))
    assert refused == []


async def test_what_the_old_master_has_beyond_a_promotion_is_given_up(tmp_path: Path, free_ports: Ports) -> None:
    """The promotion counts after a restart of the promoted broker, too, and after a start with another role."""
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        async with connected(master) as peer:
            await peer.send("t", b"first")
            await become(lambda: end_of(slave) == end_of(master) > 0)
            await become(lambda: "t" in assembly_of(slave).topics.configs)
            await slave.stop()
            await peer.send("t", b"lost with the master")
        await master.stop()
        shutil.move(brokers.folder / "master", brokers.folder / "slave-3")
        former = await brokers.slave(3)
        as_master = {"brokerRole": "ASYNC_MASTER", "listenPort": str(ports[2]), "haListenPort": str(ports[3])}
        promoted = await brokers.start_as("slave-1", as_master)
        assert end_of(promoted) < end_of(former)
        assert master_of(promoted).refusal == ""
        async with connected(promoted) as peer:
            assert (await peer.send("t", b"after the promotion")).code == ResponseCode.SUCCESS
        older = tmp_path / "older"
        await promoted.stop()
        shutil.copytree(brokers.folder / "slave-1", older)
        promoted = await brokers.start_as("slave-1", as_master)
        assert master_of(promoted).refusal == ""
        follower = await brokers.slave(4)
        async with connected(promoted) as peer:
            assert (await peer.send("t", b"x" * 1_000)).code == ResponseCode.SUCCESS
        await become(lambda: end_of(follower) == end_of(promoted))
        await promoted.stop()
        shutil.rmtree(brokers.folder / "slave-1")
        shutil.move(older, brokers.folder / "slave-1")
        promoted = await brokers.start_as("slave-1", as_master)
        reason = master_of(promoted).refusal
        assert f"ends at {end_of(follower)}, beyond that of this master" in reason, "its own slave has more messages"


async def slave_of_a_stopped_master(brokers: Pair, port: int, ha_port: int) -> Broker:
    """Start a slave with ports of its own, which has the message of a master. Return it when the master is stopped."""
    master = await brokers.master()
    slave = await brokers.slave(1, {"listenPort": str(port), "haListenPort": str(ha_port)})
    async with connected(master) as peer:
        await peer.send("t", b"first")
    await become(lambda: end_of(slave) == end_of(master) > 0)
    await master.stop()
    return slave


async def test_the_old_master_does_not_serve_beside_the_promoted_one(tmp_path: Path, free_ports: Ports) -> None:
    """The result does not depend on which log is longer."""
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        slave = await slave_of_a_stopped_master(brokers, ports[2], ports[3])
        async with connected(slave) as peer:
            assert (await peer.call(RequestCode.PROMOTE)).code == ResponseCode.SUCCESS
            await become(lambda: assembly_of(slave).registrar.registered_count > 0)
            master = await brokers.master()
            reason = master_of(master).refusal
            assert f"another master at 127.0.0.1:{ports[2]} serves under the name of this one" in reason
            assert (await peer.send("t", b"second")).code == ResponseCode.SUCCESS
        await slave.stop()
        await become(lambda: assembly_of(master).registrar.registered_count > 0)


async def test_a_longer_master_that_goes_on_after_a_promotion_stops_serving(tmp_path: Path, free_ports: Ports) -> None:
    """It was cut off from its slave, which was promoted. Now both serve, and the log of the old master is longer."""
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        async with connected(master) as peer:
            await peer.send("t", b"first")
            await become(lambda: end_of(slave) == end_of(master) > 0)
            await slave.stop()
            await peer.send("t", b"on no slave")
        cut_off = {"listenPort": str(ports[2]), "haListenPort": str(ports[3]), "haMasterAddress": "127.0.0.1:1"}
        slave = await brokers.slave(1, cut_off)
        await promote(slave)
        await become(lambda: "haReason" in master_of(master).facts())
        assert end_of(master) > end_of(slave)
        reason = master_of(master).facts()["haReason"]
        promoted_at = slave_of(slave).facts()["haPromotedAt"]
        assert f"another master at 127.0.0.1:{ports[2]} was promoted at offset {promoted_at} of the log: stop" in reason
        await become(lambda: not assembly_of(master).registrar.registered_count)
        async with connected(master) as old, connected(slave) as new:
            assert (await old.send("t", b"second history")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await new.send("t", b"continues")).code == ResponseCode.SUCCESS
        assert slave_of(slave).refusal == ""
        await slave.stop()
        guard = master_of(master).history
        assert guard is not None
        await guard.check()
        assert guard.reason == reason, "its messages are given up, also while no other broker is listed"


async def test_a_promoted_master_stops_serving_after_a_later_promotion(tmp_path: Path, free_ports: Ports) -> None:
    """Also if it was not restarted since its own promotion."""
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        first = await slave_of_a_stopped_master(brokers, ports[2], ports[3])
        await promote(first)
        second = await brokers.slave(2)
        async with connected(first) as peer:
            assert (await peer.send("t", b"second")).code == ResponseCode.SUCCESS
            await become(lambda: end_of(second) == end_of(first))
            await promote(second)
            await become(lambda: slave_of(first).refusal != "")
            refused = await peer.send("t", b"second history")
            assert (refused.code, "was promoted at offset" in (refused.remark or "")) == (
                ResponseCode.SERVICE_NOT_AVAILABLE, True,
            )  # fmt: skip
        assert (await first._pages.readiness())[0] == 503
        assert slave_of(second).refusal == ""


async def test_a_serving_master_that_is_not_listed_registers_again(tmp_path: Path) -> None:
    """An old master has displaced it, and then unregistered."""
    address, registered = "127.0.0.1:1", asyncio.Event()

    async def members() -> dict[int, str]:
        return {MASTER_ID: address} if is_listed else {}

    async def withdraw() -> None:
        raise AssertionError

    is_listed = True
    store = cast("MessageStore", SimpleNamespace(end_offset=0))
    guard = HistoryGuard(
        members, MasterClient(ConnectionPool()), store, PromotionRecord(tmp_path), "broker-a", address,
        registered.set,
    )  # fmt: skip
    guard.watch(lambda: None, withdraw)
    await guard.check()
    assert not registered.is_set()
    is_listed = False
    await registered.wait()
    await guard.stop()


async def promote(slave: Broker) -> None:
    """Promote a slave, also if its master responds."""
    async with connected(slave) as peer:
        assert (await peer.call(RequestCode.PROMOTE, {"force": "true"})).code == ResponseCode.SUCCESS
