"""Queries of a topic of two broker groups, of which one is not available."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_raptormq import LagListener
from pyspark_raptormq.metrics import Lag
from raptormq.client import Message
from tests.names import unique
from tests.spark.sending import create_topic, send
from tests.spark.two_groups import GROUPS, TOPIC, TwoGroups

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

WAIT_S = 100


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def values(frame: DataFrame) -> Counter[str]:
    return Counter(bytes(row["value"]).decode() for row in frame.select("value").collect())


async def test_a_batch_query_fails_while_a_broker_of_its_topic_is_not_available(
    spark: SparkSession, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    groups = TwoGroups(tmp_path, free_ports(3))

    def read(subscribe: str = "subscribe", topic: str = TOPIC, **options: str) -> Counter[str]:
        reader = spark.read.format("raptormq").option("nameServer", groups.name_server).option(subscribe, topic)
        return values(reader.options(**{"retryTimeoutMs": "1000"} | options).load())

    reason = f"2 queues of {TOPIC} cannot be read, because broker-b is not available"
    async with groups.running():
        await groups.send("broker-a", numbered("a", 10))
        await groups.send("broker-b", numbered("b", 10))
        everything = Counter(numbered("a", 10) + numbered("b", 10))
        assert await asyncio.to_thread(read) == everything
        await groups.kill("broker-b")
        await groups.registered("broker-a")
        with pytest.raises(PySparkException, match=reason):
            await asyncio.to_thread(read)
        with pytest.raises(PySparkException, match=reason):
            await asyncio.to_thread(read, "subscribePattern", "clean.*")
        half = await asyncio.to_thread(lambda: read(failOnUnavailableBroker="false"))
        assert half == Counter(numbered("a", 10))
        reading = asyncio.create_task(asyncio.to_thread(lambda: read(retryTimeoutMs="90000")))
        await groups.start("broker-b")
        assert await reading == everything


def test_unread_messages_of_queues_beyond_the_number_of_read_queues_are_lag(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    topic = unique("fewer-queues")
    create_topic(name_server, topic, 6)
    send(name_server, [Message(topic, b"x") for _ in range(60)], 6)
    lags: list[Lag] = []
    listener = LagListener(lags.append)

    def reduce(frame: DataFrame, batch: int) -> None:
        frame.collect()
        create_topic(name_server, topic, 2)

    reader = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "12")
    writer = reader.load().writeStream.foreachBatch(reduce).option("checkpointLocation", str(tmp_path / "checkpoint"))
    spark.streams.addListener(listener)
    try:
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert lags[0].unreachable == frozenset()
    last = lags[-1]
    assert {queue.queue_id for queue in last.unreachable} == {2, 3, 4, 5}
    assert (last.total, last.by_queue) == (32, {queue: 0 if queue.queue_id < 2 else 8 for queue in last.by_queue})


@pytest.mark.parametrize("start", ["latest", "timestamp"])
async def test_a_stream_does_not_read_what_a_broker_stored_before_the_start_of_the_query(
    spark: SparkSession, tmp_path: Path, free_ports: Callable[[int], list[int]], start: str
) -> None:
    groups, found = TwoGroups(tmp_path, free_ports(3)), Counter[str]()

    def read(**position: str) -> None:
        reader = spark.readStream.format("raptormq").option("nameServer", groups.name_server)
        reader = reader.option("subscribe", TOPIC).options(**position)
        writer = reader.load().writeStream.foreachBatch(lambda frame, _: found.update(values(frame)))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(WAIT_S)

    async with groups.running():
        await groups.send("broker-b", numbered("old", 40))
        after = await groups.after_the_last("broker-b")
        position = {"startingOffsets": "latest"} if start == "latest" else {"startingTimestamp": str(after)}
        await groups.kill("broker-b")
        await groups.registered("broker-a")
        await asyncio.to_thread(lambda: read(**position))
        await groups.send("broker-a", numbered("a", 10))
        await asyncio.to_thread(lambda: read(**position))
        await groups.start("broker-b")
        await groups.registered(*GROUPS)
        await groups.send("broker-b", numbered("new", 10))
        await asyncio.to_thread(lambda: read(**position))
        assert found == Counter(numbered("a", 10) + numbered("new", 10))


async def test_unread_messages_of_a_broker_that_dies_during_a_query_are_lag(
    spark: SparkSession, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    groups, lags, loop = TwoGroups(tmp_path, free_ports(3)), list[Lag](), asyncio.get_running_loop()
    listener = LagListener(lags.append)

    async def lose_broker_b() -> None:
        await groups.kill("broker-b")
        await groups.registered("broker-a")

    def sink(frame: DataFrame, batch: int) -> None:
        frame.collect()
        if batch == 0:
            asyncio.run_coroutine_threadsafe(lose_broker_b(), loop).result(WAIT_S)

    def read() -> None:
        reader = spark.readStream.format("raptormq").option("nameServer", groups.name_server)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        writer = reader.option("maxOffsetsPerTrigger", "8").load().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(WAIT_S)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()

    async with groups.running():
        for group in GROUPS:
            await groups.send(group, numbered(group, 20))
        spark.streams.addListener(listener)
        try:
            await asyncio.to_thread(read)
        finally:
            spark.streams.removeListener(listener)
    assert lags[-1].total == 16
    assert {queue.broker_name for queue in lags[-1].unreachable} == {"broker-b"}
