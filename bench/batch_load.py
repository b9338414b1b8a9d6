"""Load of our own client on one topic: as many messages under way as wanted, for some seconds; prints one JSON line.

python -m bench.batch_load NAME_SERVERS on|off SECONDS UNDER_WAY BODY_BYTES BATCH_BYTES DELAY_MS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import uvloop

from raptormq.client import Message, Producer, SendResult

TOPIC = "bench"
_SUBMITS_PER_TURN = 256
_LATENCY_EVERY = 16


class Load:
    """Submits without a pause and counts the answers."""

    def __init__(self, producer: Producer, under_way: int, body: bytes) -> None:
        self._producer = producer
        self._under_way = under_way
        self._body = body
        self._pending = 0
        self._room = asyncio.Event()
        self._error: BaseException | None = None
        self.stored = 0
        self.latencies: list[float] = []

    async def run(self, seconds: float) -> None:
        """Send for some seconds and wait for all answers; raises the first error of a send."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        number = 0
        while clock() < end:
            for _ in range(min(_SUBMITS_PER_TURN, self._under_way - self._pending)):
                number += 1
                begin = clock() if number % _LATENCY_EVERY == 0 else None
                future = self._producer.submit(Message(TOPIC, self._body, "TagA"))
                self._pending += 1
                future.add_done_callback(lambda done, begin=begin: self._answered(done, begin))  # type: ignore[misc]
            await self._wait_below(self._under_way)
        await self._wait_below(1)

    async def _wait_below(self, limit: int) -> None:
        await asyncio.sleep(0)
        while self._pending >= limit:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    def _answered(self, done: asyncio.Future[SendResult], begin: float | None) -> None:
        self._pending -= 1
        self._room.set()
        if (error := done.exception()) is not None:
            self._error = self._error or error
            return
        self.stored += 1
        if begin is not None:
            self.latencies.append(asyncio.get_running_loop().time() - begin)


async def _main(arguments: list[str]) -> None:
    name_servers, switch, seconds, under_way, body_bytes, batch_bytes, delay_ms = arguments
    body = os.urandom(int(body_bytes))
    async with Producer(
        "bench",
        name_servers=name_servers,
        auto_batch=switch == "on",
        batch_max_bytes=int(batch_bytes),
        batch_max_delay_ms=float(delay_ms),
    ) as producer:
        await Load(producer, int(under_way), body).run(1)
        load = Load(producer, int(under_way), body)
        wall, cpu = time.perf_counter(), time.process_time()
        await load.run(float(seconds))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    latencies = sorted(load.latencies)
    print(
        json.dumps(
            {
                "messages": load.stored,
                "seconds": wall,
                "client_cpu_seconds": cpu,
                "p50_ms": latencies[len(latencies) // 2] * 1000,
                "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
            }
        )
    )


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1:]))
