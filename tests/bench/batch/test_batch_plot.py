"""The picture: two files, the same each time, also of few results."""

from __future__ import annotations

from pathlib import Path

from bench.batch.plan import PLAN
from bench.batch.plot import draw
from tests.bench.batch.batch_runs import run

PNG_MAGIC = b"\x89PNG"


def test_the_same_results_give_the_same_picture(tmp_path: Path) -> None:
    runs = [run(workload, system) for workload, systems in PLAN.items() for system in systems]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        draw(runs, tmp_path / name, "batch")
    assert (tmp_path / "first/batch.png").read_bytes().startswith(PNG_MAGIC)
    svg = (tmp_path / "first/batch.svg").read_text(encoding="utf-8")
    assert svg == (tmp_path / "second/batch.svg").read_text(encoding="utf-8")
    assert "<svg" in svg


def test_nothing_measured_is_an_empty_picture(tmp_path: Path) -> None:
    draw([], tmp_path, "batch")
    assert (tmp_path / "batch.svg").exists()
