"""Consumers of our own client beside `own_load`, in a process of their own: they take whole batches.

    python -m bench.batch.own_consumer NAME_SERVERS COUNT

Prints "ready" when the first message has come. Each line on standard input is answered by one line of JSON: `begin`
starts the measured part, `end` tells about it, `count` tells what has come so far. Ends with its input.
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
    """Looks at every body, counts, and notes the age of every batch."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._ages_ms: Counter[int] = Counter()
        self._began_at = 0
        self._began_cpu = 0.0

    async def take(self, batch: MessageBatch) -> None:
        """The batch listener."""
        if not self.messages:
            print("ready", flush=True)
        count = len(batch)
        self.bytes += sum(map(len, batch.bodies()))
        self.messages += count
        self._ages_ms[max(0, time.time_ns() // 1_000_000 - batch.born_timestamp)] += count

    def answer(self, word: str) -> dict[str, float]:
        """What to print for a line of input."""
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
    """The smallest value that at least `percent` of all counted ones do not exceed; 0 when there are none."""
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
