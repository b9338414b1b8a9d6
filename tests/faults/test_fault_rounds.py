"""Six rounds of faults on a network of namespaces. `python -m tests.faults.fault_rounds` and `make soak` run more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import fault_rounds

SEED = 22
"""A seed whose first six faults affect the leader in four ways. A failure prints the faults."""


@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_in_rounds_of_faults(tmp_path: Path) -> None:
    result = await fault_rounds.run(tmp_path, SEED, fault_rounds.chosen(SEED, 6))
    assert result.violations == [], [each.fault for each in result.rounds]
    assert result.acknowledged >= 6 * 100
    assert result.empty >= 6 * 10


def test_the_report_has_every_fault() -> None:
    rounds = [fault_rounds.Round("kill leader", 5.0, 100, 3, gap) for gap in (1.0, 2.0, 4.0)]
    page = fault_rounds.report(fault_rounds.Result(7, rounds, 300, lost=["queue 1: 17"]))
    assert "| 3 | 300 | 1 | 0 | 0 | 0 | 0 | 0 |" in page
    assert "| kill leader | 3 | 2.00 | 4.00 |" in page
    assert "median 2.00, p99 4.00" in " ".join(page.split())
