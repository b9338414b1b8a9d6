"""Streaming queries in a real Spark session with a real broker: exactly once from checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyspark_raptormq import LagListener
from pyspark_raptormq.metrics import Lag
from raptormq.client import BlockingConsumer, ConsumeFromWhere, ConsumerConfig, Message
from tests.names import unique
from tests.spark.memory_broker import MemoryBroker
from tests.spark.sending import create_topic, sample_messages, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a session starts slowly on a busy machine

WAIT_S = 100


class Sink:
    """Records the keys of every batch. A repeated batch replaces the earlier one, like a file with its name."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [row["key"] for row in frame.select("key").collect()]

    @property
    def keys(self) -> Counter[str]:
        return Counter(key for batch in self.batches.values() for key in batch)


def run(
    spark: SparkSession,
    name_server: str,
    topic: str,
    checkpoint: Path,
    sink: Callable[[DataFrame, int], None],
    **options: str,
) -> list[StreamingQueryProgress]:
    """Read all messages and stop. Return Spark's progress of the batches with data."""
    stream = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    frame = stream.options(**{"startingOffsets": "earliest"} | options).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    return [each for each in query.recentProgress if each.numInputRows]


def expected(messages: list[Message]) -> Counter[str]:
    return Counter(message.keys[0] for message in messages)


