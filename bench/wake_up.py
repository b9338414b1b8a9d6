"""Latency from a send to the response of a waiting pull, on an idle broker.

Both sides are the RaptorMQ client in one process, so that one clock measures both. The setup is the same on both
systems.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from bench.output import markdown
from bench.peers import System, running
from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer
from tests.interop.rocketmq_java import build

FULL, QUICK = 1000, 50
GOAL_MS = 5.0
_WARM_UP = 100
_PAUSE_S = 0.02
_HOLD_MS = 15_000


@dataclass(frozen=True)
class WakeUps:
    """Times from the call of `send` to the response of the pull, in ms."""

    system: System
    p50_ms: float
    p99_ms: float


def measure(count: int, systems: Sequence[System]) -> list[WakeUps]:
    """Measure each system with an empty folder."""
    built = build()
    found = []
    for system in systems:
        folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
        try:
            with running(system, built, folder) as servers:
                waits = asyncio.run(_waits(servers.name_servers, count))
        finally:
            shutil.rmtree(folder)
        found.append(WakeUps(system, median(waits), quantiles(waits, n=100)[98]))
    return found


async def _waits(name_servers: str, count: int) -> list[float]:
    queue = MessageQueue("wake-up", "broker-a", 0)
    waits: list[float] = []
    async with (
        AdminClient(name_servers=name_servers) as admin,
        Producer("wake-up", name_servers=name_servers) as producer,
        PullConsumer(group="wake-up", name_servers=name_servers) as consumer,
    ):
        await admin.create_topic("wake-up", 1, 1)
        for offset in range(_WARM_UP + count):
            pull = asyncio.ensure_future(consumer.pull(queue, offset, suspend_ms=_HOLD_MS, timeout=30.0))
            await asyncio.sleep(_PAUSE_S)  # the broker holds the pull by now
            begin = time.perf_counter()
            sent = asyncio.ensure_future(producer.send(Message("wake-up", bytes(1024)), queue=queue))
            result = await pull
            if offset >= _WARM_UP:
                waits.append((time.perf_counter() - begin) * 1000)
            assert len(result.messages()) == 1
            await sent
    return waits


def table(found: Sequence[WakeUps]) -> str:
    """Return a table with median and p99 of each system. The median of RaptorMQ is a documented figure."""
    rows = []
    for each in found:
        kept = "yes" if each.p50_ms < GOAL_MS else "**no**"
        promise = f" (promised: median under {GOAL_MS:g} ms; kept: {kept})" if each.system is System.RAPTORMQ else ""
        rows.append([each.system.value + promise, f"{each.p50_ms:.2f}", f"{each.p99_ms:.2f}"])
    return markdown(["a pull that waits, answered after the send", "p50 ms", "p99 ms"], rows)
