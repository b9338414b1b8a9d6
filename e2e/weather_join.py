"""A SparkPipeline joins two topics, flights and the weather of their airports, and finds every pair once.

The pipeline is the example spark-weather-join.yaml. The result is compared with a join in plain Python.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

from e2e import command_line, records
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.pipelines import END_TIMEOUT_S, RunningPipeline, compare
from e2e.progress import say
from e2e.records import Record

NAME = "weather-join"
TOPIC = "topic/weather"
YEARS = 12
"""Number of years that the example adds to the times of flights."""
LEAST = 500
"""Minimum number of pairs for a meaningful test."""

Row = tuple[str, str, int, float | None]
"""Airport, departure, delay and wind speed of a flight with weather."""


def expected(flights: list[Record], weather: list[Record]) -> Counter[Row]:
    """Return the flights that have weather, with the wind speed."""
    wind = {(row["origin"], *(row[part] for part in records.HOUR)): row["wind_speed"] for row in weather}
    rows: Counter[Row] = Counter()
    for flight in flights:
        date = datetime.strptime(flight["date"], "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
        departure = date.replace(year=date.year + YEARS)
        hour = (flight["origin"], departure.year, departure.month, departure.day, departure.hour)
        if hour in wind:
            rows[flight["origin"], departure.strftime("%Y-%m-%d %H:%M:%S"), flight["delay"], wind[hour]] += 1
    return rows


def is_exact(kubernetes: Kubernetes, image: str, sent: list[Record], weather: list[Record]) -> None:
    """Send the weather, and join it with the flights that `brokers.send` has sent."""
    document = {"apiVersion": "raptormq.io/v1alpha1", "kind": "Topic", "metadata": {"name": "weather"}}
    topic = document | {"spec": {"clusterRef": {"name": "demo"}}}
    kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=json.dumps(topic))
    kubernetes.wait_ready(TOPIC, namespace=NAMESPACE, timeout=60)
    pipeline = RunningPipeline(kubernetes, NAME)
    pipeline.start("spark-weather-join.yaml", image)
    command_line.produce(kubernetes, "demo", "weather", {str(n): row for n, row in enumerate(weather)})
    wanted = expected(sent, weather)
    if wanted.total() < LEAST:
        raise Failed(f"the records have only {wanted.total()} flights with weather, wanted {LEAST}")
    found: Counter[Row] = Counter()

    def has_all() -> bool:
        if not pipeline.has_read_everything() or pipeline.offsets_read("weather") < len(weather):
            return False
        found.clear()
        found.update(
            (row["airport"], row["departure"][:19], row["delay"], row["wind_speed"])
            for row in pipeline.parquet("joined")
        )
        return found.total() >= wanted.total()

    kubernetes.wait_until("every pair", has_all, END_TIMEOUT_S)
    compare("flights with weather", found, wanted)
    say(f"{found.total()} flights have their weather, each once")
    pipeline.goes()
