"""Offsets that consumers commit to a slave while its master is down are handed over to the master that returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.ha import AcceptedCommits, table_sync
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.fs import RealFileSystem
from raptormq.storage.queue import ConsumerOffsets, offsets_file
from tests.broker.ha.held_save import cancelled_while_it_writes
from tests.broker.ha.pair import Pair, become, end_of, pair, slave_of
from tests.broker.harness import Peer, connected

Ports = Callable[[int], list[int]]
KEY = "t@g"
PLACE: dict[str, object] = {"consumerGroup": "g", "topic": "t", "queueId": 0}


async def commit(peer: Peer, offset: int) -> None:
    answer = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": offset})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def offset_of(broker: Broker) -> int | None:
    return broker._store.consumer_offsets.get("t", "g", 0)


async def with_offset(brokers: Pair, offset: int) -> tuple[Broker, Broker]:
    """Start a master with ten messages and a slave, and commit an offset that both have."""
    master, slave = await brokers.master(), await brokers.slave()
    async with connected(master) as peer:
        for number in range(10):
            assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
        await commit(peer, offset)
    await become(lambda: end_of(slave) == end_of(master) and offset_of(slave) == offset)
    return master, slave


@pytest.mark.crossing("offsets", "master-slave", "fail-over")
async def test_a_commit_that_a_slave_accepted_is_handed_over_to_the_master(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await with_offset(brokers, 3)
        await master.stop()
        async with connected(slave) as peer:
            await commit(peer, 8)
        master = await brokers.master()
        await become(lambda: offset_of(master) == 8)
        async with connected(master) as peer, connected(slave) as other:
            await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
            for each in (peer, other):
                assert (await each.call(RequestCode.QUERY_CONSUMER_OFFSET, PLACE)).ext_fields["offset"] == "8"
            await commit(peer, 9)  # later commits go the usual way
            await become(lambda: offset_of(slave) == 9)


@pytest.mark.crossing("offsets", "master-slave", "restart")
async def test_a_commit_survives_a_restart_of_the_slave(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await with_offset(brokers, 3)
        await master.stop()
        async with connected(slave) as peer:
            await commit(peer, 8)
        file = tmp_path / "slave-1" / "config" / "slaveCommits.json"
        await become(lambda: file.exists() and KEY in json.loads(file.read_bytes())["commits"])
        await slave.stop()
        master = await brokers.master()
        assert offset_of(master) == 3
        await brokers.slave()
        await become(lambda: offset_of(master) == 8)
        await become(lambda: json.loads(file.read_bytes())["commits"] == {})


async def test_a_group_that_was_reset_at_the_master_keeps_its_offset(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await with_offset(brokers, 3)
        monkeypatch.setattr(table_sync, "SYNC_S", 3_600.0)
        await master.stop()
        async with connected(slave) as peer:
            await commit(peer, 8)
        await slave.stop()
        master = await brokers.master()
        async with connected(master) as peer:
            await commit(peer, 1)
        slave = await brokers.slave()
        await become(lambda: offset_of(slave) == 1)
        assert offset_of(master) == 1
        assert (
            "group g has committed offset 8 of queue 0 of topic t to this slave, but not to the master" in caplog.text
        )


async def test_a_commit_does_not_apply_to_a_new_topic_of_the_same_name(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await with_offset(brokers, 3)
        await master.stop()
        async with connected(slave) as peer:
            await commit(peer, 8)
        await slave.stop()
        master = await brokers.master()
        async with connected(master) as peer:
            assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == ResponseCode.SUCCESS
            assert (await peer.send("t", b"new")).code == ResponseCode.SUCCESS
            slave = await brokers.slave()
            await become(lambda: slave_of(slave).facts()["haConnected"] == "true" and offset_of(slave) is None)
            assert offset_of(master) is None


async def test_a_promoted_slave_keeps_its_commits_and_hands_none_over_later(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await with_offset(brokers, 3)
        await master.stop()
        async with connected(slave) as peer:
            await commit(peer, 8)
            await slave_of(slave).promote(lambda: None, force=False)
        assert offset_of(slave) == 8
        file = tmp_path / "slave-1" / "config" / "slaveCommits.json"
        assert not file.exists() or json.loads(file.read_bytes())["commits"] == {}


class Slave:
    """Offsets of a slave that has copied offset 10 of queue 0, and the commits that it accepts."""

    def __init__(self, folder: Path) -> None:
        self.offsets = ConsumerOffsets(offsets_file(str(folder / "consumerOffset.json"), RealFileSystem()), lambda: 1)
        self.commits = AcceptedCommits(folder, self.offsets, lambda topic: f"id of {topic}")
        self.offsets.set_row(KEY, {0: 10})
        self.commits.copied({KEY: {0: 10}})

    def commit(self, offset: int) -> None:
        self.offsets.commit("t", "g", 0, offset)

    def handed_over(self, found: dict[int, int]) -> list[tuple[int, str | None]]:
        """Return offset and topic id of each commit for a master with these offsets."""
        return [(each.offset, each.topic_id) for each in self.commits.to_hand_over({KEY: found})]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({0: 10}, [(20, "id of t")]),
        ({0: 15}, [(20, "id of t")]),  # committed to the master just before it went down
        ({0: 20}, []),
        ({0: 30}, []),  # the consumer has continued at the master
        ({0: 9}, []),  # reset at the master
        ({}, []),  # the offsets of the group were deleted
    ],
)
def test_a_commit_is_handed_over_if_the_master_is_behind_it(
    tmp_path: Path, found: dict[int, int], expected: list[tuple[int, str | None]]
) -> None:
    slave = Slave(tmp_path)
    slave.commit(20)
    assert slave.handed_over(found) == expected


def test_the_last_commit_of_a_queue_counts(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.commit(20)
    slave.commits.collect()
    slave.commit(10)
    assert slave.handed_over({0: 10}) == []
    slave.commit(30)
    assert slave.handed_over({0: 10}) == [(30, "id of t")]
    slave.commits.copied({KEY: {0: 30}})
    assert slave.handed_over({0: 10}) == []


def test_a_first_commit_is_handed_over_to_a_master_without_an_offset(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.offsets.commit("t", "g", 1, 5)
    assert slave.handed_over({0: 10}) == [(5, "id of t")]
    assert slave.handed_over({0: 10, 1: 7}) == []


async def test_a_cancelled_save_does_not_replace_the_next_one(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    slave.commit(20)

    async def promote() -> None:
        slave.commits.discard()
        await slave.commits.save()

    await cancelled_while_it_writes(slave.commits._file, slave.commits.save, promote)
    assert json.loads((tmp_path / "slaveCommits.json").read_bytes())["commits"] == {}


async def test_a_failed_save_is_logged_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slave = Slave(tmp_path)
    slave.commit(20)
    with monkeypatch.context() as full:

        def fail(_: object) -> None:
            raise OSError("no space")

        full.setattr(slave.commits._file, "save", fail)
        await slave.commits.save()
    assert "cannot save" in caplog.text
    await slave.commits.save()
    again = Slave.__new__(Slave)
    again.offsets = ConsumerOffsets(offsets_file(str(tmp_path / "consumerOffset.json"), RealFileSystem()), lambda: 1)
    again.offsets.set_row(KEY, {0: 20})
    again.commits = AcceptedCommits(tmp_path, again.offsets, lambda _: None)
    assert again.handed_over({0: 12}) == [(20, "id of t")]
    assert again.handed_over({0: 9}) == []
