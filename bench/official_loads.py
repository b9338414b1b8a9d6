"""The Java load programs on the interleaved layout of RaptorMQ and on three nodes of Apache Kafka."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.batch import load_run
from bench.batch.systems import Builds, Running, System
from bench.batch.workload import Timing, Workload
from bench.compared_loads import Plan, Rate
from bench.interleaved import BROKERS, interleaved
from bench.kafka_cluster import KafkaCluster
from tests.interop.rocketmq_java import ProcessError

_QUEUES = 18
"""Number of queues of the topic on all masters, and of partitions of Kafka's topic."""


async def interleaved_load(builds: Builds, plan: Plan, rate: int) -> Rate:
    """Run the load of RocketMQ's client on three masters with a slave each. Raises ProcessError."""
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as folder:
        async with interleaved(Path(folder)) as brokers:
            running = Running(brokers.name_server, brokers.pid, tells_index_lag=False)
            queues = _QUEUES // len(BROKERS)
            return await asyncio.to_thread(_run, System.RAPTORMQ, running, builds, Path(folder), plan, rate, queues)


async def kafka_load(builds: Builds, plan: Plan, rate: int) -> Rate:
    """Run the load of Kafka's client on three nodes with two copies. Raises ProcessError."""
    return await asyncio.to_thread(_kafka_load, builds, plan, rate)


def _kafka_load(builds: Builds, plan: Plan, rate: int) -> Rate:
    assert builds.bench is not None
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="raptormq-bench-")))
        cluster = KafkaCluster(builds.bench, folder)
        opened.callback(cluster.kill)
        cluster.start()
        running = Running(cluster.address, cluster.pid, tells_index_lag=False)
        return _run(System.KAFKA, running, builds, folder, plan, rate, _QUEUES)


def _run(system: System, running: Running, builds: Builds, folder: Path, plan: Plan, rate: int, queues: int) -> Rate:
    timing = Timing(plan.warm_up_seconds, int(plan.seconds), plan.messages)
    workload = Workload("interleaved", "three masters, three slaves", queues, rate, timing=timing)
    load, _ = load_run.run(workload, system, running, builds, folder)
    if load.first_error is not None:
        raise ProcessError(f"{load.failed} messages failed, the first with {load.first_error}")
    return Rate(load.sent_per_second, load.publish_p99_ms)
