"""The table of a benchmark: medians, and the ratio to the peer."""

from __future__ import annotations

from bench.client_load import Layout, Measurement
from bench.client_load_table import load_name, table
from bench.load_run import LoadResult
from bench.peers import System


def measurement(system: System, number: int, messages: int) -> Measurement:
    result = LoadResult("sync:32", messages, 0, 10.0, 2.0, 20.0, messages * 30e-6, 50_000_000, 20_000_000)
    return Measurement(system, Layout.SHARED, number, result)


def cells(text: str, system: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if f"| {system} |" in line]
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_the_median_of_the_rounds_counts() -> None:
    runs = [measurement(System.ROCKETMQ, number, messages) for number, messages in enumerate((80_000, 90_000, 10_000))]
    assert cells(table(runs), System.ROCKETMQ) == ["8,000", "2.0", "20.0", "30.0", "50", "20"]


def test_the_ratio_is_ours_over_the_peers() -> None:
    runs = [measurement(System.ROCKETMQ, 1, 80_000), measurement(System.RAPTORMQ, 1, 100_000)]
    assert cells(table(runs), "**ratio**")[0] == "**1.25**"


def test_one_system_alone_has_no_ratio() -> None:
    assert "ratio" not in table([measurement(System.RAPTORMQ, 1, 100_000)])


def test_loads_are_named_in_words() -> None:
    assert load_name("batch:8:32") == "`send(list)` of 32, 8 threads"
    assert load_name("async:2:1024") == "async, 1024 under way"
