"""Consumers of the RaptorMQ client for `own_load`, in a separate process. They receive whole batches.

    python -m bench.batch.own_consumer NAME_SERVERS COUNT

The process prints "ready" when the first message has arrived. It answers each line on standard input with one line
of JSON: `begin` starts the measured part, `end` returns its results, `count` returns the number of messages so far.
It ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack

import uvloop

from bench.batch.own_topic import GROUP, TOPIC
from raptormq.client import ClientConfig, ConsumeFromWhere, ConsumerConfig, MessageBatch, PushConsumer


class Sink:
    """Batch listener that reads every body, counts messages and records the age of every batch."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._ages_ms: Counter[int] = Counter()
        self._began_at = 0
        self._began_cpu = 0.0

    async def take(self, batch: MessageBatch) -> None:
        """Process a batch."""
        if not self.messages:
            print("ready", flush=True)
        count = len(batch)
        self.bytes += sum(map(len, batch.bodies()))
        self.messages += count
        self._ages_ms[max(0, time.time_ns() // 1_000_000 - batch.born_timestamp)] += count

    def answer(self, word: str) -> dict[str, float]:
        """Return the response to a line of input."""
        if word == "begin":
            self._ages_ms.clear()
            self._began_at, self._began_cpu = self.messages, time.process_time()
        return {
            "total": self.messages,
            "received": self.messages - self._began_at,
            "consumer_cpu_seconds": time.process_time() - self._began_cpu,
            "end_to_end_p50_ms": percentile(self._ages_ms, 50),
            "end_to_end_p99_ms": percentile(self._ages_ms, 99),
        }


def percentile(counts: Counter[int], percent: int) -> float:
    """Return the smallest value that at least `percent` of the counted values do not exceed; 0 without values."""
    wanted = counts.total() * percent / 100
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return 0


async def _main(name_servers: str, count: int) -> None:
    sink = Sink()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            consumer = PushConsumer(
                GROUP,
                client_config=ClientConfig(name_servers),
                config=ConsumerConfig(consume_from=ConsumeFromWhere.FIRST),
            )
            consumer.subscribe_batches(TOPIC, "*", sink.take)
            await stack.enter_async_context(consumer)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(sink.answer(line.strip())), flush=True)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
