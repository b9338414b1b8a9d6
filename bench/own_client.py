"""Rates of the RaptorMQ client in one process: sends with AutoBatch, and consumption of a backlog by each interface.

Bodies of 1 KiB, one BatchCQ topic of 16 queues, `raptormq dev` in a process of its own on the same CPUs. The rounds of
the rows alternate; each figure is the median.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import uvloop

from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP, TOPIC
from bench.figure import Figure
from bench.output import errors
from demo.broker_process import running_broker
from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageBatch,
    MessageExt,
    Producer,
    ProducerConfig,
    PushConsumer,
)

FULL, QUICK = 400_000, 20_000
ROUNDS = 3
_BODY = os.urandom(1024)
_QUEUES = 16
_GROUP_OF_SENDS = 1000
_AS_FAST_AS_IT_GOES = 10_000_000
_WITHIN_S = 300.0
_CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)

Row = Callable[[str, int, str], Awaitable[float]]
"""Takes the name servers, the number of messages and the name of a new group; returns messages per second."""


class _Count:
    """Counts consumed messages, and measures from the first to the last one."""

    def __init__(self, messages: int) -> None:
        self._messages = self._missing = messages
        self._begun = self._ended = 0.0
        self.is_over = asyncio.Event()

    def add(self, count: int) -> None:
        self._begun = self._begun or time.perf_counter()
        self._missing -= count
        if self._missing <= 0 and not self.is_over.is_set():
            self._ended = time.perf_counter()
            self.is_over.set()

    async def rate(self) -> float:
        async with asyncio.timeout(_WITHIN_S):
            await self.is_over.wait()
        return self._messages / (self._ended - self._begun)


async def awaited_sends(name_servers: str, messages: int, group: str) -> float:
    """Send with `asyncio.gather` over groups of 1,000 sends."""
    async with Producer(group, name_servers=name_servers, config=ProducerConfig(auto_batch=True)) as producer:
        begin = time.perf_counter()
        for _ in range(0, messages, _GROUP_OF_SENDS):
            await asyncio.gather(*(producer.send(Message(TOPIC, _BODY)) for _ in range(_GROUP_OF_SENDS)))
        return messages / (time.perf_counter() - begin)


async def sends_with_callback(name_servers: str, messages: int, group: str) -> float:
    """Send with `send_with_callback`, with at most 4,096 messages in flight."""
    async with Producer(group, name_servers=name_servers, config=ProducerConfig(auto_batch=True)) as producer:
        load = Load([producer], _BODY, _AS_FAST_AS_IT_GOES)
        begin = time.perf_counter()
        await load.run(_WITHIN_S, messages)
        await load.wait_below(1)
        if load.error is not None:
            raise load.error
        return load.stored / (time.perf_counter() - begin)


async def batch_listener(name_servers: str, messages: int, group: str) -> float:
    """Consume the backlog with a listener of batches."""
    count = _Count(messages)

    async def take(batch: MessageBatch) -> None:
        count.add(len(batch))

    consumer = PushConsumer(group, name_servers=name_servers, config=_CONFIG)
    consumer.subscribe_batches(TOPIC, "*", take)
    async with consumer:
        return await count.rate()


async def single_listener(name_servers: str, messages: int, group: str) -> float:
    """Consume the backlog with a listener that gets one message per call."""
    count = _Count(messages)

    async def take(taken: list[MessageExt]) -> None:
        count.add(len(taken))

    consumer = PushConsumer(group, name_servers=name_servers, config=_CONFIG)
    consumer.subscribe(TOPIC, "*", take)
    async with consumer:
        return await count.rate()


async def loop(name_servers: str, messages: int, group: str) -> float:
    """Consume the backlog with `async for` and `ack()`."""
    count = _Count(messages)
    consumer = Consumer(group, name_servers=name_servers, config=_CONFIG)
    consumer.subscribe(TOPIC)
    async with consumer:
        async for message in consumer:
            await message.ack()
            count.add(1)
            if count.is_over.is_set():
                return await count.rate()
    raise AssertionError("the loop ends only with the consumer")


SENDS: dict[str, tuple[Row, float]] = {
    "AutoBatch, awaited sends in groups of 1,000": (awaited_sends, 80_000),
    "AutoBatch, send_with_callback": (sends_with_callback, 150_000),
}
READS: dict[str, tuple[Row, float]] = {
    "backlog, listener of batches": (batch_listener, 300_000),
    "backlog, listener of single messages": (single_listener, 80_000),
    "backlog, async for with ack()": (loop, 40_000),
}


def measure(messages: int) -> list[Figure]:
    """Measure all rows with `messages` messages each."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with running_broker(folder) as name_servers:
            return uvloop.run(_measure(name_servers, messages))
    finally:
        shutil.rmtree(folder)


async def _measure(name_servers: str, messages: int) -> list[Figure]:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, _QUEUES, _QUEUES, attributes={"queue.type": "BatchCQ"})
    rows = SENDS | READS
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(ROUNDS):
        for name, (row, _) in rows.items():
            rates[name].append(await row(name_servers, messages, f"{GROUP}-{len(rates[name])}-{row.__name__}"))
            errors.print(f"round {number + 1}, {name}: {rates[name][-1]:,.0f} msg/s", highlight=False)
    return [Figure(name, median(rates[name]), "msg/s", promise, at_least=True) for name, (_, promise) in rows.items()]
