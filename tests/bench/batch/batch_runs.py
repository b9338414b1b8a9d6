"""Sample results for the tests of goals and of the command."""

from __future__ import annotations

import os

from bench.batch.result import Costs, LoadResult, Run
from bench.batch.systems import System
from bench.batch.workload import Workload


def run(
    workload: Workload,
    system: System = System.RAPTORMQ,
    *,
    sent: float = 200_000,
    consumed: float | None = 150_000,
    p99: float = 80.0,
    cpu: float = 2.0,
    number: int = 1,
) -> Run:
    """Return a run of ten seconds at a rate."""
    publish = LoadResult(10.0, round(sent * 10), 0, p99 / 4, p99)
    load = publish
    if consumed is not None:
        received = round(consumed * 10)
        load = LoadResult(
            10.0, publish.sent, 0, p99 / 4, p99, received, p99 / 3, p99 * 2, publish.sent - received, 1.5, 0
        )
    lag = None if system is System.KAFKA else 12.5
    costs = Costs(cpu * load.sent / 1e6, 4.0, 300_000_000, 100_000_000, lag, 0.1 * (os.cpu_count() or 1))
    return Run(workload.name, system, number, load, costs)
