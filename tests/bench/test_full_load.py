"""Limits of the logs, gaps and elections of the load with retention, and what the command refuses."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bench import __main__ as program
from bench import compared_loads, replication
from bench.figure import Figure
from bench.full_load import Gaps, Terms, age_surplus, surplus

_DAY_S = 24 * 3600


def test_the_oldest_segments_beyond_the_limit_go_and_the_newest_never() -> None:
    assert surplus([10, 10, 10], 30) == 0
    assert surplus([10, 10, 10], 29) == 1
    assert surplus([10, 10, 10], 10) == 2
    assert surplus([10, 10, 10], 0) == 2
    assert surplus([], 0) == 0


def test_segments_beyond_the_limit_are_older_than_a_day_afterwards(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number * 100:020}").write_bytes(bytes(100))
    (tmp_path / "epochs").write_bytes(bytes(1000))
    assert age_surplus(tmp_path, 250) == 400
    old = {path.name for path in tmp_path.iterdir() if path.stat().st_mtime < time.time() - _DAY_S}
    assert old == {f"{0:020}", f"{100:020}"}


def test_a_gap_lasts_from_the_last_growth_to_the_next() -> None:
    gaps = Gaps(10.0)
    for now, acknowledged in ((10.5, 1), (11.0, 5), (13.0, 5), (14.0, 6), (14.5, 7)):
        gaps.see(now, acknowledged)
    assert gaps.take() == 3.0
    gaps.see(15.5, 7)
    assert gaps.take() == 1.0
    gaps.see(16.5, 7)
    assert gaps.take() == 2.0


def test_the_election_after_the_loss_of_the_leader_is_not_counted() -> None:
    terms = Terms(3)
    terms.see(3)
    assert terms.unwanted == 0
    terms.expect(5)
    terms.see(5)
    assert terms.unwanted == 0
    terms.see(7)
    terms.see(8)
    assert terms.unwanted == 3


def test_it_is_measured_only_on_request() -> None:
    assert "full-load" not in replication.chosen(())
    assert {*replication.chosen(()), "full-load"} == set(replication.FIGURES)
    assert replication.chosen(("full-load", "rate")) == ["rate", "full-load"]


def test_too_little_disk_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=29e9))
    refused = CliRunner().invoke(program.main, ["replication", "--only", "full-load"])
    assert refused.exit_code == 2
    assert "has 29 GB free and full-load needs 30" in refused.output


def test_its_options_are_refused_without_it() -> None:
    refused = CliRunner().invoke(program.main, ["replication", "--only", "rate", "--minutes", "2"])
    assert refused.exit_code == 2
    assert "--minutes and --log-gb are for --only full-load" in refused.output


@pytest.mark.parametrize(("elections", "code"), [(0, 0), (1, 1)])
def test_a_figure_that_is_not_kept_is_an_error_with_check(
    monkeypatch: pytest.MonkeyPatch, elections: int, code: int
) -> None:
    plans = []

    def measure(plan: compared_loads.Plan, only: tuple[str, ...]) -> list[Figure]:
        plans.append((plan.minutes, plan.log_limit_bytes, only))
        return [Figure("elections", elections, "elections", 1)]

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=60e9))
    monkeypatch.setattr(replication, "measure", measure)
    arguments = ["replication", "--only", "full-load", "--minutes", "2.5", "--log-gb", "2"]
    assert CliRunner().invoke(program.main, arguments).exit_code == 0
    assert CliRunner().invoke(program.main, [*arguments, "--check"]).exit_code == code
    assert plans == [(2.5, 2_000_000_000, ("full-load",))] * 2
