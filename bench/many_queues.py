"""40,000 queues on one broker with 20,000 file descriptors: each is written, counted and read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.progress import Progress

from bench.figure import Figure
from bench.output import errors
from bench.process_usage import memory
from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer
from tests.interop.raptormq_dev import RaptorMQDev

QUEUES_PER_TOPIC = 8
DESCRIPTORS = 20_000
AT_ONCE = 128


def many_queues(folder: Path, topics: int) -> list[Figure]:
    """Measure `topics` topics of 8 queues with one message per queue."""
    limit = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
    with RaptorMQDev(folder / "queues", prefix=limit) as server:
        assert server.broker is not None
        counted = asyncio.run(_use(server.name_servers, [f"topic-{number:05}" for number in range(topics)]))
        resident = memory(server.broker.pid).resident
    queues = topics * QUEUES_PER_TOPIC
    return [
        Figure(f"{queues:,} queues, messages that came back", counted, "", queues, at_least=True),
        Figure(f"{queues:,} queues, resident memory", resident / 1e6, "MB", 1000),
    ]


async def _use(name_servers: str, topics: list[str]) -> int:
    """Create all topics, send to each queue and read each queue. Return the number of messages read."""
    async with (
        AdminClient(name_servers=name_servers) as admin,
        Producer("many", name_servers=name_servers) as producer,
        PullConsumer(name_servers=name_servers) as consumer,
    ):
        counts: list[int] = []

        async def create(topic: str) -> None:
            await admin.create_topic(topic, QUEUES_PER_TOPIC, QUEUES_PER_TOPIC)

        async def send(topic: str) -> None:
            for queue in _queues(topic):
                await producer.send(Message(topic, b"one"), queue=queue, timeout=30.0)

        async def read(topic: str) -> None:
            for queue in _queues(topic):
                result = await consumer.pull(queue, 0, 32, timeout=30.0)
                counts.append(len(result.messages()))

        with Progress(console=errors) as progress:
            for what, work in (("create", create), ("send", send), ("read", read)):
                await _all(progress, what, work, topics)
        return sum(counts)


def _queues(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, "broker-a", number) for number in range(QUEUES_PER_TOPIC)]


async def _all(progress: Progress, what: str, work: Callable[[str], Awaitable[None]], topics: list[str]) -> None:
    task = progress.add_task(what, total=len(topics))
    slots = asyncio.Semaphore(AT_ONCE)

    async def bounded(topic: str) -> None:
        async with slots:
            await work(topic)
            progress.advance(task)

    async with asyncio.TaskGroup() as group:
        for topic in topics:
            group.create_task(bounded(topic))
