"""Cost of a late consumer group: messages are written while there is no consumer, then the first group reads all.

The broker keeps 3 x `logBytesKeptInPageCache` of such a topic in memory; with 0 the kernel decides. The load is the
RaptorMQ client in this process: AutoBatch into 16 BatchCQ queues, then a batch listener.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP, TOPIC
from bench.output import errors, markdown
from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    MessageBatch,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from tests.interop.raptormq_dev import RaptorMQDev

FULL, QUICK = 8_000_000, 100_000
KEPT = ("1G", "0")
"""Values of `logBytesKeptInPageCache`: the default, and 0, which disables the eviction of pages."""
_BODY_BYTES = 1024
_QUEUES = 16
_LONGEST_S = 600.0


@dataclass(frozen=True)
class LateGroup:
    """Result of one run."""

    kept: str
    messages: int
    write_seconds: float
    read_seconds: float


class _Count:
    """Batch listener that counts until all messages have arrived."""

    def __init__(self, messages: int) -> None:
        self._missing = messages
        self.all_came = asyncio.Event()

    async def take(self, batch: MessageBatch) -> None:
        self._missing -= len(batch)
        if self._missing <= 0:
            self.all_came.set()


def measure(messages: int, rounds: int) -> list[LateGroup]:
    """Run each setting with an empty folder, in turn; raises ProcessError."""
    found = []
    for number in range(rounds):
        for kept in KEPT if number % 2 == 0 else reversed(KEPT):
            errors.print(f"round {number + 1}: {messages:,} messages, logBytesKeptInPageCache={kept}", highlight=False)
            found.append(_measure_once(kept, messages))
    return found


def _measure_once(kept: str, messages: int) -> LateGroup:
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        os.sync()  # write out the files of the previous run first
        with RaptorMQDev(folder, settings={"logBytesKeptInPageCache": kept}) as server:
            return uvloop.run(_write_and_read(server.name_servers, kept, messages))
    finally:
        shutil.rmtree(folder)


async def _write_and_read(name_servers: str, kept: str, messages: int) -> LateGroup:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, _QUEUES, _QUEUES, attributes={"queue.type": "BatchCQ"})
    begin = time.perf_counter()
    async with Producer(GROUP, name_servers=name_servers, config=ProducerConfig(auto_batch=True)) as producer:
        load = Load([producer], os.urandom(_BODY_BYTES), rate=10_000_000)
        await load.run(_LONGEST_S, messages)
        await load.wait_below(1)
    written, count = time.perf_counter(), _Count(load.stored)
    consumer = PushConsumer(
        GROUP,
        client_config=ClientConfig(name_servers),
        config=ConsumerConfig(consume_from=ConsumeFromWhere.FIRST),
    )
    consumer.subscribe_batches(TOPIC, "*", count.take)
    async with consumer:
        await asyncio.wait_for(count.all_came.wait(), _LONGEST_S)
        return LateGroup(kept, load.stored, written - begin, time.perf_counter() - written)


def table(found: Sequence[LateGroup]) -> str:
    """Return a table with one row per run."""
    rows = [
        [
            f"`logBytesKeptInPageCache={each.kept}`",
            f"{each.messages * _BODY_BYTES / 1024**3:.1f}",
            f"{each.write_seconds:.0f}",
            f"{each.messages / each.write_seconds:,.0f}",
            f"{each.messages / each.read_seconds:,.0f}",
        ]
        for each in sorted(found, key=lambda each: KEPT.index(each.kept))
    ]
    header = ["a first group comes late", "GiB of bodies", "written in s", "written msg/s", "then read msg/s"]
    return markdown(header, rows)
