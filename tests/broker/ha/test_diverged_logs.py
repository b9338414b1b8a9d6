"""A slave whose log is not a prefix of its master's log reports this, changes nothing, and serves its messages."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.ha import table_sync
from raptormq.protocol.codes import ResponseCode
from tests.broker.ha.pair import become, end_of, pair, read, slave_of
from tests.broker.harness import assembly_of, connected, running

Ports = Callable[[int], list[int]]
SMALL_SEGMENTS = {"mappedFileSizeCommitLog": "1M"}


async def filled(folder: Path, sent: list[bytes], more: dict[str, str] | None = None) -> int:
    """Store messages in a broker without replication. Return the end of its log."""
    async with running(folder, more) as broker, connected(broker) as peer:
        for body in sent:
            assert (await peer.send("t", body)).code == ResponseCode.SUCCESS
        return end_of(broker)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ([b"one", b"TWO"], "the record at offset"),
        ([b"one", b"two", b"three"], "the master has lost messages"),
    ],
    ids=["diverged", "ahead"],
)
async def test_another_log_is_left_alone(tmp_path: Path, free_ports: Ports, own: list[bytes], reason: str) -> None:
    await filled(tmp_path / "master", [b"one", b"two"])
    end = await filled(tmp_path / "slave-1", own)
    async with pair(tmp_path, free_ports(2)) as brokers:
        await brokers.master()
        slave = await brokers.slave()
        await become(lambda: reason in slave_of(slave).facts().get("haReason", ""))
        assert end_of(slave) == end
        async with connected(slave) as peer:
            assert await read(peer, "t", len(own)) == own


async def test_a_master_with_an_empty_store_takes_nothing_from_its_slave(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of such a master have no topics. A slave that copied them would delete its own topics."""
    monkeypatch.setattr(table_sync, "SYNC_S", 0.05)
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        async with connected(master) as peer, connected(slave) as other:
            await peer.send("only-here", b"kept")
            await become(lambda: end_of(slave) == end_of(master) > 0)
            await become(lambda: "only-here" in assembly_of(slave).topics.configs)
            await master.stop()
            shutil.rmtree(tmp_path / "master")
            await brokers.master()
            compare, compared = slave_of(slave)._compare, asyncio.Semaphore(0)

            async def counted() -> None:
                compared.release()
                await compare()

            monkeypatch.setattr(slave_of(slave), "_compare", counted)
            for _ in range(4):
                await compared.acquire()
            assert "the master has lost messages" in slave_of(slave).facts()["haReason"]
            assert "only-here" in assembly_of(slave).topics.configs
            assert await read(other, "only-here", 1) == [b"kept"]


async def test_a_copy_of_the_beginning_is_continued(tmp_path: Path, free_ports: Ports) -> None:
    ports = free_ports(2)
    async with pair(tmp_path, ports) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        async with connected(master) as peer:
            await peer.send("t", b"one")
            await become(lambda: end_of(slave) == end_of(master) > 0)
            await slave.stop()
            await peer.send("t", b"two")
        slave = await brokers.slave()
        await become(lambda: end_of(slave) == end_of(master))
        async with connected(slave) as peer:
            assert await read(peer, "t", 2) == [b"one", b"two"]


async def test_a_slave_that_was_away_for_too_long(tmp_path: Path, free_ports: Ports) -> None:
    sent = [b"%d" % number * 100_000 for number in range(10, 35)]
    await filled(tmp_path / "slave-1", sent[:1], SMALL_SEGMENTS)
    await filled(tmp_path / "master", sent, SMALL_SEGMENTS)
    (tmp_path / "master" / "commitlog" / f"{0:020}").unlink()  # like retention
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more=SMALL_SEGMENTS)
        slave = await brokers.slave(more=SMALL_SEGMENTS)
        await become(lambda: "the range between is deleted" in slave_of(slave).facts().get("haReason", ""))
        await slave.stop()
        empty = await brokers.slave(2, more=SMALL_SEGMENTS)
        await become(lambda: end_of(empty) == end_of(master))
        assert empty._store.stats().min_offset == 1 << 20
        await empty.stop()
        again = await brokers.slave(2, more=SMALL_SEGMENTS)
        await become(lambda: slave_of(again).facts()["haConnected"] == "true")
        assert again._store.stats().min_offset == 1 << 20
        async with connected(again) as peer, connected(master) as other:
            first = int((await other.call(31, {"topic": "t", "queueId": 0})).ext_fields["offset"])
            found = [(await each.pull("t", first)).body for each in (peer, other)]
            assert found[0] == found[1] != b""


async def test_segments_of_another_size_are_refused(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        await brokers.master()
        slave = await brokers.slave(more=SMALL_SEGMENTS)
        reason = "mappedFileSizeCommitLog is 1048576 here and 8388608 at the master"
        await become(lambda: reason in slave_of(slave).facts().get("haReason", ""))
