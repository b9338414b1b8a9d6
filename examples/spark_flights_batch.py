"""Batch job that computes flights, mean delay and distance per origin from all messages of a topic.

    spark-submit spark_flights_batch.py NAME_SERVERS TOPIC

A message is a JSON object with origin, delay (minutes) and distance (miles); its key is the number of the flight. A
producer that receives no response sends a message again, so duplicates with the same key are counted once. The
results are printed to standard output: one line per origin with RESULT and a JSON object.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FLIGHT = "origin string, delay long, distance long"


def totals(messages: DataFrame) -> DataFrame:
    """Return flights, delay and distance per origin. `messages` needs the columns key and value."""
    flights = messages.select("key", F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"))
    return (
        flights.dropDuplicates(["key"])
        .groupBy("flight.origin")
        .agg(
            F.count("*").alias("flights"),
            F.sum("flight.delay").alias("delay"),
            F.sum("flight.distance").alias("distance"),
        )
        .orderBy("origin")
    )


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description="flights per origin")
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("topic")
    arguments = parser.parse_args()
    session = SparkSession.builder.appName("flights-batch").getOrCreate()
    messages = (
        session.read.format("raptormq")
        .option("nameServer", arguments.name_servers)
        .option("subscribe", arguments.topic)
        .option("columns", "key,value")
        .load()
    )
    for row in totals(messages).collect():
        print("RESULT", json.dumps(row.asDict()), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
