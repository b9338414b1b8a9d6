"""Timer messages that wait in a store come once, whichever of the two brokers has it when they are due.

Apache RocketMQ sets timers, RaptorMQ delivers them and sets others, and Apache RocketMQ delivers those. A message may
come twice by the promise of either broker; here nothing crashes, so none does.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Delay, Message, MessageQueue, Producer, PullConsumer
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "timer_exchange"
RECALL = {"recallMessageEnable": "true"}
WAIT_S = 40


async def set_timers(name_servers: str, name: str, after_s: float) -> None:
    """Set a timer and one that is taken back; the first message with a level is due long before."""
    async with Producer("timers", name_servers=name_servers) as producer:
        due = Delay.until(time.time_ns() // 1_000_000 + round(after_s * 1000))
        await producer.send(Message(TOPIC, f"{name} timer".encode(), delay=due))
        recalled = await producer.send(Message(TOPIC, f"{name} recalled".encode(), delay=due))
        assert recalled.recall_handle is not None
        await producer.recall(TOPIC, recalled.recall_handle)
        await producer.send(Message(TOPIC, f"{name} level".encode(), delay=Delay.by_level(1)))


async def received(name_servers: str, last: bytes) -> list[bytes]:
    """Read the topic from its start until `last` is there."""
    bodies: list[bytes] = []
    async with PullConsumer(name_servers=name_servers) as consumer:
        (queue,) = await consumer.queues(TOPIC)
        assert isinstance(queue, MessageQueue)
        consumer.assign([queue])
        consumer.seek(queue, 0)
        deadline = time.monotonic() + WAIT_S
        while last not in bodies and time.monotonic() < deadline:
            bodies += [message.body for message in await consumer.poll(2)]
    return bodies


async def create_topic(name_servers: str) -> None:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, 1, 1)


def test_timers_go_from_rocketmq_to_raptormq_and_back(tmp_path: Path) -> None:
    built = build()
    with RocketMQServers(built, tmp_path, settings=PATIENCE | RECALL) as rocketmq:
        asyncio.run(create_topic(rocketmq.name_servers))
        asyncio.run(set_timers(rocketmq.name_servers, "first", 10))
        first = asyncio.run(received(rocketmq.name_servers, b"first level"))
        assert first == [b"first level"]
    with RaptorMQDev(tmp_path, settings=RECALL) as raptormq:
        second = asyncio.run(received(raptormq.name_servers, b"first timer"))
        assert second == [b"first level", b"first timer"]
        asyncio.run(set_timers(raptormq.name_servers, "second", 12))
        third = asyncio.run(received(raptormq.name_servers, b"second level"))
        assert third == [*second, b"second level"]
    with RocketMQServers(built, tmp_path, settings=PATIENCE | RECALL) as rocketmq:
        last = asyncio.run(received(rocketmq.name_servers, b"second timer"))
        assert last == [*third, b"second timer"]
        rocketmq.kill()