def test_a_stream_is_the_batch_in_portions_and_goes_on_where_it_was(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    topic = unique("stream-flights")
    create_topic(name_server, topic, 2)
    first = sample_messages(topic, 500)
    send(name_server, first, 2)
    sink = Sink()
    run(spark, name_server, topic, tmp_path / "checkpoint", sink, maxOffsetsPerTrigger="200")
    assert sink.keys == expected(first)
    assert [len(batch) for batch in sink.batches.values()] == [200, 200, 100]
    batch = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", topic).load()
    assert Counter(row["key"] for row in batch.select("key").collect()) == sink.keys

    create_topic(name_server, topic, 4)
    more = [Message(topic, b"more", keys=(f"m{number}",)) for number in range(30)]
    send(name_server, more, 4)
    again = Sink()
    run(spark, name_server, topic, tmp_path / "checkpoint", again)
    assert again.keys == expected(more)
    assert list(again.batches) == [3]


def test_available_now_ends_while_a_producer_keeps_writing(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    topic = unique("stream-busy")
    create_topic(name_server, topic, 2)
    first = sample_messages(topic, 100)
    send(name_server, first, 2)
    sink = Sink()
    late = [Message(topic, b"x", keys=("late",)) for _ in range(50)]

    def writes_more(frame: DataFrame, batch_id: int) -> None:
        send(name_server, late, 2)
        sink(frame, batch_id)

    run(spark, name_server, topic, tmp_path / "checkpoint", writes_more, maxOffsetsPerTrigger="40")
    assert sink.keys == expected(first)
    assert [len(batch) for batch in sink.batches.values()] == [40, 40, 20]
    run(spark, name_server, topic, tmp_path / "checkpoint", sink)
    assert sink.keys == expected(first) + Counter(late=3 * len(late))


def test_a_driver_that_dies_in_a_batch_repeats_exactly_that_batch(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    """Batch 0 starts at "latest" and fails. Messages sent before the restart must not be skipped."""
    topic = unique("stream-restart")
    create_topic(name_server, topic, 2)
    old = [Message(topic, b"old", keys=(f"old{number}",)) for number in range(10)]
    send(name_server, old, 2)

    def dies(frame: DataFrame, batch_id: int) -> None:
        raise ArithmeticError("the driver has died")

    with pytest.raises(StreamingQueryException):
        run(spark, name_server, topic, tmp_path / "checkpoint", dies, startingOffsets="latest")
    new = [Message(topic, b"new", keys=(f"new{number}",)) for number in range(10)]
    send(name_server, new, 2)
    sink = Sink()
    run(spark, name_server, topic, tmp_path / "checkpoint", sink, startingOffsets="latest")
    assert sink.keys == expected(new)


def test_progress_and_lag_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    lags: list[Lag] = []
    connections: list[tuple[int, int]] = []
    listener = LagListener(lags.append)

    def sink(frame: DataFrame, batch_id: int) -> None:
        frame.collect()
        connections.append((broker.open_connections, broker.closed_connections))

    with MemoryBroker() as broker:
        broker.create("t", 1)
        for number in range(90):
            broker.send("t", 0, b"x", f"KEYS\x01k{number}\x02")
        spark.streams.addListener(listener)
        try:
            options = {"maxOffsetsPerTrigger": "15", "consumerGroup": "reports"}
            progress = run(spark, broker.address, "t", tmp_path / "checkpoint", sink, **options)
            bus = spark.sparkContext._jsc.sc().listenerBus()
            bus.waitUntilEmpty()
        finally:
            spark.streams.removeListener(listener)
        assert broker.committed["reports", "t", 0] == 90
        # There is one connection for offsets and one per worker, which keeps it across batches, so there are fewer
        # connections than batches. Spark starts another worker if a batch begins while all workers are busy.
        assert len(connections) == 6
        assert [each for each in connections if not 2 <= each[0] <= 6 or each[1]] == []
    left_over = [75, 60, 45, 30, 15, 0]
    assert [lag.total for lag in lags] == left_over
    behind = [json.loads(each.sources[0].latestOffset)["offsetsBehindLatest"] for each in progress]
    assert behind == [{"t": {"avg": float(left), "max": left, "min": left, "total": left}} for left in left_over]


def test_group_of_an_application_is_refused_and_keeps_its_offsets(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    topic, group = unique("shared"), unique("billing")
    create_topic(name_server, topic, 1)
    send(name_server, [Message(topic, b"x", keys=(f"k{number}",)) for number in range(10)], 1)

    def consumed(count: int) -> list[tuple[str, ...]]:
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        with BlockingConsumer(group, name_servers=name_server, config=config) as application:
            application.subscribe(topic)
            found = []
            for message in application:
                found.append(message.keys)
                message.ack()
                if len(found) == count:
                    with pytest.raises(StreamingQueryException, match=f"group {group} has members .* query's own"):
                        run(spark, name_server, topic, tmp_path / "refused", Sink(), consumerGroup=group)
                    break
        return found

    first = consumed(4)
    with pytest.raises(StreamingQueryException, match=f"group {group} has offsets that this query has not committed"):
        run(spark, name_server, topic, tmp_path / "refused", Sink(), consumerGroup=group)
    sink = Sink()
    for _ in range(2):
        run(spark, name_server, topic, tmp_path / "checkpoint", sink, consumerGroup=f"{group}-spark")
    assert sink.keys == Counter(f"k{number}" for number in range(10))
    assert first + consumed(6) == [(f"k{number}",) for number in range(10)]


def test_a_topic_that_lost_messages_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    with MemoryBroker() as broker:
        broker.create("t", 1)
        for number in range(20):
            broker.send("t", 0, b"x", f"KEYS\x01k{number}\x02")
        run(spark, broker.address, "t", tmp_path / "checkpoint", Sink())
        broker.create("t", 1)
        broker.send("t", 0, b"x", "KEYS\x01again\x02")
        with pytest.raises(StreamingQueryException, match="was read up to offset 20 but ends at 1"):
            run(spark, broker.address, "t", tmp_path / "checkpoint", Sink())
        lenient = Sink()
        run(spark, broker.address, "t", tmp_path / "checkpoint", lenient, failOnDataLoss="false")
    assert lenient.keys == Counter(again=1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch queries only"),
        ({"endingTimestamp": "1"}, "option endingTimestamp is for batch queries only"),
        ({"startingOffsets": '{"t": {"broker-a": {"9": 1}}}'}, "offsets are given for t@broker-a:9"),
        (
            {"startingOffsets": '{"t": {"broker-a": {"0": 9}}}'},
            "t@broker-a:0 should be read from offset 9 but ends at 3. The offsets belong to another topic",
        ),
    ],
)
@pytest.mark.parametrize("available_now", [True, False])
def test_a_mistake_in_a_stream_is_said_by_spark(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], reason: str, available_now: bool
) -> None:
    with MemoryBroker() as broker:
        broker.create("t", 1)
        for _ in range(3):
            broker.send("t", 0, b"x")
        stream = spark.readStream.format("raptormq").option("nameServer", broker.address).option("subscribe", "t")
        writer = stream.options(**options).load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**{"availableNow": True} if available_now else {"processingTime": "0 seconds"}).start()
        with pytest.raises(StreamingQueryException, match=reason):
            query.awaitTermination(WAIT_S)


def test_a_checkpoint_of_a_topic_that_is_not_read_any_more_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    with MemoryBroker() as broker:
        for topic in ("t", "u"):
            broker.create(topic, 1)
            broker.send(topic, 0, b"x", f"KEYS\x01{topic}1\x02")
        run(spark, broker.address, "t,u", tmp_path / "checkpoint", Sink())
        broker.send("t", 0, b"x", "KEYS\x01t2\x02")
        reason = "the checkpoint has offsets of u, which option subscribe no longer selects"
        with pytest.raises(StreamingQueryException, match=reason):
            run(spark, broker.address, "t", tmp_path / "checkpoint", Sink())
        lenient = Sink()
        run(spark, broker.address, "t", tmp_path / "checkpoint", lenient, failOnDataLoss="false")
    assert lenient.keys == Counter(t2=1)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"maxBytesPerTrigger": "5000"}, [49, 41]),
        ({"maxBytesPerTrigger": "5000", "maxOffsetsPerTrigger": "30"}, [30, 30, 30]),
        ({"minOffsetsPerTrigger": "500"}, [90]),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "60", "maxTriggerDelay": "1h"}, [60, 30]),
    ],
)
def test_limits_of_a_trigger(spark: SparkSession, tmp_path: Path, options: dict[str, str], sizes: list[int]) -> None:
    """Spark passes only one kind of limit. All limits count, and none delays AvailableNow."""
    with MemoryBroker() as broker:
        broker.create("t", 1)
        for number in range(90):
            broker.send("t", 0, b"x", f"KEYS\x01k{number:02}\x02")
        progress = run(spark, broker.address, "t", tmp_path / "checkpoint", Sink(), **options)
    assert [each.numInputRows for each in progress] == sizes
