"""Streaming job: from a raw topic to a cleaned one, exactly once.

    spark_clean_topic.py NAME_SERVERS RAW_TOPIC CLEANED_TOPIC CHECKPOINT [--since TIME] [--coordinator GROUP] [--once]

Bodies that are not JSON of a flight, or that lack a field, are left out. The others become rows with exactly these
fields; the origin is the tag, and the key of the message stays its key. With `exactlyOnce` each micro-batch is in the
cleaned topic once, whatever is killed; brokers need `stagedMessagesEnable = true`. Without state, executors do not need
the checkpoint volume.

--since backfills from a time, such as 2026-05-01T12:00:00Z, and the query then stays with what arrives. It applies to
the first start only: afterwards the checkpoint says where to go on.
"""

from __future__ import annotations

import argparse
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FLIGHT = "date string, origin string, destination string, delay long, distance long"
FIELDS = ("date", "origin", "destination", "delay", "distance")


def cleaned(messages: DataFrame) -> DataFrame:
    """Return the rows for the sink, from messages with the columns `key` and `value`."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    flights = messages.select("key", flight.alias("flight")).dropna(subset=[f"flight.{name}" for name in FIELDS])
    return flights.select(
        F.to_json("flight").alias("value"), F.array("key").alias("keys"), F.col("flight.origin").alias("tags")
    )


def milliseconds(text: str) -> int:
    """Parse a time with a zone. Return milliseconds since 1970."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no time zone, add Z for UTC")
    return round(time.timestamp() * 1000)


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description="raw flights to cleaned flights")
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("raw")
    parser.add_argument("cleaned")
    parser.add_argument("checkpoint")
    parser.add_argument("--since", type=milliseconds, help="begin with the messages of this time; default: all")
    parser.add_argument("--coordinator", help="broker group that decides about batches, where there are several")
    parser.add_argument("--once", action="store_true", help="end with what is there now")
    arguments = parser.parse_args()
    session = SparkSession.builder.getOrCreate()
    reader = session.readStream.format("raptormq").option("nameServer", arguments.name_servers)
    reader = reader.option("subscribe", arguments.raw).option("columns", "key,value")
    if arguments.since is None:
        reader = reader.option("startingOffsets", "earliest")
    else:
        reader = reader.option("startingTimestamp", arguments.since)
    writer = cleaned(reader.load()).writeStream.queryName("clean-topic").format("raptormq")
    writer = writer.option("nameServer", arguments.name_servers).option("topic", arguments.cleaned)
    writer = writer.option("exactlyOnce", "true").option("checkpointLocation", arguments.checkpoint)
    if arguments.coordinator is not None:
        writer = writer.option("coordinator", arguments.coordinator)
    writer = writer.trigger(availableNow=True) if arguments.once else writer.trigger(processingTime="1 second")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
