"""Load with the RaptorMQ client: producers in this process, consumers in another. The output is that of the Java
program.

    python -m bench.batch.own_load NAME=VALUE...

The settings are those of `Workload.load_settings`. The program prints "measuring" and "measured" at the start and
the end of the measured part, then "result " with JSON (`LoadResult`). At most 4,096 sends wait for their responses.
Latencies are measured for every 16th message.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvloop

from bench.batch.own_topic import TOPIC
from raptormq.client import AdminClient, ClientConfig, Message, Producer, ProducerConfig, SendResult

_UNDER_WAY = 4096
_SUBMITS_PER_TURN = 256
_TURN_S = 0.001
_LATENCY_EVERY = 16
_READY_S = 60.0
_DRAIN_S = 10.0
_POLL_S = 0.02


class Load:
    """Submits messages, optionally at a fixed rate, and counts the responses."""

    def __init__(self, producers: list[Producer], body: bytes, rate: int) -> None:
        self._producers = producers
        self._body = body
        self._rate = rate
        self._pending = 0
        self._room = asyncio.Event()
        self._waits = False
        self._callback = self._answered  # bound once, so that all sends share one object
        self.error: BaseException | None = None
        self.stored = 0
        self.failed = 0
        self.latencies: list[float] = []

    async def run(self, seconds: float, max_messages: int) -> None:
        """Send for a duration or up to a number of stored messages. Does not wait for the last responses."""
        clock = asyncio.get_running_loop().time
        begin, most, submitted = clock(), self.stored + max_messages, 0
        while clock() < begin + seconds and self.stored < most:
            due = int((clock() - begin) * self._rate) - submitted
            count = max(0, min(_SUBMITS_PER_TURN, _UNDER_WAY - self._pending, due))
            self.submit(submitted, count)
            submitted += count
            if due <= 0:
                await asyncio.sleep(_TURN_S)
            else:
                await self.wait_below(_UNDER_WAY)

    def submit(self, first: int, count: int) -> None:
        """Send `count` messages. The loop does little work per message, because the producer is measured."""
        producers, body, answered = self._producers, self._body, self._callback
        turns = len(producers)
        self._pending += count
        for number in range(first, first + count):
            callback = answered
            if number % _LATENCY_EVERY == 0:
                callback = functools.partial(self._timed, asyncio.get_running_loop().time())
            producers[number % turns].send_with_callback(Message(TOPIC, body), callback)

    async def wait_below(self, limit: int) -> None:
        """Wait until fewer than `limit` sends are pending; yields to other tasks at least once."""
        await asyncio.sleep(0)
        while self._pending >= limit:
            self._room.clear()
            self._waits = True
            await self._room.wait()
            self._waits = False

    def _timed(self, begin: float, outcome: SendResult | BaseException) -> None:
        self._answered(outcome)
        if isinstance(outcome, SendResult):
            self.latencies.append(asyncio.get_running_loop().time() - begin)

    def _answered(self, outcome: SendResult | BaseException) -> None:
        self._pending -= 1
        if self._waits:
            self._room.set()
        if isinstance(outcome, SendResult):
            self.stored += 1
            return
        self.failed += 1
        self.error = self.error or outcome


class Consumers:
    """The consumer process, if there is one."""

    def __init__(self, process: asyncio.subprocess.Process | None) -> None:
        self._process = process

    async def ask(self, word: str) -> dict[str, Any]:
        """Return the answer to `begin`, `end` or `count`; empty without consumers."""
        if self._process is None:
            return {}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        answer = json.loads(await self._process.stdout.readline())
        return dict(answer)

    async def ready(self) -> None:
        """Wait until the first message has arrived."""
        if self._process is not None:
            assert self._process.stdout is not None
            await asyncio.wait_for(self._process.stdout.readline(), _READY_S)


@asynccontextmanager
async def _consuming(name_servers: str, count: int) -> AsyncIterator[Consumers]:
    if not count:
        yield Consumers(None)
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.batch.own_consumer", name_servers, str(count)), stdin=PIPE, stdout=PIPE
    )
    try:
        yield Consumers(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _producers(stack: AsyncExitStack, settings: dict[str, str]) -> list[Producer]:
    """Yield producers of one client, which share connections and batches."""
    client = ClientConfig(settings["server"])
    config = ProducerConfig(
        auto_batch=settings["auto_batch"] == "true",
        batch_max_bytes=int(settings["batch_bytes"]),
        batch_max_delay_ms=float(settings["delay_ms"]),
        total_batch_max_bytes=int(settings["total_bytes"]),
    )
    made = [Producer("batch-bench", client_config=client, config=config) for _ in range(int(settings["producers"]))]
    return [await stack.enter_async_context(each) for each in made]


async def _main(settings: dict[str, str]) -> None:
    async with AsyncExitStack() as stack:
        await _create_topic(settings)
        consumers = await stack.enter_async_context(_consuming(settings["server"], int(settings["consumers"])))
        producers = await _producers(stack, settings)
        load = Load(producers, os.urandom(int(settings["body_bytes"])), int(settings["rate"]))
        load.submit(1, 1)
        await load.wait_below(1)
        await consumers.ready()
        result = await _measure(load, consumers, settings)
    print("result " + json.dumps(result | {"first_error": repr(load.error) if load.error is not None else None}))


async def _create_topic(settings: dict[str, str]) -> None:
    queues = int(settings["queues"])
    async with AdminClient(name_servers=settings["server"]) as admin:
        await admin.create_topic(TOPIC, queues, queues, attributes={"queue.type": settings["queue_type"]})


async def _measure(load: Load, consumers: Consumers, settings: dict[str, str]) -> dict[str, Any]:
    most = int(settings["max_messages"])
    await load.run(float(settings["warm_up"]), most)
    load.latencies.clear()
    await consumers.ask("begin")
    print("measuring", flush=True)
    begin, stored, failed = time.perf_counter(), load.stored, load.failed
    await load.run(float(settings["seconds"]), most)
    seconds, sent, failed = time.perf_counter() - begin, load.stored - stored, load.failed - failed
    latencies = sorted(load.latencies) or [0.0]
    seen = await consumers.ask("end")
    backlog = load.stored - seen.pop("total", 0)
    print("measured", flush=True)
    await load.wait_below(1)
    result = {
        "seconds": seconds,
        "sent": sent,
        "failed": failed,
        "publish_p50_ms": latencies[len(latencies) // 2] * 1000,
        "publish_p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
    }
    if seen:
        result |= seen | {"backlog": max(backlog, 0)} | await _drain(load, consumers)
    return result


async def _drain(load: Load, consumers: Consumers) -> dict[str, Any]:
    """Return how long the consumers take for the remaining messages, and the number of messages missing after 10 s."""
    begin = time.perf_counter()
    while True:
        left = load.stored - int((await consumers.ask("count"))["total"])
        seconds = time.perf_counter() - begin
        if left <= 0 or seconds > _DRAIN_S:
            surplus = max(-left - load.failed, 0)
            return {"drain_seconds": seconds, "undelivered": max(left, 0), "surplus": surplus}
        await asyncio.sleep(_POLL_S)


if __name__ == "__main__":
    uvloop.run(_main(dict(argument.split("=", 1) for argument in sys.argv[1:])))
