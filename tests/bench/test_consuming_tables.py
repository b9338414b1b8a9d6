"""The tables of backlog and wake-up: medians, the ratio, and whether the promise is kept."""

from __future__ import annotations

import pytest

from bench import backlog, wake_up
from bench.backlog import Run
from bench.peers import System
from bench.wake_up import WakeUps


def run(system: System, seconds: float) -> Run:
    return Run(system, 1_000_000, seconds, 5.0, 200_000_000, 100_000_000)


@pytest.mark.parametrize(("ours", "ratio", "kept"), [(9.0, "1.11", "kept: yes"), (12.5, "0.80", "kept: **no**")])
def test_the_ratio_of_a_backlog_is_that_of_the_medians(ours: float, ratio: str, kept: str) -> None:
    runs = [run(System.ROCKETMQ, seconds) for seconds in (10.0, 9.0, 30.0)]
    runs += [run(System.RAPTORMQ, seconds) for seconds in (ours, ours * 2, ours / 2)]
    lines = backlog.table(runs).splitlines()
    assert "| 100,000 | 10.0 | 5.0 | 200 | 100 |" in lines[2]
    assert kept in lines[-1]
    assert f"**{ratio}**" in lines[-1]


def test_one_system_alone_has_no_ratio() -> None:
    assert "ratio" not in backlog.table([run(System.RAPTORMQ, 10.0)])


@pytest.mark.parametrize(("median", "kept"), [(4.99, "kept: yes"), (5.0, "kept: **no**")])
def test_the_median_of_a_wake_up_is_promised_of_raptormq_alone(median: float, kept: str) -> None:
    table = wake_up.table([WakeUps(System.ROCKETMQ, 9.0, 20.0), WakeUps(System.RAPTORMQ, median, 8.0)])
    theirs, ours = table.splitlines()[2:]
    assert "promised" not in theirs
    assert kept in ours
