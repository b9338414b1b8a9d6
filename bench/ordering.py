"""Throughput of order by key compared with order by queue, and with no order.

One queue, 1,000 keys, bodies of 1 KiB, `raptormq dev` in a separate process. Each round is a new group that reads
from the first message. The rate counts from the first to the last call of the listener. The rounds of the two sides
of a ratio alternate; the ratio is that of the medians.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.figure import Figure
from bench.output import errors
from demo.broker_process import running_broker
from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    Order,
    Producer,
    PushConsumer,
)
from raptormq.protocol.properties import SHARDING_KEY

FULL, QUICK = 60_000, 3_000
ROUNDS = 3
KEYS, WORKERS, WORK_S = 1000, 200, 0.001
ORDERLY_SHARE = 20
"""Divisor of the number of messages for order by queue, which takes a millisecond per message."""
WANTED_GAIN, ALLOWED_OVERHEAD = 50.0, 30.0
_WITHIN_S = 600.0


def measure(count: int) -> list[Figure]:
    """Measure both ratios with `count` messages."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with running_broker(folder) as name_servers:
            return uvloop.run(_measure(name_servers, count))
    finally:
        shutil.rmtree(folder)


async def _measure(name_servers: str, count: int) -> list[Figure]:
    await _fill(name_servers, count)
    rates: dict[str, list[float]] = {}

    async def round_of(name: str, config: ConsumerConfig, works: bool, limit: int) -> None:
        rate = await _rate(name_servers, f"{name}-{len(rates.setdefault(name, []))}", config, works, limit)
        errors.print(f"{name}: {rate:,.0f} msg/s")
        rates[name].append(rate)

    first = ConsumeFromWhere.FIRST
    for _ in range(ROUNDS):
        orderly = ConsumerConfig(consume_from=first, order=Order.BY_QUEUE)
        by_key = ConsumerConfig(consume_from=first, order=Order.BY_KEY, concurrency=WORKERS)
        await round_of("by-queue-1ms", orderly, True, count // ORDERLY_SHARE)
        await round_of("by-key-1ms", by_key, True, count)
        await round_of("concurrent-noop", ConsumerConfig(consume_from=first), False, count)
        await round_of("by-key-noop", ConsumerConfig(consume_from=first, order=Order.BY_KEY), False, count)
    found = {name: median(values) for name, values in rates.items()}
    overhead = (found["concurrent-noop"] / found["by-key-noop"] - 1) * 100
    gain = found["by-key-1ms"] / found["by-queue-1ms"]
    work = f"{WORK_S * 1000:g} ms of work"
    return [
        Figure(f"rate by key over rate by queue, {work}, {WORKERS} workers", gain, "times", WANTED_GAIN, at_least=True),
        Figure("time of a message by key over without order, no work", overhead, "% more", ALLOWED_OVERHEAD),
    ]


async def _fill(name_servers: str, count: int) -> None:
    async with AdminClient(name_servers=name_servers) as admin, Producer("fill", name_servers=name_servers) as producer:
        await admin.create_topic("ordering", 1, 1)
        for first in range(0, count, 500):
            numbers = range(first, min(first + 500, count))
            keys = [f"key-{number % KEYS}" for number in numbers]
            messages = [Message("ordering", bytes(1024), properties={SHARDING_KEY: key}) for key in keys]
            await producer.send_batch(messages)


async def _rate(name_servers: str, group: str, config: ConsumerConfig, works: bool, limit: int) -> float:
    """Return the messages per second of a new group over its first `limit` messages."""
    begun = ended = 0.0
    done = 0
    is_over = asyncio.Event()

    async def consume(messages: list[MessageExt]) -> None:
        nonlocal begun, ended, done
        begun = begun or time.perf_counter()
        if works:
            await asyncio.sleep(WORK_S)
        done += len(messages)
        if done == limit:
            ended = time.perf_counter()
            is_over.set()

    consumer = PushConsumer(group, name_servers=name_servers, config=config)
    consumer.subscribe("ordering", "*", consume)
    async with consumer, asyncio.timeout(_WITHIN_S):
        await is_over.wait()
    return limit / (ended - begun)
