"""Promotion of a running slave to the master."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.ha import slave as slave_module
from raptormq.broker.ha.promotion_record import PromotionRecord
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.fs import DiskUsage, RealFileSystem
from tests.broker.ha.held_save import cancelled_while_it_writes
from tests.broker.ha.pair import become, end_of, pair, read, slave_of
from tests.broker.harness import Peer, assembly_of, connected
from tests.broker.retention import SHORT_SEGMENTS

Ports = Callable[[int], list[int]]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_becomes_the_master(tmp_path: Path, free_ports: Ports, flush: str) -> None:
    more = {"flushDiskType": flush, "messageDelayLevel": "1s 2s"}
    ports = free_ports(4)
    async with pair(tmp_path, ports[:2]) as brokers:
        master = await brokers.master(more=more)
        slave = await brokers.slave(more=more | {"listenPort": str(ports[2]), "haListenPort": str(ports[3])})
        async with connected(master) as peer, connected(slave) as other:
            await peer.send("t", b"before")
            await peer.send("t", b"delayed", properties="DELAY\x012\x02")
            await become(lambda: end_of(slave) == end_of(master))
            refused = await other.call(RequestCode.PROMOTE)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "answers: stop it first" in (refused.remark or "")
        end = end_of(slave)
        await master.stop()
        async with connected(slave) as peer:
            promoted = await peer.call(RequestCode.PROMOTE)
            assert promoted.code == ResponseCode.SUCCESS, promoted.remark
            assert promoted.ext_fields == {"logEnd": str(end), "masterEnd": str(end)}
            assert (await peer.call(RequestCode.PROMOTE)).code == ResponseCode.ILLEGAL_OPERATION
            assert (await peer.send("t", b"after")).code == ResponseCode.SUCCESS
            assert await read(peer, "t", 3) == [b"before", b"after", b"delayed"], "the services of a master run"
            assert registered_id(slave) == 0
            again = await brokers.slave(2, more)
            await become(lambda: end_of(again) == end_of(slave))
            assert slave_of(slave).connections()["master"] is True


async def test_another_slave_finds_the_new_master(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave requests the master's address after each failure. Its registrations, which also return it, are rare
    here.
    """
    monkeypatch.setattr(slave_module, "_REGISTRATIONS_IN_A_ROW", 0)
    monkeypatch.setattr(slave_module, "_REGISTRATION_INTERVAL", sys.maxsize)
    ports = free_ports(6)
    async with pair(tmp_path, ports[:2]) as brokers:
        master = await brokers.master()
        first = await brokers.slave(1, {"listenPort": str(ports[2]), "haListenPort": str(ports[3])})
        second = await brokers.slave(2, {"listenPort": str(ports[4]), "haListenPort": str(ports[5])})
        async with connected(master) as peer:
            await peer.send("t", b"before")
        await become(lambda: end_of(first) == end_of(second) == end_of(master))
        registered = asyncio.Event()

        def find_master() -> None:
            registered.set()
            assembly_of(second).registrar.register_again()

        monkeypatch.setattr(slave_of(second), "_find_master", find_master)
        await master.stop()
        await registered.wait()  # it always registers after the end of a connection
        registered.clear()
        async with connected(first) as peer:
            assert (await peer.call(RequestCode.PROMOTE)).code == ResponseCode.SUCCESS
            assert (await peer.send("t", b"after")).code == ResponseCode.SUCCESS
        await become(lambda: end_of(second) == end_of(first))
        assert registered.is_set()
        async with connected(second) as peer:
            assert await read(peer, "t", 2) == [b"before", b"after"]


def registered_id(broker: Broker) -> int:
    return assembly_of(broker).registrar._broker_id


class Occupied(RealFileSystem):
    """A file system that reports how full a test wants its volumes to be."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0.0

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(1000, 1000 - int(1000 * self.used))


@pytest.mark.parametrize("way", ["force", "expired"])
async def test_slave_whose_log_begins_after_that_of_its_master_is_promoted_only_by_force(
    tmp_path: Path, free_ports: Ports, way: str
) -> None:
    ports = free_ports(4)
    disk = Occupied()
    async with pair(tmp_path, ports[:2]) as brokers:
        master = await brokers.master(more=SHORT_SEGMENTS)
        listens = {"listenPort": str(ports[2]), "haListenPort": str(ports[3])}
        slave = await brokers.slave(1, SHORT_SEGMENTS | listens, disk)
        async with connected(master) as peer:
            for _ in range(10):
                assert (await peer.send("t", b"x" * 50_000)).code == ResponseCode.SUCCESS
        await become(lambda: end_of(slave) == end_of(master))
        await become(lambda: slave._store.flushed_offset == end_of(slave))
        disk.used = 0.99
        await slave._store.clean(any_hour=False)
        assert slave._store.start_offset > master._store.start_offset == 0
        await master.stop()
        async with connected(slave) as peer:
            refused = await peer.call(RequestCode.PROMOTE)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            reason = f"this log begins at {slave._store.start_offset}, and that of the master began at 0"
            assert reason in (refused.remark or "")
            assert (await state_at(peer)).missing == (0, slave._store.start_offset)
            if way == "expired":  # the master would have deleted the messages, too
                slave._store.config.file_reserved_hours = 0
                assert (await state_at(peer)).missing is None
                promoted = await peer.call(RequestCode.PROMOTE)
            else:
                promoted = await peer.call(RequestCode.PROMOTE, {"force": "true"})
            assert promoted.code == ResponseCode.SUCCESS, promoted.remark
            assert (await state_at(peer)).missing is None


async def state_at(peer: Peer) -> ReplicationState:
    return ReplicationState.from_json((await peer.call(RequestCode.DESCRIBE_REPLICATION)).body)


async def test_begin_of_the_master_is_known_after_a_restart_of_the_slave(tmp_path: Path) -> None:
    record = PromotionRecord(tmp_path)
    await record.master_begins(700)
    assert record.master_begin is None, "this broker is no slave"
    await record.follows()
    await record.master_begins(700)
    again = PromotionRecord(tmp_path)
    assert (again.is_slave, again.master_begin) == (True, 700)
    await again.promoted(900)
    assert PromotionRecord(tmp_path).master_begin is None


async def test_a_cancelled_record_does_not_replace_that_of_a_promotion(tmp_path: Path) -> None:
    record = PromotionRecord(tmp_path)
    await record.follows()
    await cancelled_while_it_writes(record._file, lambda: record.master_begins(700), lambda: record.promoted(900))
    again = PromotionRecord(tmp_path)
    assert (again.is_slave, again.offset) == (False, 900)
