"""Loads on two systems in turn, and the comparison of their messages per second and their p99."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP
from bench.batch.workload import AS_FAST_AS_IT_GOES, BODY_BYTES
from bench.figure import Figure
from bench.output import errors
from raptormq.client import Producer, ProducerConfig

BODY = os.urandom(BODY_BYTES)
SEND_TIMEOUT_S = 30.0
"""Timeout of a send in seconds. A cold JVM takes seconds for the first messages, and with the default of 3 s the load
would include their retries."""


@dataclass(frozen=True)
class Plan:
    """Amounts and durations of the measurements."""

    rounds: int
    """Number of losses of the leader, and of transfers of leadership."""
    pairs: int
    """Number of runs on each of the two systems for one ratio."""
    seconds: float
    """Duration of the measured part of a run in seconds."""
    messages: int
    """Maximum number of messages in a run."""
    log_bytes: int
    """Size in bytes of the log that an empty member fetches."""
    queues: int
    """Number of queues in the row with many queues."""
    fixed_rate: int
    """Rate in messages per second of the rows about latency."""
    warm_up_seconds: int
    """Warm-up time of the Java clients in seconds."""
    minutes: float
    """Duration in minutes of the full load with retention."""
    log_limit_bytes: int
    """Size in bytes of the log above which retention deletes segments during the full load."""


FULL = Plan(30, 3, 10.0, 1_500_000, 2 << 30, 10_000, 20_000, 30, 20, 6_000_000_000)
QUICK = Plan(2, 1, 3.0, 100_000, 64 << 20, 500, 5_000, 5, 1, 2_000_000_000)


@dataclass(frozen=True)
class Rate:
    """Result of one run: messages per second, and the p99 of the latency."""

    per_second: float
    p99_ms: float


async def load_by_our_client(
    name_servers: str, plan: Plan, rate: int = AS_FAST_AS_IT_GOES, *, may_refuse: bool = False
) -> Rate:
    """Run the load. Raises the error of the first failed send. With `may_refuse` it is raised only if no send succeeds,
    because Apache RocketMQ refuses messages that wait for more than 200 ms (SYSTEM_BUSY)."""
    config = ProducerConfig(auto_batch=True, send_timeout=SEND_TIMEOUT_S)
    async with Producer(GROUP, name_servers=name_servers, config=config) as producer:
        load = Load([producer], BODY, rate)
        await load.run(plan.seconds / 2, plan.messages)
        load.latencies.clear()
        begin, stored = time.perf_counter(), load.stored
        await load.run(plan.seconds, plan.messages)
        seconds, sent = time.perf_counter() - begin, load.stored - stored
        latencies = sorted(load.latencies)
        await load.wait_below(1)
    if load.error is not None and not (may_refuse and sent):
        raise load.error
    if load.failed:
        errors.print(f"{load.failed:,} messages failed, the first with {load.error}", highlight=False)
    return Rate(sent / seconds, latencies[len(latencies) * 99 // 100] * 1000)


async def in_turn(
    plan: Plan, what: str, one: Callable[[], Awaitable[Rate]], other: Callable[[], Awaitable[Rate]]
) -> list[tuple[Rate, Rate]]:
    found = []
    for _ in range(plan.pairs):
        found.append((await one(), await other()))
        first, second = found[-1]
        errors.print(
            f"{what}: {first.per_second:,.0f} and {second.per_second:,.0f} msg/s, p99 {first.p99_ms:.1f} and"
            f" {second.p99_ms:.1f} ms",
            highlight=False,
        )
    return found


async def against(
    plan: Plan, peer: str, ours: Callable[[int], Awaitable[Rate]], theirs: Callable[[int], Awaitable[Rate]]
) -> list[Figure]:
    """Compare the maximum rates, and the p99 at a fixed rate. `ours` and `theirs` take messages per second."""
    fast = await in_turn(
        plan, f"RaptorMQ and {peer}", lambda: ours(AS_FAST_AS_IT_GOES), lambda: theirs(AS_FAST_AS_IT_GOES)
    )
    speed = plan.fixed_rate
    even = await in_turn(plan, f"the same at {speed:,} msg/s", lambda: ours(speed), lambda: theirs(speed))
    rate = median(pair[0].per_second for pair in fast) / median(pair[1].per_second for pair in fast)
    p99 = median(pair[0].p99_ms for pair in even) / median(pair[1].p99_ms for pair in even)
    return [
        Figure(f"rate over that of {peer}", rate, "times", 1.0, at_least=True),
        Figure(f"p99 over that of {peer}, {speed:,} msg/s", p99, "times", 1.0),
    ]
