"""The official Java client sends to a Dledger group of RaptorMQ while its leader is killed, and reads all messages."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from raptormq.client import AdminClient
from tests.broker.replication.balancer import Balancer
from tests.faults.dledger_processes import BROKER, CLUSTER, PATIENT_HOSTS, dledger_group
from tests.interop.mqadmin import Place, run
from tests.interop.rocketmq_java import Release, build, java
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "ledger"
COUNT = 400
CONSUMER = "io.raptormq.interop.consume.PrintMessages"
PRODUCER = "io.raptormq.interop.produce.SendLedger"
UNDECIDED = "io.raptormq.interop.produce.SendUndecided"
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def class_path() -> str:
    """The Java programs, built before the time limit of a test starts."""
    return build().client_class_path(Release.NEWEST)


async def test_the_java_client_goes_on_with_the_next_leader(tmp_path: Path, class_path: str) -> None:
    async with dledger_group(tmp_path) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, 1, 1)
        arguments = [processes.name_server, TOPIC, str(COUNT), "1000"]
        producer = java(PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        try:
            await asyncio.to_thread(producer.wait_for, "acknowledged", TIMEOUT_S)
            processes.kill(leader)
            lines = await asyncio.to_thread(producer.finish, TIMEOUT_S)
        finally:
            producer.kill()
        acknowledged = [line.split()[1] for line in lines if line.startswith("acknowledged ")]
        assert len(acknowledged) == COUNT
        await processes.leader(admin, other_than=leader)

        (queue,) = await admin.topic_stats(TOPIC)
        stored = (await admin.topic_stats(TOPIC))[queue].max_offset
        arguments = [processes.name_server, TOPIC, str(stored)]
        consumer = java(CONSUMER, arguments, class_path=class_path, log=tmp_path / "consumer.log")
        try:
            lines = await asyncio.to_thread(consumer.finish, TIMEOUT_S)
        finally:
            consumer.kill()
        (line,) = [line for line in lines if line.startswith("messages ")]
        found = [body for _, _, body in json.loads(line.removeprefix("messages "))]
        assert [number for number in acknowledged if found.count(number) != 1] == []
        assert found == sorted(found, key=int)


async def test_the_next_leader_delivers_timers_and_asks_about_transactions(tmp_path: Path, class_path: str) -> None:
    """Both are only in the log, and what the killed leader has started is not repeated."""
    count, due_ms = 20, 15_000
    more = "transactionTimeOut=15000\ntransactionCheckInterval=1000\n"
    async with dledger_group(tmp_path, more) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, 1, 1)
        arguments = [processes.name_server, TOPIC, str(count), str(due_ms)]
        producer = java(UNDECIDED, arguments, class_path=class_path, log=tmp_path / "producer.log")
        try:
            await asyncio.to_thread(producer.wait_for, "sent", TIMEOUT_S)
            (queue,) = await admin.topic_stats(TOPIC)
            before = (await admin.topic_stats(TOPIC))[queue].max_offset
            processes.kill(leader)
            await processes.leader(admin, other_than=leader)
            wanted = [f"timer {number}" for number in range(count)] + [
                f"open {number}" for number in range(0, count, 2)
            ]
            while (await admin.topic_stats(TOPIC))[queue].max_offset < len(wanted):
                await asyncio.sleep(0.1)
            arguments = [processes.name_server, TOPIC, str(len(wanted))]
            consumer = java(CONSUMER, arguments, class_path=class_path, log=tmp_path / "consumer.log")
            try:
                lines = await asyncio.to_thread(consumer.finish, TIMEOUT_S)
            finally:
                consumer.kill()
            stored = (await admin.topic_stats(TOPIC))[queue].max_offset
        finally:
            producer.kill()
        (line,) = [line for line in lines if line.startswith("messages ")]
        found = [body for _, _, body in json.loads(line.removeprefix("messages "))]
        assert before < len(wanted), "the first leader has left messages to the next one"
        assert sorted(found) == sorted(wanted)
        assert stored == len(wanted)


async def test_the_java_client_follows_the_address_of_the_leader_without_a_route(
    tmp_path: Path, class_path: str
) -> None:
    """It would refresh the route after an hour. This is not necessary, because the address does not change and the
    connection ends with the leader.
    """
    count, balancer = 400, Balancer(free_port())
    await balancer.start()
    address = f"127.0.0.1:{balancer.port}"
    async with (
        dledger_group(tmp_path, leader_address=address) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leads(admin)
        balancer.target = processes.leader_ports[leader]
        while (await admin.cluster_info()).brokers[BROKER].broker_addrs.get(0) != address:
            await asyncio.sleep(0.02)
        await admin.create_topic(TOPIC, 1, 1)
        arguments = [processes.name_server, TOPIC, str(count), "3600000"]
        producer = java(PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        try:
            await asyncio.to_thread(producer.wait_for, "acknowledged", TIMEOUT_S)
            processes.kill(leader)
            balancer.target = processes.leader_ports[await processes.leads(admin, other_than=leader)]
            lines = await asyncio.to_thread(producer.finish, TIMEOUT_S)
        finally:
            producer.kill()
            await balancer.stop()
        assert len([line for line in lines if line.startswith("acknowledged ")]) == count


async def test_the_java_client_notices_nothing_of_a_planned_transfer(tmp_path: Path, class_path: str) -> None:
    """It refreshes the route every 30 s. Until then the old leader forwards its sends."""
    count = 3_000
    async with (
        dledger_group(tmp_path, hosts=PATIENT_HOSTS) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, 1, 1)
        arguments = [processes.name_server, TOPIC, str(count), "30000"]
        producer = java(PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        try:
            await asyncio.to_thread(producer.wait_for, "acknowledged", TIMEOUT_S)
            await admin.transfer_leadership(f"127.0.0.1:{processes.ports[leader]}")
            new = await processes.leader(admin, other_than=leader)
            lines = await asyncio.to_thread(producer.finish, TIMEOUT_S)
        finally:
            producer.kill()
        assert new != leader
        acknowledged = [int(line.split()[1]) for line in lines if line.startswith("acknowledged ")]
        assert acknowledged == list(range(count)), "no send has failed"


async def test_mqadmin_shows_the_leader_as_0_and_followers_by_their_numbers(tmp_path: Path) -> None:
    built = build()
    async with dledger_group(tmp_path) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        addresses = {member: f"127.0.0.1:{port}" for member, port in processes.ports.items()}
        expected = {addresses[member]: 0 if member == leader else int(member[1:]) + 1 for member in addresses}
        while (await admin.cluster_info()).brokers[BROKER].broker_addrs != {id_: at for at, id_ in expected.items()}:
            await asyncio.sleep(0.02)
        commands = [["clusterList"], ["haStatus", "-b", addresses[leader]], ["brokerStatus", "-b", addresses[leader]]]
        place = Place(processes.name_server, addresses[leader], tmp_path)
        clusters, replication, figures = await asyncio.to_thread(run, built, place, commands)
    shown = re.findall(rf"^\S+\s+{BROKER}\s+(\d+)\s+(127\.0\.0\.1:\d+)", clusters, re.MULTILINE)
    assert {address: int(broker_id) for broker_id, address in shown} == expected
    assert replication.count("slaveAckOffset") == 2 or len(re.findall(r"127\.0\.0\.1:\d+", replication)) >= 2, (
        replication
    )
    assert re.search(r"^dledgerLastAppendTimeMs\s*:\s*\d+$", figures, re.MULTILINE)
    assert re.search(r"^dledgerRole\s*:\s*leader$", figures, re.MULTILINE)


@pytest.mark.parametrize("release", [Release.REFERENCE, Release.NEWEST])
async def test_mqadmin_gets_from_the_leader_what_it_asks_a_controller_for(tmp_path: Path, release: Release) -> None:
    built = build()
    built.client_class_path(release)
    async with dledger_group(tmp_path) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        addresses = {member: processes.address(member) for member in processes.ports}
        follower, other = (member for member in processes.ports if member != leader)
        for member in (follower, other):
            await processes.votes(admin, leader, member)
        ids = {member: int(member[1:]) + 1 for member in processes.ports}
        term = (await admin.replication(addresses[leader])).term
        while len((await admin.cluster_info()).brokers[BROKER].broker_addrs) < len(ids):
            await asyncio.sleep(0.02)
        any_member = ["-a", addresses[follower]]
        commands = [
            ["getControllerMetaData", *any_member],
            ["getControllerConfig", *any_member],
            ["getSyncStateSet", *any_member, "-b", BROKER],
            ["getBrokerEpoch", "-b", BROKER],
            ["electMaster", *any_member, "-b", str(ids[other]), "-bn", BROKER, "-c", CLUSTER],
            ["electMaster", *any_member, "-b", "77", "-bn", BROKER, "-c", CLUSTER],
            ["updateControllerConfig", *any_member, "-k", "enableElectUncleanMaster", "-v", "true"],
            ["cleanBrokerMetadata", *any_member, "-b", str(ids[leader]), "-bn", BROKER, "-c", CLUSTER],
            ["cleanBrokerMetadata", *any_member, "-b", str(ids[leader]), "-bn", BROKER, "-c", CLUSTER, "-l", "true"],
            ["getSyncStateSet", "-a", addresses[leader], "-b", BROKER],
        ]
        place = Place(processes.name_server, addresses[leader], tmp_path)
        shown = await asyncio.to_thread(run, built, place, commands, release=release)
        metadata, settings, in_sync, epochs, elected, unknown, changed, living, cleaned, rest = shown

        assert f"#ControllerGroup\t{BROKER}" in metadata
        assert f"#ControllerLeaderId\t{leader}" in metadata
        assert f"#ControllerLeaderAddress\t{addresses[leader]}" in metadata
        assert metadata.count("#Peer:") == len(ids)
        assert re.search(rf"controllerDLegerSelfId\s*=\s*{follower}", settings)
        assert f"#MasterBrokerId\t{ids[leader]}\n#MasterAddr\t{addresses[leader]}\n#MasterEpoch\t{term}" in in_sync
        assert "#SyncStateSetNums\t3" in in_sync
        for member, address in addresses.items():
            assert re.search(rf"brokerId=?'?:?\s?{ids[member]}\b.*{address}", in_sync), in_sync
            assert f"#brokerAddr\t{address}" in epochs
        assert epochs.count(f"epoch={term}") == len(ids)
        assert f"#BrokerMasterAddr\t{addresses[other]}" in elected
        assert f"#Broker\t0\t{addresses[other]}" in elected
        assert f"#Broker\t{ids[leader]}\t{addresses[leader]}" in elected
        assert "no member has the id 77" in unknown
        assert "a Dledger group has no controller" in changed
        assert f"{leader} responds: removed only with -l" in living
        assert f"clear broker {BROKER} metadata from controller success" in cleaned
        assert "#SyncStateSetNums\t2" in rest
        assert (await admin.replication(addresses[other])).leader == other
