"""Reading without Spark: by the plain client, and by the reader of the data source from responses in memory.

The processes of a run start at the same time. A run lasts from the start of the first process to the end of the last.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import TypeVar

from pyspark_raptormq.cluster import Cluster, cluster_of
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from raptormq.client import MessageQueue, PullConsumer, PullResult, Sql

_TOGETHER_WITHIN_S = 300.0
_UNCOUNTED = 2
_barrier: Barrier
"""Barrier at which the processes of a run wait for each other. Each process sets its own variable."""


@dataclass(frozen=True)
class _Run:
    """One run in one process. Times are from `time.perf_counter()`, which is the same clock in all processes."""

    begin: float
    end: float
    rows: int


T = TypeVar("T")


def in_processes(
    read: Callable[[T, SourceOptions, int], list[_Run]], parts: Sequence[T], options: SourceOptions, runs: int
) -> tuple[float, ...]:
    """Return the rows per second of each run, with one process per part. Two more runs precede them without being
    counted: the first fetches the responses that all later runs find in memory, the second is slower than later ones.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(parts))
    with ProcessPoolExecutor(len(parts), context, _use, (barrier,)) as pool:
        found = list(pool.map(read, parts, [options] * len(parts), [_UNCOUNTED + runs] * len(parts)))
    return tuple(
        sum(each.rows for each in together)
        / (max(each.end for each in together) - min(each.begin for each in together))
        for together in list(zip(*found, strict=True))[_UNCOUNTED:]
    )


def _use(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - one per process, which only the initializer can hand over
    _barrier = barrier


def _timed(runs: int, read: Callable[[], int]) -> list[_Run]:
    found = []
    for _ in range(runs):
        _barrier.wait(_TOGETHER_WITHIN_S)
        begin = time.perf_counter()
        rows = read()
        found.append(_Run(begin, time.perf_counter(), rows))
    return found


def read_prefetched(part: QueueRange, options: SourceOptions, runs: int) -> list[_Run]:
    """Read a range into Arrow batches. The first run pulls the responses, the others find them in memory."""
    responses = _Responses(cluster_of(options.connection))
    return _timed(runs, lambda: sum(batch.num_rows for batch in scan(part, options, responses)))


class _Responses:
    """A `pyspark_raptormq.scan.Puller` that keeps all responses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[int, PullResult] = {}

    def start_pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        expression: str | Sql,
        topic_id: str | None,
    ) -> Future[PullResult]:
        if offset not in self._kept:
            pull = self._cluster.start_pull(queue, offset, max_count, max_bytes, expression, topic_id)
            self._kept[offset] = pull.result()
        ready: Future[PullResult] = Future()
        ready.set_result(self._kept[offset])
        return ready


def read_by_client(part: Sequence[QueueRange], options: SourceOptions, runs: int) -> list[_Run]:
    """Read ranges with the plain client, without decoding the records."""

    async def read() -> int:
        rows = 0
        async with PullConsumer(client_config=options.connection.client_config()) as consumer:
            for each in part:
                offset = each.start
                while offset < each.end:
                    count = each.end - offset
                    result = await consumer.pull(each.queue, offset, count, max_bytes=options.pull_bytes)
                    rows += min(result.next_offset, each.end) - offset
                    offset = result.next_offset
        return rows

    return _timed(runs, lambda: asyncio.run(read()))
