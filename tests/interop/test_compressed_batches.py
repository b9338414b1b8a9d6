"""Batches that the Python client has compressed as a whole, read by the official Java client from brokers of both
kinds.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Compression, Message, Producer, ProducerConfig, PullConsumer
from raptormq.protocol.inner_batch import is_inner_batch
from raptormq.protocol.record import SysFlag, iter_records
from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin import Place, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers, build, java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CONSUMER = "io.raptormq.interop.consume.PrintMessages"
TOPIC = "compressed"


@pytest.fixture(scope="module")
def built() -> JavaBuild:
    return build()


@pytest.fixture(params=["RaptorMQ", "Apache RocketMQ"])
def name_servers(request: pytest.FixtureRequest, built: JavaBuild, tmp_path: Path) -> Iterator[str]:
    servers: RaptorMQDev | RocketMQServers
    if request.param == "RaptorMQ":
        servers = RaptorMQDev(tmp_path / "servers")
    else:
        servers = RocketMQServers(built, tmp_path, settings=PATIENCE)
    with servers:
        yield servers.name_servers


async def send(name_servers: str) -> list[tuple[str, str]]:
    """Send two batches with each compression, the second of which is compressed. Return ids and bodies."""
    sent: list[tuple[str, str]] = []
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, 1, 1, attributes={"queue.type": "BatchCQ"})
        while await admin.route(TOPIC) is None:
            await asyncio.sleep(0.05)
    for compression in Compression:
        config = ProducerConfig(compress_batches=True, compression=compression)
        async with Producer("p", name_servers=name_servers, config=config) as producer:
            for _ in range(2):
                bodies = [f"{len(sent) + n} again and again " * 100 for n in range(4)]
                result = await producer.send_batch([Message(TOPIC, body.encode()) for body in bodies])
                sent += zip(result.message_id.split(","), bodies, strict=True)
    return sent


async def stored_flags(name_servers: str, count: int) -> list[int]:
    """Return the SYSFLAG of every record of the topic."""
    flags: list[int] = []
    async with PullConsumer(name_servers=name_servers) as consumer:
        [queue] = await consumer.queues(TOPIC)
        offset = 0
        while offset < count:
            pulled = await consumer.pull(queue, offset, suspend_ms=2000)
            flags += [record.sys_flag for record in iter_records(pulled.body)]
            offset = pulled.next_offset
    return flags


async def received(name_servers: str, class_path: str, count: int, log: Path) -> list[list[object]]:
    """Return offset, unique id and body of every message that the Java client of this class path receives."""
    consumer = java(CONSUMER, (name_servers, TOPIC, str(count)), class_path=class_path, log=log)
    [line] = [line for line in await asyncio.to_thread(consumer.finish, 90) if line.startswith("messages ")]
    found: list[list[object]] = json.loads(line.removeprefix("messages "))
    return found


async def test_the_java_client_reads_them(name_servers: str, built: JavaBuild, tmp_path: Path) -> None:
    sent = await send(name_servers)
    flags = await stored_flags(name_servers, len(sent))
    assert all(map(is_inner_batch, flags))
    assert [bool(flag & SysFlag.COMPRESSED) for flag in flags] == [False, True] * len(Compression)
    found = await received(name_servers, built.client_class_path(Release.NEWEST), len(sent), tmp_path / "java.log")
    assert found == [[offset, *message] for offset, message in enumerate(sent)]


async def test_the_java_client_of_rocketmq_4_gets_them_message_by_message(built: JavaBuild, tmp_path: Path) -> None:
    with RaptorMQDev(tmp_path / "servers") as servers:
        sent = await send(servers.name_servers)
        found = await received(servers.name_servers, built.mixed_class_path, len(sent), tmp_path / "java.log")
    assert found == [[offset, *message] for offset, message in enumerate(sent)]


async def test_mqadmin_finds_a_message_by_its_id(built: JavaBuild, tmp_path: Path) -> None:
    with RaptorMQDev(tmp_path / "servers") as servers:
        sent = await send(servers.name_servers)
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", tmp_path)
        command = ["queryMsgByUniqueKey", "-t", TOPIC, "-i", sent[-2][0]]
        [output] = await asyncio.to_thread(run, built, place, [command])
    assert re.findall(r"Queue Offset: +(\d+)", output) == [str(len(sent) - 2)]
