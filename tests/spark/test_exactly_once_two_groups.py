"""Exactly-once writes to a topic of two broker groups, of which one dies between staging and publishing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_raptormq import cluster
from pyspark_raptormq.connection import Connection
from raptormq.client import Message, ProducerConfig
from tests.names import unique
from tests.spark.sending import create_topic, send
from tests.spark.task_progress import POLL_S, wait_for_tasks
from tests.spark.two_groups import GROUPS, TOPIC, TwoGroups

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 1_000
STAGING_TASKS = 2
LAST_TASK = 2
"""The task without rows, which starts after another one has ended."""


class HeldQuery:
    """A streaming query whose last task waits until it is released, so that the others have staged all rows and nothing
    is committed.

    Args:
        source: name server of the topic `raw`, which has one task per queue.
        mark: what is added to each body, to tell the runs of a query apart.
    """

    def __init__(
        self, spark: SparkSession, groups: TwoGroups, folder: Path, source: tuple[str, str], mark: str, patience_ms: int
    ) -> None:
        self._spark = spark
        self._gate = folder / f"gate-{mark}"
        gate = str(self._gate)

        def held(body: bytes) -> str | None:
            import time

            context = TaskContext.get()
            assert context is not None
            if context.partitionId() != LAST_TASK:
                return f"{body.decode()}-{mark}"
            while not Path(gate).exists():
                time.sleep(POLL_S)
            return None

        value = f.udf(held, "string", useArrow=False).asNondeterministic()(f.col("value")).alias("value")
        name_server, topic = source
        raw = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
        raw = (
            raw.option("startingOffsets", "earliest").option("columns", "value").option("minPartitions", LAST_TASK + 1)
        )
        options = {"nameServer": groups.name_server, "topic": TOPIC, "exactlyOnce": "true", "coordinator": GROUPS[0]}
        options |= {"batchMaxBytes": "4k", "retryTimeoutMs": str(patience_ms), "requestTimeoutMs": "10000"}
        rows = raw.load().select(value).where("value IS NOT NULL")
        writer = rows.writeStream.format("raptormq").options(**options)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        self.query: StreamingQuery = writer.start()

    async def staged(self) -> None:
        """Wait until all rows are staged: the tasks that have rows are done."""
        await asyncio.to_thread(wait_for_tasks, self._spark, STAGING_TASKS, lambda: not self.query.isActive)

    async def release(self) -> asyncio.Task[bool | None]:
        """Let the last task end, and the driver commit. Return the end of the query."""
        self._gate.touch()
        return asyncio.create_task(asyncio.to_thread(self.query.awaitTermination, 90))


@pytest.fixture(scope="module")
def source(name_server: str) -> tuple[str, str]:
    """A topic of another cluster with `ROWS` numbered bodies in two queues, and one message in the third."""
    topic = unique("raw")
    create_topic(name_server, topic, LAST_TASK + 1)
    rows = [Message(topic, b"%d" % number) for number in range(ROWS)]
    send(name_server, rows[STAGING_TASKS:], STAGING_TASKS)
    send(name_server, [*rows[:STAGING_TASKS], Message(topic, b"for the last task")], LAST_TASK + 1)
    return name_server, topic


def once(mark: str) -> Counter[str]:
    return Counter(f"{number}-{mark}" for number in range(ROWS))


async def test_a_coordinator_whose_master_restarts_is_awaited(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit looks for the coordinator, too, and must not fail while the broker is not registered.
    monkeypatch.setattr(cluster, "_FIRST_CONTACT_PATIENCE_S", 0.0)
    groups = TwoGroups(tmp_path, free_ports(3))
    async with groups.running():
        await groups.kill("broker-a")
        await groups.registered("broker-b")
        connected = cluster.Cluster(Connection((groups.name_server,)))
        finding = asyncio.create_task(
            asyncio.to_thread(connected.coordinator, "broker-a", "producers", ProducerConfig())
        )
        await groups.start("broker-a")
        assert await finding == "broker-a"
        await asyncio.to_thread(connected.close)


async def test_groups_that_die_before_they_publish_and_come_back_publish_once(
    spark: SparkSession, source: tuple[str, str], tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    groups = TwoGroups(tmp_path, free_ports(3))
    async with groups.running():
        held = HeldQuery(spark, groups, tmp_path, source, "first", 90_000)
        await held.staged()
        await asyncio.gather(*map(groups.kill, GROUPS))
        ending = await held.release()
        await groups.start("broker-a")
        while not (half := await groups.published("broker-a")):
            await asyncio.sleep(POLL_S)
        assert half < once("first")
        assert not ending.done()
        await groups.start("broker-b")
        assert await ending
        assert await groups.published("broker-a") < once("first")
        assert await groups.published(*GROUPS) == once("first")


async def test_a_batch_whose_query_fails_half_published_is_finished_by_its_next_run(
    spark: SparkSession, source: tuple[str, str], tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    groups = TwoGroups(tmp_path, free_ports(3))
    async with groups.running():
        held = HeldQuery(spark, groups, tmp_path, source, "first", 10_000)
        await held.staged()
        await groups.kill("broker-b")
        with pytest.raises(StreamingQueryException, match="could not be committed at broker-b"):
            await (await held.release())
        half = await groups.published("broker-a")
        assert half
        assert half < once("first")
        await groups.start("broker-b")
        again = HeldQuery(spark, groups, tmp_path, source, "second", 30_000)  # a repeated batch with other rows
        assert await (await again.release())
        assert await groups.published("broker-a") == half
        assert await groups.published(*GROUPS) == once("first")
