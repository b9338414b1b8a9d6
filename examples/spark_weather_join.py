"""Streaming job: flights joined with the weather of their airport and hour, two topics with watermarks.

    spark_weather_join.py NAME_SERVERS FLIGHTS_TOPIC WEATHER_TOPIC FOLDER

Flights are JSON with date, origin and delay, weather is JSON with origin, year, month, day, hour (local time) and
wind_speed. The flights of the examples are of 2001 and the weather is of 2013, so flights are moved by `YEARS` years;
only airports of New York have weather. Both sides wait `LATE` for each other. A message that its producer sent twice
has the same key and counts once. The result is Parquet in FOLDER/joined.

The join is state of the executors, so FOLDER must be on a volume that all pods share (`stateful: true`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FLIGHT = "date string, origin string, delay long"
WEATHER = "origin string, year int, month int, day int, hour int, wind_speed double"
AIRPORTS = ("EWR", "JFK", "LGA")
YEARS = 12
LATE = "30 days"


def joined(flight_messages: DataFrame, weather_messages: DataFrame) -> DataFrame:
    """Return the flights that have weather, from messages with the columns `key` and `value`."""
    flights = _columns(flight_messages, FLIGHT).where(F.col("origin").isin(*AIRPORTS))
    moved = F.to_timestamp("date", "yyyy/MM/dd HH:mm") + F.make_ym_interval(F.lit(YEARS))
    flights = flights.withColumn("departure", moved).withColumn("flight_hour", F.date_trunc("hour", "departure"))
    flights = flights.withWatermark("flight_hour", LATE).dropDuplicatesWithinWatermark(["key"])
    flights = flights.select("flight_hour", "departure", "delay", F.col("origin").alias("airport"))

    weather = _columns(weather_messages, WEATHER)
    hour = F.make_timestamp("year", "month", "day", "hour", F.lit(0), F.lit(0))
    weather = weather.withColumn("weather_hour", hour).withWatermark("weather_hour", LATE)
    weather = weather.dropDuplicatesWithinWatermark(["key"]).select("weather_hour", "origin", "wind_speed")
    same = (F.col("airport") == F.col("origin")) & (F.col("flight_hour") == F.col("weather_hour"))
    return flights.join(weather, same).select("airport", "departure", "delay", "wind_speed")


def read(session: SparkSession, name_servers: str, topic: str) -> DataFrame:
    """Return a topic as a stream from its first message."""
    reader = session.readStream.format("raptormq").option("nameServer", name_servers).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").option("columns", "key,value").load()


def _columns(messages: DataFrame, schema: str) -> DataFrame:
    body = F.from_json(F.col("value").cast("string"), schema)
    return messages.select("key", body.alias("body")).select("key", "body.*")


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description="flights with their weather")
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("flights")
    parser.add_argument("weather")
    parser.add_argument("folder", type=Path, help="a folder that all pods share")
    arguments = parser.parse_args()
    session = SparkSession.builder.getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    flights = read(session, arguments.name_servers, arguments.flights)
    weather = read(session, arguments.name_servers, arguments.weather)
    writer = joined(flights, weather).writeStream.queryName("weather-join").format("parquet")
    writer = writer.option("path", (arguments.folder / "joined").absolute().as_uri())
    writer.option(
        "checkpointLocation", (arguments.folder / "checkpoint").absolute().as_uri()
    ).start().awaitTermination()


if __name__ == "__main__":
    main()
