"""Batch queries in a real Spark session with a real broker."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from raptormq.client import Message
from raptormq.protocol.record import SysFlag
from tests.names import unique
from tests.spark.memory_broker import MemoryBroker
from tests.spark.sending import BROKER, create_topic, sample_messages, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a session starts slowly on a busy machine

QUEUES = 4
COUNT = 600


@pytest.fixture(scope="module")
def messages(name_server: str) -> list[Message]:
    """The contents of the topic that most tests here read."""
    topic = unique("batch-flights")
    create_topic(name_server, topic, QUEUES)
    sent = sample_messages(topic, COUNT)
    send(name_server, sent, QUEUES)
    return sent


def read(spark: SparkSession, name_server: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    return reader.options(**options).load()


def keys(frame: DataFrame) -> list[str]:
    return sorted(row["key"] for row in frame.select("key").collect())


def test_a_batch_holds_every_message(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    before = time.time()
    rows = read(spark, name_server, messages[0].topic, includeProperties="map").collect()
    by_key = {row["key"]: row for row in rows}
    assert len(rows) == len(by_key) == COUNT
    for number, message in enumerate(messages):
        row = by_key[f"k{number}"]
        assert bytes(row["value"]) == message.body
        assert row["keys"] == [f"k{number}", "all"]
        assert row["tags"] == message.tags
        assert (row["topic"], row["brokerName"], row["queueId"]) == (message.topic, BROKER, number % QUEUES)
        assert row["properties"]["number"] == str(number)
        assert row["msgId"] == row["properties"]["UNIQ_KEY"]
        assert before - 3600 < row["bornTimestamp"].timestamp() <= row["storeTimestamp"].timestamp() + 1
    offsets = sorted((row["queueId"], row["queueOffset"]) for row in rows)
    assert offsets == [(queue, offset) for queue in range(QUEUES) for offset in range(COUNT // QUEUES)]


def test_queues_are_split_into_tasks(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    frame = read(spark, name_server, messages[0].topic, minPartitions="6", columns="key")
    assert frame.rdd.getNumPartitions() == 6
    assert keys(frame) == sorted(message.keys[0] for message in messages)
    assert read(spark, name_server, messages[0].topic, maxRowsPerPartition="50").rdd.getNumPartitions() == 12
    assert read(spark, name_server, messages[0].topic, minPartitions="1").rdd.getNumPartitions() == QUEUES
    assert read(spark, name_server, messages[0].topic).rdd.getNumPartitions() == 1


def test_tags_are_filtered(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    wanted = read(spark, name_server, messages[0].topic, subExpression="JFK || LGA", columns="key,tags")
    assert keys(wanted) == sorted(message.keys[0] for message in messages if message.tags in ("JFK", "LGA"))
    assert read(spark, name_server, messages[0].topic, subExpression="ORD").count() == 0


def test_offsets_and_times_bound_a_batch(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    topic = messages[0].topic
    start = {topic: {BROKER: {"0": 3, "1": -1, "2": -2}}}
    end = {"v": 1, "q": {topic: {BROKER: {"0": 5, "2": 1, "3": 2}}}}
    frame = read(spark, name_server, topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    found = sorted((row["queueId"], row["queueOffset"]) for row in frame.select("queueId", "queueOffset").collect())
    assert found == [(0, 3), (0, 4), (2, 0), (3, 0), (3, 1)]
    later = read(spark, name_server, topic, startingTimestamp=str(int(time.time() * 1000) + 3_600_000))
    assert later.count() == 0
    assert read(spark, name_server, topic, startingTimestamp="1").count() == COUNT
    assert len(messages) == COUNT


def test_a_pattern_and_single_queues(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    topic = messages[0].topic
    reader = spark.read.format("raptormq").option("nameServer", name_server)
    assert reader.option("subscribePattern", topic.replace("flights", "fl.*")).load().count() == len(messages)
    assign = json.dumps({topic: {BROKER: [1]}})
    one = spark.read.format("raptormq").option("nameServer", name_server).option("assign", assign).load()
    assert one.count() == COUNT // QUEUES


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, name_server: str) -> None:
    topic = unique("batch-empty")
    create_topic(name_server, topic, 2)
    frame = read(spark, name_server, topic)
    assert frame.count() == 0
    assert frame.columns[:2] == ["key", "value"]


def test_a_body_of_4_mb(spark: SparkSession, name_server: str) -> None:
    topic = unique("batch-large")
    create_topic(name_server, topic, 1)
    body = random.Random(9).randbytes(4 * 1024 * 1024 - 1000)
    send(name_server, [Message(topic, body, keys=("large",)), Message(topic, b"small")], 1)
    rows = read(spark, name_server, topic, columns="value").collect()
    assert [bytes(row["value"]) for row in rows] == [body, b"small"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"failOnDatalos": "true"}, "unknown option 'failondatalos'; did you mean failOnDataLoss?"),
        ({"subscribe": "batch-nowhere", "retryTimeoutMs": "300"}, "topic batch-nowhere does not exist"),
        ({"nameServer": "127.0.0.1:1", "retryTimeoutMs": "300"}, "no name server responds at 127.0.0.1:1"),
        ({"endingOffsets": '{"TOPIC": {"broker-a": {"0": 1000000}}}'}, "read up to offset 1000000 but ends at 150"),
    ],
)
def test_mistakes_are_clear(
    spark: SparkSession, name_server: str, messages: list[Message], options: dict[str, str], reason: str
) -> None:
    base = {"nameServer": name_server, "subscribe": messages[0].topic}
    named = {name: value.replace("TOPIC", messages[0].topic) for name, value in options.items()}
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("raptormq").options(**base | named).load().count()
    assert reason in str(caught.value)


def test_another_schema_is_refused(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    reader = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", messages[0].topic)
    with pytest.raises(AnalysisException, match="choose columns with option columns"):
        reader.schema("value string").load().count()


@pytest.fixture
def expiring() -> Iterator[MemoryBroker]:
    """A broker whose retention deletes messages between the planning of a query and its reads."""
    with MemoryBroker() as broker:
        broker.create("t", 1)
        for number in range(100):
            broker.send("t", 0, b"%d" % number, f"KEYS\x01k{number}\x02")
        yield broker


def expire(broker: MemoryBroker, count: int) -> None:
    queue = broker.topics["t"][0]
    queue.messages = queue.messages[count:]
    queue.first += count


@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_expire_after_planning(spark: SparkSession, expiring: MemoryBroker, fail: str) -> None:
    frame = read(spark, expiring.address, "t", failOnDataLoss=fail).select("key")
    planned: Any = frame.rdd
    assert planned.getNumPartitions() == 1
    expire(expiring, 40)
    if fail == "true":
        with pytest.raises(Exception, match="offsets 0 to 39 of t@broker-a:0 are missing"):
            planned.collect()
    else:
        assert len(planned.collect()) == 60


@pytest.mark.parametrize("fail", ["true", "false"])
def test_damaged_messages(spark: SparkSession, expiring: MemoryBroker, fail: str) -> None:
    stored = expiring.topics["t"][0].messages
    stored[40].sys_flag |= int(SysFlag.COMPRESSED)  # with an uncompressed body
    frame = read(spark, expiring.address, "t", failOnDamage=fail)
    if fail == "true":
        with pytest.raises(Exception, match=r"offset 40 of t@broker-a:0 is damaged.*failOnDamage"):
            frame.collect()
    else:
        assert [row["queueOffset"] for row in frame.collect()] == [*range(40), *range(41, 100)]


def test_properties_are_filtered_by_the_broker(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    wanted = "number BETWEEN 100 AND 119 AND TAGS = 'JFK'"
    by_broker = {"subExpression": wanted, "expressionType": "sql92"}
    found = read(spark, name_server, messages[0].topic, columns="key,tags", **by_broker)
    expected = [m.keys[0] for m in messages if 100 <= int(m.properties["number"]) <= 119 and m.tags == "JFK"]
    assert keys(found) == sorted(expected)
    with pytest.raises(AnalysisException, match="option subExpression: not a filter"):
        read(spark, name_server, messages[0].topic, subExpression="number >", expressionType="sql92")


def test_a_time_per_queue_bounds_a_batch(spark: SparkSession, name_server: str) -> None:
    topic = unique("batch-times")
    create_topic(name_server, topic, 2)
    send(name_server, sample_messages(topic, 20), 2)
    stored = read(spark, name_server, topic).where("queueId = 1").agg({"storeTimestamp": "max"}).collect()[0][0]
    after = int(stored.timestamp() * 1000) + 1
    while time.time() * 1000 <= after:
        time.sleep(0.001)
    send(name_server, sample_messages(topic, 6), 2)
    times = json.dumps({topic: {BROKER: {"1": after}}})
    rows = read(spark, name_server, topic, startingOffsetsByTimestamp=times).select("queueId", "queueOffset").collect()
    assert Counter(row["queueId"] for row in rows) == {0: 13, 1: 3}
    assert min(row["queueOffset"] for row in rows if row["queueId"] == 1) == 10
    rows = read(spark, name_server, topic, endingOffsetsByTimestamp=times).select("queueId", "queueOffset").collect()
    assert Counter(row["queueId"] for row in rows) == {0: 13, 1: 10}


@pytest.fixture
def _pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("_pushing")
def test_filters_are_pushed_down(spark: SparkSession, name_server: str, messages: list[Message]) -> None:
    topic = messages[0].topic
    whole = read(spark, name_server, topic).cache()
    middle = whole.selectExpr("percentile(unix_micros(storeTimestamp), 0.5)").collect()[0][0]
    filters = {
        "queueId = 1": 1,
        "queueId IN (1, 2) AND brokerName = 'broker-a'": 2,
        "topic = 'other'": 0,
        "queueOffset >= 10 AND queueOffset < 20 AND queueId = 0": 1,
        "queueOffset = 5": QUEUES,
        "tags = 'JFK'": QUEUES,
        "tags IN ('JFK', 'LGA') AND queueId <> 2": QUEUES,
        "tags = 'JFK' AND tags = 'LGA'": 0,
        "key = 'k7'": QUEUES,
        f"storeTimestamp >= timestamp_micros(bigint({middle}))": None,
        f"storeTimestamp < timestamp_micros(bigint({middle})) AND tags = 'EWR'": None,
        "storeTimestamp > current_timestamp() + interval 1 day": 0,
    }
    for condition, tasks in filters.items():
        found = read(spark, name_server, topic, minPartitions="1").where(condition)
        assert keys(found) == keys(whole.where(condition)), condition
        if tasks:  # Spark creates one for a query without data
            assert found.rdd.getNumPartitions() == tasks, condition
    assert len(keys(read(spark, name_server, topic).where("tags = 'JFK'"))) > 50


def test_table_of_the_catalog_is_refused_and_a_temporary_view_is_read(
    spark: SparkSession, name_server: str, messages: list[Message]
) -> None:
    name, topic = unique("flights").replace("-", "_"), messages[0].topic
    given = f"USING raptormq OPTIONS (nameServer '{name_server}', subscribe '{topic}', columns 'key,queueId')"
    instead = "Spark does not pass the options of a catalog's table to Python data sources: use CREATE TEMPORARY VIEW"
    for statement in (f"CREATE TABLE {name} {given} COMMENT 'flights'", f"CREATE TABLE {name} USING raptormq"):
        with pytest.raises(AnalysisException, match=f"a table of a catalog cannot use raptormq. {instead}"):
            spark.sql(statement)
        assert not spark.catalog.tableExists(name)
    # Spark does not create the data source for a table with columns, so the first read is refused.
    spark.sql(f"CREATE TABLE {name} (key STRING, queueId INT) {given}")
    try:
        with pytest.raises(AnalysisException, match=f"nameServer is missing.* If this is a table: {instead}"):
            spark.table(name).collect()
    finally:
        spark.sql(f"DROP TABLE {name}")
    spark.sql(f"CREATE TEMPORARY VIEW {name} {given}")
    try:
        assert keys(spark.table(name)) == sorted(f"k{number}" for number in range(COUNT))
        [row] = spark.sql(f"SELECT count(*) AS count FROM {name} WHERE queueId = 1").collect()
        assert row["count"] == COUNT // QUEUES
    finally:
        spark.catalog.dropTempView(name)


def test_topic_is_copied_with_the_properties_of_the_application(
    spark: SparkSession, name_server: str, messages: list[Message]
) -> None:
    copy = unique("copied-flights")
    create_topic(name_server, copy, 1)

    def write(properties: str) -> None:
        rows = read(
            spark, name_server, messages[0].topic, columns="value,tags,keys,properties", includeProperties=properties
        )
        writer = rows.write.format("raptormq").mode("append").option("nameServer", name_server)
        writer.option("topic", copy).save()

    with pytest.raises(PySparkException, match=r"reserved names .*KEYS.*includeProperties=user, which leaves them out"):
        write("map")
    write("user")
    copied = read(spark, name_server, copy, includeProperties="user").collect()
    assert {row["key"]: (bytes(row["value"]), row["tags"], row["properties"]) for row in copied} == {
        message.keys[0]: (message.body, message.tags, message.properties) for message in messages
    }
