"""Test records, and reference figures that Spark must reproduce exactly.

A record is a flight with date, origin, destination, delay in minutes and distance in miles, or the weather of an hour
at an airport of New York, from ../shared/data next to the checkout. If that folder does not exist, flights are derived
from the lines of Python's standard library, as in `make demo`. The origin is the package, or one of the airports for
every twentieth line; the delay is the length of the line; the distance is the line number. They last three months, like
the flights of the folder. In this case the weather is generated.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.source_lines import library_files
from e2e.errors import Failed
from e2e.progress import say

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FLIGHTS = DATA / "flights-20k.json.gz"
WEATHER = DATA / "nyc-weather-2013.csv.gz"
COUNT = 20_000
AIRPORTS = ("EWR", "JFK", "LGA")
"""Airports with weather records."""
_MINUTES_APART = 6
"""Minutes between two derived flights. Senders leave out a broker that is down, so its queues may end with the first
half of the flights. The half must be shorter than the delay of the watermark of the examples, which is 60 days.
"""
HOUR = ("year", "month", "day", "hour")
"""Fields of the local time in a weather record."""
MONTHS = 3
"""Last month of the weather. The flights are from the first months of a year, too."""

Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Figures:
    """Compared figures of an origin. The mean delay is the exact fraction delay / flights."""

    flights: int
    delay: int
    distance: int


def read() -> list[Record]:
    """Return the records in order. The number of a record is its index in this list."""
    if FLIGHTS.exists():
        with gzip.open(FLIGHTS) as file:
            flights: list[Record] = json.load(file)
        return flights
    lines = itertools.islice(_library_records(), COUNT)
    return [record | _flight(number) for number, record in enumerate(lines)]


def weather() -> list[Record]:
    """Return the weather by airport and hour. The wind speed is in miles per hour, or None."""
    if WEATHER.exists():
        with gzip.open(WEATHER, "rt") as file:
            rows = [row for row in csv.DictReader(file) if int(row["month"]) <= MONTHS]
        return [
            {"origin": row["origin"], "wind_speed": None if row["wind_speed"] == "NA" else float(row["wind_speed"])}
            | {part: int(row[part]) for part in HOUR}
            for row in rows
        ]
    days = itertools.product(AIRPORTS, range(1, MONTHS + 1), range(1, 29), range(24))
    return [
        {"origin": origin, "wind_speed": hour / 2, "year": 2013, "month": month, "day": day, "hour": hour}
        for origin, month, day, hour in days
    ]


def figures(records: Iterable[Record]) -> dict[str, Figures]:
    """Return the figures by origin."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records:
        row = sums[record["origin"]]
        row[0] += 1
        row[1] += record["delay"]
        row[2] += record["distance"]
    return {origin: Figures(*row) for origin, row in sums.items()}


def packed(records: list[Record]) -> bytes:
    """Return the records in the format of the sender: a gzipped JSON array."""
    return gzip.compress(json.dumps(records).encode(), mtime=0)


def check(found: Iterable[Record], sent: list[Record]) -> None:
    """Check that every record was read as it was sent. A record whose response was lost was sent again, and may be read
    twice.

    Raises:
        Failed: A record is missing or differs.
    """
    copies: Counter[int] = Counter()
    for record in found:
        number = record.pop("number")
        if number >= len(sent) or record != sent[number]:
            raise Failed(f"record {number} is {record}, which was not sent")
        copies[number] += 1
    missing = [number for number in range(len(sent)) if not copies[number]]
    if missing:
        raise Failed(f"{len(missing)} acknowledged records are lost: {missing[:20]}")
    say(f"{copies.total() - len(sent)} copies of records whose response was lost or not SEND_OK")


def _flight(number: int) -> Record:
    """Return the flight that is derived from a line."""
    date = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(minutes=_MINUTES_APART * number)
    airport = {} if number % 20 else {"origin": AIRPORTS[number // 20 % len(AIRPORTS)]}
    return {"date": date.strftime("%Y/%m/%d %H:%M"), "destination": "line", **airport}


def _library_records() -> Iterator[Record]:
    for file in library_files(Path(sysconfig.get_path("stdlib"))):
        for number, line in enumerate(file.lines(), start=1):
            yield {"origin": file.package, "delay": len(line), "distance": number}
