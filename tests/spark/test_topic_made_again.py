"""A topic that is deleted and recreated during a stream: the stream fails, or reads it from its first message, and
never uses old offsets.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_raptormq.cluster import Cluster
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import DataLoss
from pyspark_raptormq.offsets import GivenOffsets, StreamOffset, parse_offsets
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from pyspark_raptormq.stream_progress import StreamProgress
from raptormq.client import Message, MessageQueue
from tests.names import unique
from tests.spark.sending import BROKER, create_topic, make_again, send
from tests.spark.test_streaming_query import Sink, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a session starts slowly on a busy machine


def numbered(topic: str, name: str, count: int) -> list[Message]:
    return [Message(topic, b"x", keys=(f"{name}{number}",)) for number in range(count)]


def keys(messages: list[Message]) -> Counter[str]:
    return Counter(message.keys[0] for message in messages)


@pytest.mark.parametrize(("read", "stored"), [(10, 20), (100, 300), (20, 5)], ids=["longer", "outgrown", "shorter"])
def test_a_stream_ends_or_begins_anew(
    spark: SparkSession, name_server: str, tmp_path: Path, read: int, stored: int
) -> None:
    topic, checkpoint = unique(f"again-{read}"), tmp_path / "checkpoint"
    create_topic(name_server, topic, 2)
    send(name_server, numbered(topic, "old", read), 2)
    run(spark, name_server, topic, checkpoint, Sink())
    make_again(name_server, topic, 1)
    new = numbered(topic, "new", stored)
    send(name_server, new, 1)
    with pytest.raises(StreamingQueryException, match=f"topic {topic} of {BROKER} was deleted and created again"):
        run(spark, name_server, topic, checkpoint, Sink())
    sink = Sink()
    run(spark, name_server, topic, checkpoint, sink, failOnDataLoss="false")
    assert sink.keys == keys(new)
    more = numbered(topic, "more", 3)
    send(name_server, more, 1)
    sink = Sink()
    run(spark, name_server, topic, checkpoint, sink)
    assert sink.keys == keys(more)
    create_topic(name_server, topic, 2)
    send(name_server, numbered(topic, "wide", 4), 2)
    sink = Sink()
    run(spark, name_server, topic, checkpoint, sink)
    assert sink.keys == keys(numbered(topic, "wide", 4)), "the second queue is not at the offset of the old one"


def test_a_checkpoint_from_before_there_were_ids_is_read_and_gets_them(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    topic, checkpoint = unique("again-before"), tmp_path / "checkpoint"
    create_topic(name_server, topic, 1)
    old = numbered(topic, "old", 10)
    send(name_server, old[:5], 1)
    run(spark, name_server, topic, checkpoint, Sink())
    [written] = (checkpoint / "offsets").glob("[0-9]*")
    lines = written.read_text().splitlines()
    document = json.loads(lines[-1])
    assert document.pop("i").keys() == {topic}
    assert len(document.pop("m")) == 1
    written.write_text("\n".join([*lines[:-1], json.dumps(document | {"v": 1})]))
    (checkpoint / "offsets" / f".{written.name}.crc").unlink(missing_ok=True)
    run(spark, name_server, topic, checkpoint, Sink())  # no messages, but the query learns the id of the topic
    send(name_server, old[5:], 1)
    sink = Sink()
    run(spark, name_server, topic, checkpoint, sink)
    assert sink.keys == keys(old[5:])
    make_again(name_server, topic, 1)
    send(name_server, numbered(topic, "new", 30), 1)
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        run(spark, name_server, topic, checkpoint, Sink())


def test_a_batch_that_was_planned_for_the_old_topic_reads_nothing_of_the_new_one(name_server: str) -> None:
    topic = unique("again-planned")
    create_topic(name_server, topic, 1)
    send(name_server, numbered(topic, "old", 10), 1)
    strict = SourceOptions(Connection((name_server,)), topics=(topic,), columns=("queueOffset",))
    lenient = replace(strict, fail_on_data_loss=False)
    cluster, wanted = Cluster(Connection((name_server,), 5.0, 10.0)), QueueRange(MessageQueue(topic, BROKER, 0), 0, 10)
    try:
        start = StreamProgress(strict, cluster).initial()
        end = StreamProgress(strict, cluster).advance(start, None)
        topic_id = end.topic_ids[topic, BROKER]
        assert sum(batch.num_rows for batch in scan(wanted, strict, cluster, topic_id=topic_id)) == 10
        make_again(name_server, topic, 1)
        send(name_server, numbered(topic, "new", 30), 1)
        with pytest.raises(DataLoss, match="was deleted and created again"):
            list(scan(wanted, strict, cluster, topic_id=topic_id))
        assert list(scan(wanted, lenient, cluster, topic_id=topic_id)) == []
        with pytest.raises(DataLoss, match="was deleted and created again"):
            StreamProgress(strict, cluster).ranges(start, end)
        progress = StreamProgress(lenient, cluster)
        assert progress.ranges(start, end) == []
        following = progress.advance(end, None)
        assert [(each.start, each.end) for each in progress.ranges(end, following)] == [(0, 30)]
        again = StreamProgress(lenient, cluster).advance(start, None)
        assert again.start == {wanted.queue: 0}
    finally:
        cluster.close()


def test_offsets_in_an_option_may_say_which_topic_they_are_of(spark: SparkSession, name_server: str) -> None:
    topic = unique("again-option")
    create_topic(name_server, topic, 1)
    send(name_server, numbered(topic, "old", 10), 1)
    cluster, queue = Cluster(Connection((name_server,), 5.0, 10.0)), MessageQueue(topic, BROKER, 0)
    try:
        ids = cluster.topic_ids([queue])
    finally:
        cluster.close()
    text = json.dumps(StreamOffset({queue: 10}, topic_ids=ids).to_document())
    assert parse_offsets(text) == GivenOffsets({queue: 10}, ids)
    make_again(name_server, topic, 1)
    send(name_server, numbered(topic, "new", 30), 1)
    reading = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    with pytest.raises(Exception, match="was deleted and created again"):
        reading.option("startingOffsets", text).load().count()
    assert reading.option("startingOffsets", text).option("failOnDataLoss", "false").load().count() == 30
