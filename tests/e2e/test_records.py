"""The figures that Spark must compute, and the encoding of the records."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from e2e import records, weather_join
from e2e.errors import Failed
from e2e.records import Figures

SENT = [{"origin": "ABQ", "delay": number} for number in range(3)]


def found(*numbers: int) -> list[dict[str, Any]]:
    return [{"number": number, **SENT[number]} for number in numbers]


def test_figures_are_sums_by_origin() -> None:
    rows = [
        {"origin": "DTW", "delay": 66, "distance": 1750},
        {"origin": "HNL", "delay": 95, "distance": 2399},
        {"origin": "DTW", "delay": -5, "distance": 407},
    ]
    assert records.figures(rows) == {"DTW": Figures(2, 61, 2157), "HNL": Figures(1, 95, 2399)}


def test_without_the_data_folder_source_lines_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FLIGHTS", tmp_path / "missing.json.gz")
    rows = records.read()
    assert len(rows) == records.COUNT
    figures = records.figures(rows)
    assert len(figures) > 10
    assert Counter(row["origin"] for row in rows) == {origin: sums.flights for origin, sums in figures.items()}


def test_the_sender_gets_the_same_records() -> None:
    rows = [{"origin": "DTW", "delay": 66, "distance": 1750}]
    assert json.loads(gzip.decompress(records.packed(rows))) == rows
    assert records.packed(rows) == records.packed(rows), "the same bytes each time"


def test_without_the_data_folder_some_flights_have_weather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLIGHTS", "WEATHER"):
        monkeypatch.setattr(records, name, tmp_path / "missing.gz")
    weather = records.weather()
    hours = {(row["origin"], *(row[part] for part in records.HOUR)) for row in weather}
    assert len(hours) == len(weather)
    assert weather_join.expected(records.read(), weather).total() > weather_join.LEAST


def test_every_record_once_or_more_is_all_there_has_to_be() -> None:
    records.check(found(2, 0, 1, 1), SENT)


def test_a_lost_record_is_noticed() -> None:
    with pytest.raises(Failed, match=r"1 acknowledged records are lost: \[1\]"):
        records.check(found(0, 2, 2), SENT)


def test_a_record_that_was_not_sent_is_noticed() -> None:
    with pytest.raises(Failed, match="which was not sent"):
        records.check([*found(0, 1), {"number": 2, "origin": "ABQ", "delay": 7}], SENT)
