"""Master and slave with Apache RocketMQ: its Java client with RaptorMQ, and its brokers as master or as slave.

In both directions, a slave copies everything that a store can contain (`store_contents`) while its master accepts it.
Then the master is killed, and the slave becomes the master: nothing is missing, and delayed messages and open
transactions continue.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from raptormq.client import AdminClient
from raptormq.protocol.codes import RequestCode
from tests.faults.ha_processes import LOOK_S, MASTER, SLAVE, ha_processes
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.raw_peer import connected
from tests.interop.rocketmq_java import Release, RocketMQServers, build, java
from tests.interop.store_contents import GROUP, SETTINGS, StoreContents, create_topics, expected, fill, look_through
from tests.interop.store_differences import differences

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "ledger"
COUNT = 50
CONSUMER = "io.raptormq.interop.consume.PrintMessages"
PRODUCER = "io.raptormq.interop.produce.SendStatuses"
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def class_path() -> str:
    """The Java programs, built before the time limit of a test starts."""
    return build().client_class_path(Release.NEWEST)


async def statuses(class_path: str, folder: Path, name_server: str, first: int) -> set[str]:
    """Send with the Java client. Return the reported statuses."""
    arguments = [name_server, TOPIC, str(COUNT), str(first)]
    producer = java(PRODUCER, arguments, class_path=class_path, log=folder / "producer.log")
    try:
        lines = await asyncio.to_thread(producer.finish, TIMEOUT_S)
    finally:
        producer.kill()
    return {line.split()[2] for line in lines if line.startswith("sent ")}


async def test_the_java_client_is_told_the_truth_and_reads_from_the_slave(tmp_path: Path, class_path: str) -> None:
    async with ha_processes(tmp_path) as processes, AdminClient(name_servers=processes.name_server) as admin:
        await processes.start(MASTER, "SYNC_MASTER")
        await admin.create_topic(TOPIC, 1, 1)
        assert await statuses(class_path, tmp_path, processes.name_server, 0) == {"SLAVE_NOT_AVAILABLE"}
        await processes.start(SLAVE, "SLAVE", 1)
        await processes.caught_up(admin)
        assert await statuses(class_path, tmp_path, processes.name_server, COUNT) == {"SEND_OK"}

        processes.kill(MASTER)
        arguments = [processes.name_server, TOPIC, str(2 * COUNT)]
        consumer = java(CONSUMER, arguments, class_path=class_path, log=tmp_path / "consumer.log")
        try:
            lines = await asyncio.to_thread(consumer.finish, TIMEOUT_S)
        finally:
            consumer.kill()
        (line,) = [line for line in lines if line.startswith("messages ")]
        found = [body for _, _, body in json.loads(line.removeprefix("messages "))]
        assert found == [str(number) for number in range(2 * COUNT)]


SETTLED = SETTINGS | {"mappedFileSizeConsumeQueue": "6000000", "maxHashSlotNum": "5000000", "maxIndexNum": "20000000"}
"""Settings for files of a store that another broker opens afterwards."""
MAY_COME_TWICE = ("delayed", "timers", "decided")
"""Messages that became due shortly before the kill of the master. Its last deliveries may be later than the progress
that it reported.
"""


def test_ours_follows_theirs_and_takes_over(tmp_path: Path) -> None:
    contents = StoreContents()
    with RocketMQServers(build(), tmp_path / "apache", settings=PATIENCE | SETTINGS) as rocketmq:
        asyncio.run(follow_apache(tmp_path, rocketmq, contents))
    assert contents.message_count > 100_000
    (tmp_path / "promoted").mkdir()
    shutil.move(tmp_path / SLAVE / "store", tmp_path / "promoted" / "store")
    with RaptorMQDev(tmp_path / "promoted", settings=SETTINGS) as raptormq:
        found = asyncio.run(look_through(contents, raptormq.name_servers, twice=MAY_COME_TWICE))
        assert differences(found, expected(contents)) == {}


async def follow_apache(folder: Path, rocketmq: RocketMQServers, contents: StoreContents) -> None:
    """Start a slave of RaptorMQ, fill the master, and kill it when the slave has everything."""
    await create_topics(rocketmq.name_servers)
    async with (
        ha_processes(folder, SETTLED) as processes,
        AdminClient(name_servers=rocketmq.name_servers) as admin,
    ):
        await processes.start(SLAVE, "SLAVE", 1, {"namesrvAddr": rocketmq.name_servers})
        await fill(contents, rocketmq.name_servers, "first")
        await wait_until_copied(admin, f"127.0.0.1:{rocketmq.broker_port}", processes.address(SLAVE), contents)
        rocketmq.kill()
        await processes.stop(SLAVE)


def test_theirs_follows_ours_and_takes_over(tmp_path: Path) -> None:
    contents = StoreContents()
    asyncio.run(followed_by_apache(tmp_path, contents))
    assert contents.message_count > 100_000
    with RocketMQServers(build(), tmp_path / "apache", settings=PATIENCE | SETTINGS) as rocketmq:
        found = asyncio.run(look_through(contents, rocketmq.name_servers, twice=MAY_COME_TWICE))
        assert differences(found, expected(contents)) == {}
        rocketmq.kill()


async def followed_by_apache(folder: Path, contents: StoreContents) -> None:
    """Start a slave of Apache RocketMQ, fill our master, and kill it when the slave has everything. The slave requests
    tables once a minute. Slaves of RocketMQ 5.3 fail for topics with attributes, also with masters of Apache RocketMQ
    (``TopicConfigManager.updateSingleTopicConfigWithoutPersist`` accepts changes only). Therefore the table is copied
    as described in the guide.
    """
    async with (
        ha_processes(folder, SETTLED) as processes,
        AdminClient(name_servers=processes.name_server) as admin,
    ):
        await processes.start(MASTER, "ASYNC_MASTER")
        await create_topics(processes.name_server)
        slave = RocketMQServers(
            build(),
            folder / "apache",
            settings=PATIENCE | SETTINGS | {"brokerRole": "SLAVE", "brokerId": "1"},
            namesrv_port=int(processes.name_server.rpartition(":")[2]),
        )
        topics = slave.store / "config" / "topics.json"
        topics.parent.mkdir(parents=True)
        shutil.copy(processes.root(MASTER) / "config" / "topics.json", topics)
        await asyncio.to_thread(slave.start_broker)
        try:
            await fill(contents, processes.name_server, "first")
            await wait_until_copied(admin, processes.address(MASTER), f"127.0.0.1:{slave.broker_port}", contents)
            processes.kill(MASTER)
        finally:
            await asyncio.to_thread(slave.stop_broker)
        shutil.copy(processes.root(MASTER) / "config" / "topics.json", topics)


async def wait_until_copied(admin: AdminClient, master: str, slave: str, contents: StoreContents) -> None:
    """Wait until the slave has the complete log of its master and the offsets of the group."""
    while await log_end(admin, slave) != await log_end(admin, master):
        await asyncio.sleep(LOOK_S)
    async with connected(slave) as peer:
        for (topic, queue_id), offset in contents.committed.items():
            fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id}
            while (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)).ext_fields.get("offset") != str(offset):
                await asyncio.sleep(LOOK_S)


async def log_end(admin: AdminClient, address: str) -> int:
    return int((await admin.runtime_info(address))["commitLogMaxOffset"])
