"""DataFrames written to a real broker, as batches and as streams, and read again."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from raptormq.client import Message, Producer, pick_by_key
from tests.names import unique
from tests.spark.memory_broker import MemoryBroker
from tests.spark.sending import BROKER, create_topic, sample_messages, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a session starts slowly on a busy machine

WAIT_S = 100


def write(frame: DataFrame, name_server: str, **options: str) -> None:
    frame.write.format("raptormq").mode("append").options(**{"nameServer": name_server} | options).save()


def read(spark: SparkSession, name_server: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("raptormq").options(**{"nameServer": name_server, "subscribe": topic} | options)
    return reader.load()


def test_what_was_written_is_read_back(spark: SparkSession, name_server: str) -> None:
    topic = unique("write-all")
    create_topic(name_server, topic, 4)
    rows = spark.range(3000).select(
        f.concat(f.lit("body "), "id").alias("value"),
        f.when(f.col("id") % 3 == 0, "JFK").when(f.col("id") % 3 == 1, "LGA").alias("tags"),
        f.array(f.concat(f.lit("k"), "id"), f.lit("all")).alias("keys"),
        f.concat(f.lit("plane"), f.col("id") % 7).alias("shardingKey"),
        f.create_map(f.lit("number"), f.col("id").cast("string"), f.lit("none"), f.lit(None).cast("string")).alias(
            "properties"
        ),
    )
    write(rows, name_server, topic=topic)
    found = read(spark, name_server, topic, includeProperties="map").collect()
    assert sorted(row["value"].decode() for row in found) == sorted(f"body {number}" for number in range(3000))
    places = defaultdict(set)
    for row in found:
        number = int(row["value"].decode().removeprefix("body "))
        assert row["tags"] == ("JFK", "LGA", None)[number % 3]
        assert row["keys"] == [f"k{number}", "all"]
        assert row["properties"]["number"] == str(number)
        assert "none" not in row["properties"]
        places[number % 7].add((row["brokerName"], row["queueId"]))

    async def chosen() -> dict[int, set[tuple[str, int]]]:
        async with Producer(name_servers=name_server) as producer:
            queues = await producer.queues(topic)
        by_key = {number: pick_by_key(queues, f"plane{number}") for number in range(7)}
        return {number: {(queue.broker_name, queue.queue_id)} for number, queue in by_key.items()}

    assert places == asyncio.run(chosen())


def test_a_column_names_the_topic_and_an_option_overrides_it(spark: SparkSession, name_server: str) -> None:
    first, second = unique("write-first"), unique("write-second")
    for topic in (first, second):
        create_topic(name_server, topic, 2)
    rows = spark.range(100).select(
        f.col("id").cast("string").alias("body"), f.when(f.col("id") < 30, first).otherwise(second).alias("topic")
    )
    write(rows, name_server)
    assert read(spark, name_server, first).count() == 30
    assert read(spark, name_server, second).count() == 70
    write(rows, name_server, topic=first)
    assert read(spark, name_server, first).count() == 130


def test_rows_choose_their_queue(spark: SparkSession, name_server: str) -> None:
    topic = unique("write-queues")
    create_topic(name_server, topic, 3)
    rows = spark.range(60).select(
        f.col("id").cast("string").alias("value"),
        (f.col("id") % 3).cast("int").alias("queueId"),
        f.lit(BROKER).alias("brokerName"),
    )
    write(rows.where("queueId != 1"), name_server, topic=topic)
    found = read(spark, name_server, topic).select("value", "queueId").collect()
    assert len(found) == 40
    assert all(int(row["value"]) % 3 == row["queueId"] for row in found)
    write(rows.drop("brokerName").where("queueId = 1"), name_server, topic=topic)
    assert read(spark, name_server, topic).count() == 60
    with pytest.raises(
        PySparkException, match=r"row 1 of partition \d cannot be sent: there is no queue .*:3 to write"
    ):
        write(rows.withColumn("queueId", f.lit(3)).coalesce(1), name_server, topic=topic)


def test_messages_may_come_later(spark: SparkSession, name_server: str) -> None:
    topic = unique("write-later")
    create_topic(name_server, topic, 1)
    soon = f.current_timestamp() + f.expr("interval 2 seconds")
    rows = spark.range(20).select(
        f.col("id").cast("string").alias("value"), f.when(f.col("id") % 2 == 0, soon).alias("deliverTime")
    )
    write(rows, name_server, topic=topic)
    stream = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    frame = stream.option("startingOffsets", "earliest").option("includeProperties", "map").load()
    found: dict[int, float] = {}

    def collect(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            due = row["properties"].get("TIMER_OUT_MS") or row["properties"].get("TIMER_DELIVER_MS")
            found[int(row["value"])] = row["storeTimestamp"].timestamp() * 1000 - float(due) if due else 0

    query = frame.writeStream.foreachBatch(collect).start()
    try:
        while len(found) < 20:
            assert not query.awaitTermination(1)
    finally:
        query.stop()
    late = {number: behind for number, behind in found.items() if number % 2 == 0}
    assert all(behind >= 0 for behind in late.values())
    assert [number for number, behind in found.items() if number % 2 and behind] == []


def test_a_stream_is_written_once_over_restarts(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    """Without a failure no batch has duplicates."""
    source, target = unique("write-from"), unique("write-to")
    for topic in (source, target):
        create_topic(name_server, topic, 2)

    def copy() -> None:
        stream = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", source)
        frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "120").load()
        writer = frame.select("value", "tags", "keys").writeStream.format("raptormq").option("nameServer", name_server)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            query.stop()

    first, more = sample_messages(source, 500), [Message(source, b"more", keys=(f"m{n}",)) for n in range(40)]
    send(name_server, first, 2)
    copy()
    send(name_server, more, 2)
    copy()
    found = Counter(row["key"] for row in read(spark, name_server, target).select("key").collect())
    assert found == Counter(message.keys[0] for message in [*first, *more])


def test_a_large_body_and_a_missing_one_are_refused_with_their_place(spark: SparkSession, name_server: str) -> None:
    topic = unique("write-large")
    create_topic(name_server, topic, 2)
    large = f.when(f.col("id") == 700, f.repeat(f.lit("x"), 5000)).otherwise("small")
    rows = spark.range(1000).coalesce(1)
    with pytest.raises(PySparkException, match="row 701 of partition 0 has a body of 5000 bytes; the limit is 4096"):
        write(rows.select(large.alias("value")), name_server, topic=topic, maxMessageBytes="4k")
    missing = f.when(f.col("id") != 900, "there")
    with pytest.raises(PySparkException, match="row 901 of partition 0 has no body"):
        write(rows.select(missing.alias("value")), name_server, topic=topic)
    with pytest.raises(PySparkException, match="row 1 of partition 0 has no topic: it is null"):
        write(rows.selectExpr("'x' as value", "cast(null as string) as topic"), name_server)
    with pytest.raises(PySparkException, match=r"row 1 of partition 0 cannot be sent: .*\|\|"):
        write(rows.selectExpr("'x' as value", "'a||b' as tags"), name_server, topic=topic)


def test_a_four_megabyte_body_travels(spark: SparkSession, name_server: str) -> None:
    topic = unique("write-4m")
    create_topic(name_server, topic, 1)
    size = 4 * 1024 * 1024 - 1024
    frame = spark.range(2).select(f.expr(f"cast(repeat(cast(id as string), {size}) as binary)").alias("value"))
    write(frame, name_server, topic=topic, compression="none")
    found = read(spark, name_server, topic).selectExpr("length(value) as n", "substr(cast(value as string), 1, 1) as c")
    assert sorted((row["n"], row["c"]) for row in found.collect()) == [(size, "0"), (size, "1")]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (["'x' as value", "1 as foo"], {}, "column foo cannot be written"),
        (["'x' as value", "'a' as tag"], {}, "column tag cannot be written; did you mean tags"),
        (["'x' as value", "'a' as key"], {}, "column key cannot be written; rename it to keys"),
        (["1 as value"], {}, "column value must be binary or string, not int: cast it"),
        (["'x' as value", "1L as queueId"], {}, "column queueId must be int, not bigint"),
        (["'x' as value", "'x' as body"], {}, "columns value and body have the same meaning"),
        (["'x' as tags"], {}, "column value is missing"),
        (["'x' as value", "1 as queueId", "'k' as shardingKey"], {}, "both select the queue"),
        (["'x' as value"], {"topics": "x"}, "unknown option 'topics'; did you mean topic"),
        (["'x' as value"], {"topic": "no topic"}, "option topic"),
        (["'x' as value"], {"acks": "2"}, "option acks: must be all or 1, not '2'"),
        (["'x' as value"], {"encrypt": "true"}, "option encrypt needs keys: set encryptionKeyFile or encryption"),
        (["'x' as value"], {"topic": "TBW102"}, "option topic: topic TBW102 belongs to the brokers"),
        (["'x' as value"], {"secretKey": "hush-hush"}, "give accessKey together with secretKey"),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(
    spark: SparkSession, name_server: str, columns: list[str], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        write(spark.range(1).selectExpr(*columns), name_server, **{"topic": "t"} | options)
    assert reason in str(caught.value)
    assert "hush-hush" not in str(caught.value)


def test_a_topic_that_is_not_there_is_said_at_once(spark: SparkSession) -> None:
    with MemoryBroker() as broker, pytest.raises(AnalysisException, match="topic nowhere does not exist"):
        write(spark.range(1).selectExpr("'x' as value"), broker.address, topic="nowhere")


def test_overwriting_is_refused(spark: SparkSession, name_server: str) -> None:
    writer = spark.range(1).selectExpr("'x' as value").write.format("raptormq").mode("overwrite")
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        writer.option("nameServer", name_server).option("topic", "t").save()


def test_a_stream_with_a_mistake_says_so(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("'x' as value", "value as number")
    writer = frame.writeStream.format("raptormq").option("nameServer", name_server).option("topic", "t")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="column number cannot be written"):
        query.awaitTermination(WAIT_S)


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
def test_encrypted_bodies_there_and_back(
    spark: SparkSession, name_server: str, tmp_path: Path, queue_type: str
) -> None:
    topic = unique("write-encrypted")
    create_topic(name_server, topic, 2, {"queue.type": queue_type})
    (tmp_path / "keys").write_text(f"k1 = {base64.b64encode(bytes(range(16))).decode()}\n", encoding="utf-8")
    keys = {"encryptionKeyFile": str(tmp_path / "keys")}
    rows = spark.range(500).select(f.concat(f.lit("secret "), "id").alias("value"), f.lit("a").alias("tags"))
    write(rows, name_server, topic=topic, encrypt="true", **keys)
    found = sorted(row["value"].decode() for row in read(spark, name_server, topic, **keys).collect())
    assert found == sorted(f"secret {number}" for number in range(500))
    with pytest.raises(PySparkException, match=r"encrypted with the key 'k1'.* set option encryptionKeyFile"):
        read(spark, name_server, topic).select("value").collect()
    if queue_type == "SimpleCQ":  # all users can read metadata, unless batches must be unpacked
        assert read(spark, name_server, topic, columns="tags").count() == 500


def test_secrets_are_shown_nowhere(spark: SparkSession, name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Secrets are neither in plans nor in the errors of tasks."""
    topic = unique("write-secret")
    create_topic(name_server, topic, 1)
    secrets = {"accessKey": "somebody", "secretKey": "hush-hush", "tlsKeyPassword": "hush-hush"}
    options = {"nameServer": name_server, "subscribe": topic} | secrets
    frame = spark.read.format("raptormq").options(**options).load()
    frame.explain(True)
    frame.select("value").write.mode("append").format("noop").save()
    with pytest.raises(PySparkException) as caught:
        write(spark.range(1).selectExpr("cast(null as string) as value"), name_server, topic=topic, **secrets)
    assert "has no body" in str(caught.value)
    shown = capfd.readouterr()
    assert "raptormq" in shown.out
    assert "hush-hush" not in f"{caught.value} {shown.out} {shown.err}"
