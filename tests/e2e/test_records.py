"""The figures that Spark has to reach, and the records in the form in which they are sent."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from e2e import records
from e2e.records import Figures


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
