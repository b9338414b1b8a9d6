"""Exactly-once writes of a query whose checkpoint was restored from an older copy, or copied for another query."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from raptormq.client import Message
from tests.names import unique
from tests.spark.sending import create_topic, send
from tests.spark.servers import stored

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

WAIT_S = 100


class CopyingQuery:
    """A query that copies a topic of its own to another one, with a checkpoint that can be copied."""

    def __init__(self, spark: SparkSession, name_server: str, folder: Path) -> None:
        self._spark = spark
        self._name_server = name_server
        self._sent = 0
        self.checkpoint = folder / "checkpoint"
        self.raw, self.copied = unique("raw"), unique("copied")
        for topic in (self.raw, self.copied):
            create_topic(name_server, topic, 1)

    def send(self, count: int) -> None:
        """Send numbered messages."""
        numbers = range(self._sent, self._sent + count)
        send(self._name_server, [Message(self.raw, b"%d" % number) for number in numbers], 1)
        self._sent += count

    def run(self, topic: str | None = None, **more: str) -> None:
        """Copy all messages. `topic` replaces the topic to write to."""
        stream = self._spark.readStream.format("raptormq").option("nameServer", self._name_server)
        stream = stream.option("subscribe", self.raw).option("startingOffsets", "earliest").option("columns", "value")
        options = {"nameServer": self._name_server, "topic": topic or self.copied, "exactlyOnce": "true"} | more
        writer = stream.load().writeStream.format("raptormq").options(**options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)

    def number_of(self, topic: str) -> int:
        """Return the number of messages of a topic."""
        return asyncio.run(stored(self._name_server, topic)).total()

    def keep(self) -> Path:
        """Copy the checkpoint. Return the copy."""
        return Path(shutil.copytree(self.checkpoint, self.checkpoint.with_name(f"copy-{self._sent}")))

    def restore(self, copy: Path) -> None:
        """Replace the checkpoint by a copy."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(copy, self.checkpoint)


def test_a_batch_before_the_last_published_one_fails_the_query(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    query = CopyingQuery(spark, name_server, tmp_path)
    query.send(10)
    query.run()
    copy = query.keep()
    for _ in range(2):
        query.send(10)
        query.run()
    query.restore(copy)
    query.send(100)
    with pytest.raises(StreamingQueryException, match=r"batch 1 of query .* a later batch of the query is published"):
        query.run(failOnDifferentReplay="false")
    assert query.number_of(query.copied) == 30


def test_the_last_batch_with_another_number_of_rows_fails_the_query_unless_an_option_accepts_it(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    query = CopyingQuery(spark, name_server, tmp_path)
    query.send(10)
    query.run()
    copy = query.keep()
    query.send(10)
    query.run()
    query.restore(copy)
    query.send(100)
    with pytest.raises(StreamingQueryException, match="with 10 messages, but its repetition has 110 rows"):
        query.run()
    query.run(failOnDifferentReplay="false")
    assert query.number_of(query.copied) == 20
    query.send(5)
    query.run()
    assert query.number_of(query.copied) == 25


def test_a_copy_of_the_checkpoint_cannot_write_to_another_topic(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    query, other = CopyingQuery(spark, name_server, tmp_path), unique("other")
    create_topic(name_server, other, 1)
    query.send(10)
    query.run()
    copy = query.keep()
    query.send(10)
    query.run()
    query.restore(copy)
    with pytest.raises(StreamingQueryException, match=f"is committed for topic {query.copied}, not for topic {other}"):
        query.run(other)
    assert query.number_of(other) == 0
    query.run()
    assert query.number_of(query.copied) == 20
