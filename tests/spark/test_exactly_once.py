"""Exactly-once writes: rows are in the topic once, despite repeated tasks and killed processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.errors import OptionError, SchemaError
from pyspark_raptormq.sink.options import SinkOptions, parse_sink_options
from pyspark_raptormq.sink.stager import publish
from pyspark_raptormq.sink.writer import batch_writer, write_task
from raptormq.client import PullConsumer
from tests.names import unique
from tests.spark.sending import create_topic
from tests.spark.servers import Servers, stored
from tests.spark.task_progress import wait_for_tasks
from tests.spark.two_groups import TwoGroups

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def write(frame: DataFrame, name_server: str, topic: str) -> None:
    options = {"nameServer": name_server, "topic": topic, "exactlyOnce": "true", "batchMaxBytes": "4k"}
    frame.write.format("raptormq").mode("append").options(**options).save()


def numbers(found: Counter[bytes]) -> dict[int, int]:
    return {int(body): count for body, count in found.items()}


def test_a_write_of_which_a_task_fails_leaves_nothing(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    topic = unique("once-tasks")
    create_topic(name_server, topic, 4)
    gate = tmp_path / "the-other-task-is-done"

    def fail_at_last(number: int) -> str:
        if number < 2000:
            return str(number)
        while not gate.exists():
            time.sleep(0.02)
        raise ValueError("the second task fails")

    numbered = spark.range(0, 4000, 1, 2)
    failing = numbered.select(f.udf(fail_at_last, "string", useArrow=False)("id").alias("value"))
    is_over = threading.Event()

    def open_gate() -> None:
        wait_for_tasks(spark, 1, is_over.is_set)
        gate.touch()

    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(open_gate)
        with pytest.raises(PySparkException, match="the second task fails"):  # a local session does not repeat tasks
            write(failing, name_server, topic)
        is_over.set()
        opening.result()
    rows = numbered.select(f.col("id").cast("string").alias("value"))
    assert not asyncio.run(stored(name_server, topic))
    write(rows, name_server, topic)
    assert numbers(asyncio.run(stored(name_server, topic))) == dict.fromkeys(range(4000), 1)


def test_wrong_uses_are_refused_before_anything_is_sent(spark: SparkSession, name_server: str) -> None:
    raw = {"nameServer": name_server, "topic": "t", "exactlyOnce": "true"}
    for more, part in (
        ({"acks": "1"}, "exactlyOnce cannot be combined with acks=1"),
        ({"encrypt": "true"}, "exactlyOnce cannot be combined with encrypt"),
        ({"compressBatches": "true"}, "exactlyOnce cannot be combined with compressBatches"),
        ({"exactlyOnce": "false", "coordinator": "broker-a"}, "option coordinator requires exactlyOnce"),
        ({"exactlyOnce": "false", "failOnDifferentReplay": "true"}, "option failOnDifferentReplay requires exactly"),
    ):
        with pytest.raises(OptionError, match=part):
            parse_sink_options(raw | more)
    later = spark.range(1).select(f.lit("x").alias("value"), f.current_timestamp().alias("deliverTime"))
    with pytest.raises(SchemaError, match="deliverTime cannot be combined with exactlyOnce"):
        batch_writer(raw, later.schema, overwrite=False)


async def test_a_broker_that_does_not_offer_it_is_named(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    servers = Servers(tmp_path, free_ports(2), {"stagedMessagesEnable": "false"})
    options = options_for(servers.name_server)
    async with servers.names(), servers.broker():
        await servers.create("t")
        cluster = await asyncio.to_thread(cluster_of, options.connection)
        said = "broker broker-a does not support exactly-once writes: set stagedMessagesEnable = true"
        for coordinator in (None, "broker-a"):
            with pytest.raises(OptionError, match=said):
                await asyncio.to_thread(cluster.coordinator, coordinator, "spark", options.producer_config())
        await asyncio.to_thread(cluster.close)


async def test_a_misspelt_coordinator_is_refused_although_another_one_was_found(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    raw = {"nameServer": servers.name_server, "topic": "t", "exactlyOnce": "true", "retryTimeoutMs": "600000"}
    options = parse_sink_options(raw)
    async with servers.names(), servers.broker():
        cluster = await asyncio.to_thread(cluster_of, options.connection)

        def coordinator(given: str) -> str:
            return cluster.coordinator(given, "spark", options.producer_config())

        assert await asyncio.to_thread(coordinator, "broker-a") == "broker-a"
        reason = "option coordinator: there is no broker group brokr-a; known are broker-a"
        with pytest.raises(OptionError, match=reason):
            await asyncio.to_thread(coordinator, "brokr-a")
        await asyncio.to_thread(cluster.close)


async def test_a_broker_group_that_is_down_counts_when_no_coordinator_is_named(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    groups = TwoGroups(tmp_path, free_ports(3))
    options = options_for(groups.name_server)
    async with groups.running():
        await groups.kill("broker-b")
        await groups.registered("broker-a")
        cluster = await asyncio.to_thread(cluster_of, options.connection)

        def coordinator(given: str | None) -> str:
            return cluster.coordinator(given, "spark", options.producer_config())

        with pytest.raises(OptionError, match=r"several broker groups \(broker-a, broker-b\) needs option coordinator"):
            await asyncio.to_thread(coordinator, None)
        assert await asyncio.to_thread(coordinator, "broker-a") == "broker-a"
        await asyncio.to_thread(cluster.close)


def options_for(name_server: str) -> SinkOptions:
    raw = {"nameServer": name_server, "topic": "t", "exactlyOnce": "true", "batchMaxBytes": "4k"}
    return parse_sink_options(raw | {"retryTimeoutMs": "30000"})


def batches(first: int, count: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, first + count, 250):
        yield pa.record_batch({"value": pa.array([b"%d" % n for n in range(start, min(start + 250, first + count))])})


@pytest.mark.parametrize("visible", [0, 1, 1_500])
async def test_a_broker_that_is_killed_while_it_publishes_publishes_the_rest_once(
    tmp_path: Path, free_ports: Callable[[int], list[int]], visible: int
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    options, rows = options_for(servers.name_server), 5_000
    async with servers.names():
        async with servers.broker() as broker:
            await servers.create("t")
            written = await asyncio.to_thread(write_task, batches(0, rows), options, "q", 0)
            assert written.staged is not None
            cluster = cluster_of(options.connection)
            staging = cluster.staging(options.producer_group, options.producer_config())

            def commit() -> int:
                assert written.staged is not None
                return publish(
                    lambda *decided: cluster.commit_staged(staging, "t", *decided), "broker-a", written.staged, 30.0
                ).messages

            committing = asyncio.create_task(asyncio.to_thread(commit))
            async with PullConsumer(name_servers=servers.name_server) as consumer:
                queues = await consumer.queues("t")
                while sum([await consumer.max_offset(queue) for queue in queues]) < visible:
                    await asyncio.sleep(0)
            broker.kill()
            await asyncio.to_thread(broker.wait)
        async with servers.broker():
            assert await committing == rows
            assert await asyncio.to_thread(commit) == rows
            assert numbers(await stored(servers.name_server, "t")) == dict.fromkeys(range(rows), 1)
            again = await asyncio.to_thread(write_task, batches(0, rows), options, "q", 0)
            written = again
            await asyncio.to_thread(commit)
            assert numbers(await stored(servers.name_server, "t")) == dict.fromkeys(range(rows), 1)
        await asyncio.to_thread(cluster.close)
