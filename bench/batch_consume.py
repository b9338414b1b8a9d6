"""A consumer of our own client beside `batch_load`: takes whole batches until its input ends; prints one JSON line.

python -m bench.batch_consume NAME_SERVERS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from bench.batch_load import TOPIC
from raptormq.client import ConsumeFromWhere, ConsumerConfig, MessageBatch, PushConsumer


class Sink:
    """Looks at every body and counts."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.began = 0.0
        self.something = asyncio.Event()

    async def take(self, batch: MessageBatch) -> None:
        """The batch listener."""
        self.began = self.began or time.perf_counter()
        self.bytes += sum(map(len, batch.bodies()))
        self.messages += len(batch)
        self.something.set()


async def _main(name_servers: str) -> None:
    sink = Sink()
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    async with PushConsumer("bench", name_servers=name_servers, config=config) as consumer:
        consumer.subscribe_batches(TOPIC, "*", sink.take)
        cpu = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        await sink.something.wait()  # the load may be over before this program has started
        seconds, cpu = time.perf_counter() - sink.began, time.process_time() - cpu
        figures = {"messages": sink.messages, "seconds": seconds, "cpu_seconds": cpu}
    print(json.dumps(figures))


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
