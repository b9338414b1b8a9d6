"""The official Java client and a topic whose queues are converted: batches of autoBatch are stored whole after the
switch to BatchCQ, and all messages, also earlier ones, are read in order.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, Producer, PullConsumer
from raptormq.protocol.inner_batch import is_inner_batch
from raptormq.protocol.record import iter_records
from tests.interop.converting import convert
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import Release, build, java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CONSUMER = "io.raptormq.interop.consume.PrintMessages"
PRODUCER = "io.raptormq.interop.produce.SendAutomatically"
TOPIC = "converted"
BEFORE, AUTOMATIC = 500, 300


async def fill(name_servers: str) -> list[str]:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, 1, 1)
        while await admin.route(TOPIC) is None:
            await asyncio.sleep(0.05)
    async with Producer("before", name_servers=name_servers) as producer:
        bodies = [f"before {number}" for number in range(BEFORE)]
        await producer.send_batch([Message(TOPIC, body.encode()) for body in bodies])
    return bodies


async def whole_batches(name_servers: str) -> int:
    """Return how many records of the topic are batches that were stored whole."""
    found = 0
    async with PullConsumer(name_servers=name_servers) as consumer:
        [queue] = await consumer.queues(TOPIC)
        offset, end = 0, await consumer.max_offset(queue)
        while offset < end:
            pulled = await consumer.pull(queue, offset)
            found += sum(is_inner_batch(record.sys_flag) for record in iter_records(pulled.body))
            offset = pulled.next_offset
    return found


def test_the_java_client_batches_after_the_switch(tmp_path: Path) -> None:
    class_path = build().client_class_path(Release.NEWEST)
    with RaptorMQDev(tmp_path / "servers") as servers:
        sent = asyncio.run(fill(servers.name_servers))
        state = asyncio.run(convert(servers, TOPIC, "BatchCQ"))
        assert (state.phase, state.queue_type, state.total) == ("done", "BatchCQ", BEFORE)
        arguments = (servers.name_servers, TOPIC, str(AUTOMATIC))
        producer = java(PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        # the client may log a warning at its end, because its heartbeat finds the connection closed
        assert f"answered {AUTOMATIC}\n" in producer.finish(90)
        assert asyncio.run(whole_batches(servers.name_servers)) > 0
        arguments = (servers.name_servers, TOPIC, str(BEFORE + AUTOMATIC))
        consumer = java(CONSUMER, arguments, class_path=class_path, log=tmp_path / "consumer.log")
        [line] = [line for line in consumer.finish(90) if line.startswith("messages ")]
        found = json.loads(line.removeprefix("messages "))
        assert [offset for offset, _, _ in found] == list(range(BEFORE + AUTOMATIC))
        bodies = [body for _, _, body in found]
        assert bodies[:BEFORE] == sent
        assert sorted(bodies[BEFORE:]) == sorted(f"automatic {number}" for number in range(AUTOMATIC))
        state = asyncio.run(convert(servers, TOPIC, "SimpleCQ"))
        assert state.phase == "refused"
        assert f"at offset {BEFORE}" in state.remark
