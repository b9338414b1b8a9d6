"""Rates of the RaptorMQ client in one process: sends with AutoBatch, consumption of a backlog by each interface, and
single sends.

Bodies of 1 KiB, one BatchCQ topic of 16 queues, `raptormq dev` in a process of its own on the same CPUs. The rounds of
the rows alternate; each figure is the median.

The last row compares single sends, 32 at a time and without AutoBatch, with those of 32 threads of the official Java
client to the same broker and topic. Both have the same time to warm up.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP, TOPIC
from bench.figure import Figure
from bench.load_run import LoadPlan, run_program
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
from tests.interop.rocketmq_java import JavaBuild, ProcessError, build


@dataclass(frozen=True)
class Plan:
    """Amounts and durations of the measurements."""

    messages: int
    """Number of messages of each row except the last."""
    single_sends: LoadPlan
    """Load of the last row."""


_THREADS = 32
_LOADS = (f"sync:{_THREADS}",)
FULL = Plan(400_000, LoadPlan(_LOADS, warm_up_seconds=10, seconds=10, max_messages=1_000_000))
QUICK = Plan(20_000, LoadPlan(_LOADS, warm_up_seconds=3, seconds=3, max_messages=100_000))
ROUNDS = 3
_BODY = os.urandom(1024)
_QUEUES = 16
_SINGLE_TOPIC = "load"
"""Topic to which the Java program sends."""
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


async def single_sends(name_servers: str, plan: LoadPlan) -> float:
    """Send with 32 tasks, each of which waits for the result of its send before the next one."""
    sent = 0

    async def send_on(producer: Producer) -> None:
        nonlocal sent
        while True:
            await producer.send(Message(_SINGLE_TOPIC, _BODY))
            sent += 1

    async with Producer("single", name_servers=name_servers) as producer, asyncio.TaskGroup() as group:
        senders = [group.create_task(send_on(producer)) for _ in range(_THREADS)]
        await asyncio.sleep(plan.warm_up_seconds)
        begin, before = time.perf_counter(), sent
        await asyncio.sleep(plan.seconds)
        rate = (sent - before) / (time.perf_counter() - begin)
        for sender in senders:
            sender.cancel()
    return rate


async def single_java_sends(built: JavaBuild, name_servers: str, plan: LoadPlan, folder: Path) -> float:
    """Send with 32 threads of the Java client. Raises ProcessError."""
    [result] = await asyncio.to_thread(run_program, built, name_servers, plan, folder / "load.log")
    if result["failures"]:
        raise ProcessError(f"{result['failures']} sends of the Java client have failed: see {folder / 'load.log'}")
    return float(result["messages"] / result["seconds"])


def measure(plan: Plan) -> list[Figure]:
    """Measure all rows. Raises BuildError and ProcessError."""
    built = build()
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with running_broker(folder) as name_servers:
            return uvloop.run(_measure(built, name_servers, plan, folder))
    finally:
        shutil.rmtree(folder)


async def _measure(built: JavaBuild, name_servers: str, plan: Plan, folder: Path) -> list[Figure]:
    rates = await _batch_rates(name_servers, plan.messages)
    figures = [
        Figure(name, median(rates[name]), "msg/s", promise, at_least=True)
        for name, (_, promise) in (SENDS | READS).items()
    ]
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(_SINGLE_TOPIC, _QUEUES, _QUEUES)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(ROUNDS):
        theirs.append(await single_java_sends(built, name_servers, plan.single_sends, folder))
        ours.append(await single_sends(name_servers, plan.single_sends))
        errors.print(
            f"round {number + 1}, {_THREADS} sends at a time: {ours[-1]:,.0f} msg/s, Java client {theirs[-1]:,.0f}",
            highlight=False,
        )
    what = f"{_THREADS} sends at a time; the promise is the rate of {_THREADS} threads of the Java client"
    return [*figures, Figure(what, median(ours), "msg/s", median(theirs), at_least=True)]


async def _batch_rates(name_servers: str, messages: int) -> dict[str, list[float]]:
    """Return the rate of each round, by row."""
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, _QUEUES, _QUEUES, attributes={"queue.type": "BatchCQ"})
    rows = SENDS | READS
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(ROUNDS):
        for name, (row, _) in rows.items():
            rates[name].append(await row(name_servers, messages, f"{GROUP}-{len(rates[name])}-{row.__name__}"))
            errors.print(f"round {number + 1}, {name}: {rates[name][-1]:,.0f} msg/s", highlight=False)
    return rates
