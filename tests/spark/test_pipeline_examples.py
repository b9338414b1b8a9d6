"""The example pipelines with records whose results are computed in plain Python."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from e2e import clean_topic, records, route_delays, weather_join
from raptormq.client import Message
from tests.names import unique
from tests.spark.sending import create_topic, send
from tests.spark.test_examples import example


def put(name_server: str, topic: str, rows: list[dict[str, Any]]) -> None:
    """Send rows as JSON. The first fifty are sent twice, like by a producer that lost the responses."""
    create_topic(name_server, topic, 4)
    numbered = [*enumerate(rows), *list(enumerate(rows))[:50]]
    send(name_server, [Message(topic, json.dumps(row).encode(), keys=(str(n),)) for n, row in numbered], 4)


def flights() -> list[dict[str, Any]]:
    """Flights of New York."""
    return [row for row in records.read() if row["origin"] in records.AIRPORTS]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_windows_of_routes_are_exact(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    topic, rows = unique("route-delays"), flights()
    put(name_server, topic, rows)
    job = example("spark_route_delays")
    reader = spark.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    messages = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load()
    writer = job.route_delays(messages).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.start(str(tmp_path / "delays")).awaitTermination()
    found = Counter(
        (row["start"].strftime("%Y-%m-%d"), row["origin"], row["destination"], row["flights"], row["delay"])
        for row in spark.read.parquet(str(tmp_path / "delays")).collect()
    )
    wanted = route_delays.expected(rows)
    assert len(wanted) > 50
    assert found == wanted


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_flights_are_joined_with_their_weather(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    of_flights, of_weather = unique("join-flights"), unique("join-weather")
    rows, hours = flights(), records.weather()
    put(name_server, of_flights, rows)
    put(name_server, of_weather, hours)
    job = example("spark_weather_join")
    result = job.joined(job.read(spark, name_server, of_flights), job.read(spark, name_server, of_weather))
    writer = result.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.start(str(tmp_path / "joined")).awaitTermination()

    found = Counter(
        (row["airport"], row["departure"].strftime("%Y-%m-%d %H:%M:%S"), row["delay"], row["wind_speed"])
        for row in spark.read.parquet(str(tmp_path / "joined")).collect()
    )
    wanted = weather_join.expected(rows, hours)
    assert wanted.total() > weather_join.LEAST
    assert found == wanted


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_raw_topic_is_cleaned_once_from_a_time_on(
    spark: SparkSession, name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, target = unique("raw"), unique("cleaned")
    for topic in (raw, target):
        create_topic(name_server, topic, 2)
    job = example("spark_clean_topic")
    old, new, later = flights()[:20], flights()[20:60], flights()[60:70]
    wrong = [b"not json", b'{"origin": "JFK"}', b"[]", b""]

    def deliver(rows: list[dict[str, Any]], first: int) -> None:
        bodies = [json.dumps(row | {"extra": 1}).encode() for row in rows] + wrong
        send(name_server, [Message(raw, body, keys=(str(first + n),)) for n, body in enumerate(bodies)], 2)

    def run() -> list[tuple[str, str]]:
        arguments = [name_server, raw, target, str(tmp_path / "checkpoint"), "--once", f"--since={since.isoformat()}"]
        monkeypatch.setattr(sys, "argv", ["spark_clean_topic.py", *arguments])
        job.main()
        reader = spark.read.format("raptormq").option("nameServer", name_server).option("subscribe", target)
        return sorted((row["tags"], bytes(row["value"]).decode()) for row in reader.load().collect())

    deliver(old, 0)
    boundary = time.time()
    while (since := datetime.now(UTC)).timestamp() < boundary + 0.02:
        pass  # store timestamps have milliseconds
    deliver(new, 100)

    def wanted(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
        picked = [(row["origin"], {name: row[name] for name in clean_topic.FIELDS}) for row in rows]
        return sorted((origin, json.dumps(row, separators=(",", ":"))) for origin, row in picked)

    assert run() == wanted(new)
    deliver(later, 200)
    assert run() == wanted(new + later)
