"""Tables of a slave that differ from copies: topics that first occur in the log, progress that takes effect later."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.ha import table_sync
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.inner_batch import unwrap
from tests.broker.batches.batch_peer import named, send_batch
from tests.broker.ha.pair import become, end_of, pair, read, slave_of
from tests.broker.harness import assembly_of, connected, messages

Ports = Callable[[int], list[int]]
TOPIC = {"topic": "t", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
SIMPLE_TOPIC = TOPIC | {"topicFilterType": "SINGLE_TAG", "order": "false"}
BATCH_TOPIC = SIMPLE_TOPIC | {"attributes": "+queue.type=BatchCQ"}


async def test_a_new_topic_has_the_type_of_its_master(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await brokers.master("SYNC_MASTER"), await brokers.slave()
        await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
        async with connected(master) as peer, connected(slave) as other:
            assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC)).code == ResponseCode.SUCCESS
            assert (await peer.send("t", b"single")).code == ResponseCode.SUCCESS
            assert slave._store.is_batch_topic("t"), "the type is known before the first message is in a queue"
            assert await read(other, "t", 1) == [b"single"]


async def test_a_topic_that_is_created_again_with_another_queue_type_is_replicated(
    tmp_path: Path, free_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave copies the topics only after it has put messages of the new topic in queues of the old type."""
    monkeypatch.setattr(table_sync, "SYNC_S", 3_600.0)
    async with pair(tmp_path, free_ports(2)) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
        async with connected(master) as peer, connected(slave) as other:
            for number in range(5):
                await peer.send("t", b"old %d" % number)
            await become(lambda: slave._store.queue_end("t", 0) == 5)
            assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == ResponseCode.SUCCESS
            assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC)).code == ResponseCode.SUCCESS
            await peer.send("t", b"0")
            await become(lambda: slave._store.queue_end("t", 0) == 1)
            assert not slave._store.is_batch_topic("t")
            await send_batch(peer, named("1", "2"), topic="t")
            await become(lambda: slave._store.queue_end("t", 0) == 3)
            assert slave._store.is_batch_topic("t")
            found = [messages(await other.pull("t", offset)) for offset in (0, 1)]
            assert [each.queue_offset for each in found[0]] == [0, 1]
            assert [each.body for each in unwrap(found[1][0])] == [b"1", b"2"]
            await peer.send("t", b"3")
            await become(lambda: slave._store.queue_end("t", 0) == 4)
            assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == ResponseCode.SUCCESS
            assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, SIMPLE_TOPIC)).code == ResponseCode.SUCCESS
            await peer.send("t", b"simple")
            await slave_of(slave).tables.copy_topics()
            await become(lambda: slave._store.queue_end("t", 0) == 1)
            assert await read(other, "t", 1) == [b"simple"]


async def test_messages_of_a_topic_that_is_gone_stay_out_of_the_next_one(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        async with connected(master) as peer:
            for number in range(3):
                await peer.send("t", b"old %d" % number)
            assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == ResponseCode.SUCCESS
            slave = await brokers.slave()
            await become(lambda: end_of(slave) == end_of(master))
            assert slave._store.queue_end("t", 0) == 0
            await peer.send("t", b"new")
            await become(lambda: end_of(slave) == end_of(master))
        async with connected(slave) as other:
            assert await read(other, "t", 1) == [b"new"]


async def test_progress_of_deliveries_follows(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more={"messageDelayLevel": "1s 2s"})
        async with connected(master) as peer:
            await peer.send("t", b"late", properties="DELAY\x011\x02")
            await read(peer, "t", 1)
            slave = await brokers.slave(more={"messageDelayLevel": "1s 2s"})
            delays = assembly_of(slave).tables.delays
            await become(lambda: delays.offsets == {1: 1} and delays.is_saved)
            await become(lambda: end_of(slave) == end_of(master))
        await slave.stop()
        await master.stop()
        promoted = await brokers.start_as("slave-1", {"messageDelayLevel": "1s 2s"})
        async with connected(promoted) as peer:
            await peer.send("t", b"after")
            assert await read(peer, "t", 2) == [b"late", b"after"], "the message is delivered once"


async def test_closed_segments_may_be_copied_first(tmp_path: Path, free_ports: Ports) -> None:
    more = {"mappedFileSizeCommitLog": "1M"}
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more=more)
        async with connected(master) as peer:
            for number in range(25):
                await peer.send("t", b"%02d" % number + b"x" * 100_000)
            for folder in ("commitlog", "config"):
                (tmp_path / "slave-1" / folder).mkdir(parents=True)
            for number in range(2):
                name = f"commitlog/{number << 20:020}"
                shutil.copy(tmp_path / "master" / name, tmp_path / "slave-1" / name)
            shutil.copy(tmp_path / "master/config/topics.json", tmp_path / "slave-1/config/topics.json")
            slave = await brokers.slave(more=more)
            assert end_of(slave) >= 2 << 20
            await become(lambda: end_of(slave) == end_of(master))
            async with connected(slave) as other:
                assert await read(other, "t", 25) == await read(peer, "t", 25)
