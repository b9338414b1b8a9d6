"""Streaming job: delays per route in a sliding window, as Parquet.

    spark_route_delays.py NAME_SERVERS TOPIC FOLDER [--max-offsets NUMBER] [--every INTERVAL]

For each window of 7 days, one of which begins every day, and each route: the number of flights and the sum of their
delays. Bodies are JSON with date, origin, destination and delay. A message that its producer sent twice has the same
key and counts once. A window is written when no flight of it is expected any more, `LATE` after its end.

`LATE` is the time by which the queues of a topic may be apart: a query that reads a backlog takes the same share of
each queue, and the queues of a broker that was away have fewer flights of that time. A flight that is older than the
newest one by more than `LATE` may be in no window. More time costs more state.

Executors keep state and write Parquet, so FOLDER must be on a volume that all pods share: `stateful: true` in a
SparkPipeline, see spark-pipeline.yaml. Only files that are named in FOLDER/delays/_spark_metadata count; Spark reads
them that way.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FLIGHT = "date string, origin string, destination string, delay long"
WINDOW, SLIDE, LATE = "7 days", "1 day", "60 days"


def route_delays(messages: DataFrame) -> DataFrame:
    """Return flights and delay per window and route, from messages with the columns `key` and `value`."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    flights = messages.select("key", flight.alias("flight")).select("key", "flight.*")
    flights = flights.withColumn("departure", F.to_timestamp("date", "yyyy/MM/dd HH:mm")).drop("date")
    once = flights.withWatermark("departure", LATE).dropDuplicatesWithinWatermark(["key"])
    windows = once.groupBy(F.window("departure", WINDOW, SLIDE), "origin", "destination")
    totals = windows.agg(F.count("*").alias("flights"), F.sum("delay").alias("delay"))
    return totals.select("window.start", "origin", "destination", "flights", "delay")


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description="delays per route, in a sliding window")
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path, help="a folder that all pods share")
    parser.add_argument("--max-offsets", type=int, default=100_000, help="messages per micro-batch")
    parser.add_argument("--every", default="10 seconds", help="trigger interval")
    arguments = parser.parse_args()
    session = SparkSession.builder.getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    messages = (
        session.readStream.format("raptormq")
        .option("nameServer", arguments.name_servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.max_offsets)
        .option("columns", "key,value")
        .load()
    )
    query = (
        route_delays(messages)
        .writeStream.queryName("route-delays")
        .format("parquet")
        .option("path", (arguments.folder / "delays").absolute().as_uri())
        .option("checkpointLocation", (arguments.folder / "checkpoint").absolute().as_uri())
        .trigger(processingTime=arguments.every)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
