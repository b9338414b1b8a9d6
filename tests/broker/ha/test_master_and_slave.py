"""A master and a slave of RaptorMQ: the log, the tables, refused requests and reported state."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.ha.pair import become, end_of, master_of, pair, read, slave_of
from tests.broker.harness import assembly_of, connected
from tests.broker.slow_disk import SlowDisk

Ports = Callable[[int], list[int]]


async def test_a_slave_has_and_serves_what_its_master_has(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        async with connected(master) as peer:
            assert (await peer.send("before", b"one")).code == ResponseCode.SUCCESS
            slave = await brokers.slave()
            await become(lambda: end_of(slave) == end_of(master))
            assert (await peer.send("after", b"two")).code == ResponseCode.SUCCESS
        async with connected(slave) as peer:
            assert await read(peer, "before", 1) == [b"one"]
            assert await read(peer, "after", 1) == [b"two"]


async def test_a_slave_refuses_what_only_a_master_does(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        await brokers.master()
        slave = await brokers.slave()
        async with connected(slave) as peer:
            await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
            sent = await peer.send("t", b"one")
            assert sent.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"send to its master (127.0.0.1:{brokers.master_port})" in (sent.remark or "")
            ended = await peer.call(RequestCode.END_TRANSACTION, {"topic": "t"})
            assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
            created = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "t"})
            assert created.code == ResponseCode.SYSTEM_ERROR


async def test_a_sync_master_tells_producers_what_slaves_have(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER")
        async with connected(master) as peer:
            alone = await peer.send("t", b"alone")
            assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert alone.ext_fields["msgId"], "the message is stored, so the client needs its id"
            slave = await brokers.slave()
            await become(lambda: end_of(slave) == end_of(master))
            for number in range(20):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
                assert end_of(slave) == end_of(master), "the slave has every acknowledged message"


async def test_the_tables_of_a_slave_are_those_of_its_master(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        async with connected(master) as peer:
            await peer.send("t", b"one")
            await peer.heartbeat("client", "readers", "t")
            await peer.call(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": "readers", "topic": "t", "queueId": 0, "commitOffset": 1},
            )
            slave = await brokers.slave()
            offsets = slave._store.consumer_offsets
            await become(lambda: offsets.get("t", "readers", 0) == 1)
            topics, own = assembly_of(slave).topics.configs, assembly_of(master).topics.configs
            assert topics == own
            assert topics["t"].topic_id == own["t"].topic_id != ""
            groups = [assembly_of(broker).groups.to_dict()["subscriptionGroupTable"] for broker in (slave, master)]
            assert groups[0] == groups[1]
            await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
            await become(lambda: "t" not in topics)
            assert offsets.get("t", "readers", 0) is None


async def test_both_tell_how_far_the_slave_is(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        async with connected(master) as peer, connected(slave) as other:
            await peer.send("t", b"one")
            await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
            await become(lambda: end_of(slave) == end_of(master))
            await become(lambda: master_of(master).connections()["haConnectionInfo"][0]["diff"] == 0)
            shown = json.loads((await peer.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert shown["master"] is True
            assert shown["haConnectionInfo"][0]["slaveAckOffset"] == end_of(master)
            shown = json.loads((await other.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert shown["master"] is False
            runtime = shown["haClientRuntimeInfo"]
            assert (runtime["activated"], runtime["maxOffset"]) == (True, end_of(slave))
        _, text = await master._pages.metrics()
        assert re.search(rb"ha_slaves(\{[^}]*\})? 1(\.0)?\n", text)
        _, text = await slave._pages.metrics()
        assert re.search(rb"ha_connected(\{[^}]*\})? 1(\.0)?\n", text)
        assert (await slave._pages.health())[0] == 200


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_goes_on_where_it_was(tmp_path: Path, free_ports: Ports, flush: str) -> None:
    more = {"flushDiskType": flush}
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER", more)
        async with connected(master) as peer:
            slave = await brokers.slave(more=more)
            await become(lambda: end_of(slave) == end_of(master))
            await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
            assert (await peer.send("t", b"0")).code == ResponseCode.SUCCESS
            await slave.stop()
            await become(lambda: not master_of(master).connections()["haConnectionInfo"])
            assert (await peer.send("t", b"1")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            slave = await brokers.slave(more=more)
            await become(lambda: end_of(slave) == end_of(master))
            async with connected(slave) as other:
                assert await read(other, "t", 2) == [b"0", b"1"]


SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH", "slaveTimeout": "60000", "syncFlushTimeout": "60000"}


async def test_a_slave_gets_nothing_that_its_master_may_lose(tmp_path: Path, free_ports: Ports) -> None:
    disk = SlowDisk()
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more=SYNC_FLUSH, filesystem=disk)
        slave = await brokers.slave()
        await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
        async with connected(master) as peer:
            disk.release.clear()
            sending = asyncio.ensure_future(peer.send("t", b"one"))
            await become(lambda: end_of(master) > 0)
            heard = slave_of(slave).connections()["haClientRuntimeInfo"]["lastReadTimestamp"]
            await become(lambda: slave_of(slave).connections()["haClientRuntimeInfo"]["lastReadTimestamp"] > heard)
            assert end_of(slave) == 0, "a heartbeat has arrived, and no message"
            disk.release.set()
            assert (await sending).code == ResponseCode.SUCCESS
            await become(lambda: end_of(slave) == end_of(master))


async def test_a_slave_that_flushes_reports_what_is_on_its_disk(tmp_path: Path, free_ports: Ports) -> None:
    disk = SlowDisk()
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER", SYNC_FLUSH)
        slave = await brokers.slave(1, SYNC_FLUSH, disk)
        await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
        async with connected(master) as peer:
            disk.release.clear()
            sending = asyncio.ensure_future(peer.send("t", b"one"))
            await become(lambda: end_of(slave) == end_of(master) > 0)
            assert master_of(master).connections()["haConnectionInfo"][0]["diff"] == end_of(master)
            assert not sending.done()
            disk.release.set()
            assert (await sending).code == ResponseCode.SUCCESS
