"""The records that are sent, and the figures counted straight from them, which Spark has to reach exactly.

A record is a flight: origin, delay in minutes, distance in miles. They come from ../shared/data beside the checkout.
On a machine without that folder the lines of Python's standard library take their place, as in `make demo`: the
origin is the package, the delay the length of the line, the distance its number in the file.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.source_lines import library_files

FLIGHTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "flights-20k.json.gz"
COUNT = 20_000

Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Figures:
    """What is compared for each origin. The mean delay is exact: it is the fraction delay / flights."""

    flights: int
    delay: int
    distance: int


def read() -> list[Record]:
    """The records, in order; the number of a record is its place in this list."""
    if FLIGHTS.exists():
        with gzip.open(FLIGHTS) as file:
            flights: list[Record] = json.load(file)
        return flights
    return list(itertools.islice(_library_records(), COUNT))


def figures(records: Iterable[Record]) -> dict[str, Figures]:
    """Figures by origin."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records:
        row = sums[record["origin"]]
        row[0] += 1
        row[1] += record["delay"]
        row[2] += record["distance"]
    return {origin: Figures(*row) for origin, row in sums.items()}


def packed(records: list[Record]) -> bytes:
    """The records as the sender reads them: a JSON array, gzipped."""
    return gzip.compress(json.dumps(records).encode(), mtime=0)


def _library_records() -> Iterator[Record]:
    for file in library_files(Path(sysconfig.get_path("stdlib"))):
        for number, line in enumerate(file.lines(), start=1):
            yield {"origin": file.package, "delay": len(line), "distance": number}
