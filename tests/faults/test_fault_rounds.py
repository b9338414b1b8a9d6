"""Some rounds of faults of each kind. `python -m tests.faults.fault_rounds` and `make soak` run more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import group_rounds, master_rounds
from tests.faults.group_rounds import KINDS
from tests.faults.rounds import Result, Round, chosen
from tests.faults.rounds_page import with_section

SEED = 22
"""A seed whose first six faults affect the leader in four ways. A failure prints the faults."""
LOST_MACHINE_SEED = 7
"""A seed whose first fault of interleaved brokers is the loss of a machine."""


@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_in_rounds_of_faults(tmp_path: Path) -> None:
    result = await group_rounds.run(tmp_path, SEED, chosen(SEED, 6, group_rounds.FAULTS))
    assert result.violations == [], [each.fault for each in result.rounds]
    assert result.acknowledged >= 6 * 100
    assert result.empty >= 6 * 10


@pytest.mark.timeout(600)
async def test_a_group_whose_members_all_lose_power_loses_nothing_acknowledged(tmp_path: Path) -> None:
    result = await group_rounds.run(tmp_path, SEED, [group_rounds.power_cut_all], kind=KINDS["power"])
    assert result.violations == []
    assert result.acknowledged >= 100


@pytest.mark.timeout(600)
async def test_changed_users_are_those_of_all_members_after_the_loss_of_the_leader(tmp_path: Path) -> None:
    result = await group_rounds.run(tmp_path, SEED, [group_rounds.kill_leader], kind=KINDS["permissions"])
    assert result.violations == []
    assert result.changed_rights >= 10


@pytest.mark.timeout(600)
async def test_an_old_master_that_goes_on_after_the_promotion_of_its_slave_serves_nobody(tmp_path: Path) -> None:
    result = await master_rounds.run(tmp_path, SEED, 2, "promotion")
    assert result.violations == []
    assert {each.fault for each in result.rounds} == {
        "master frozen and continued", "master killed and started as a master",
    }  # fmt: skip


@pytest.mark.timeout(600)
async def test_interleaved_brokers_lose_nothing_when_a_machine_is_lost(tmp_path: Path) -> None:
    result = await master_rounds.run(tmp_path, LOST_MACHINE_SEED, 1, "interleaved")
    assert result.violations == []
    assert [each.fault for each in result.rounds] == ["machine lost with its disks"]
    assert result.acknowledged >= 100


def test_the_page_has_the_results_of_each_kind_and_keeps_those_of_others() -> None:
    rounds = [Round("kill leader", 5.0, 100, 3, gap) for gap in (1.0, 2.0, 4.0)]
    result = Result(7, rounds, 3_000, {"lost": ["queue 1: 17"], "duplicated": []})
    page = with_section("# Rounds\n", "group", "A group", Result(1, rounds, 10))
    page = with_section(page, "power", "Power", Result(1, rounds, 10))
    page = with_section(page, "group", "A group", result)
    assert "| rounds | acknowledged | lost | duplicated |\n|---|---|---|---|\n| 3 | 3,000 | 1 | 0 |" in page
    assert "--kind group --rounds 3 --seed 7`" in page
    assert page.count("| kill leader | 3 | 2.00 | 4.00 |") == 2
    assert page.index("## A group") < page.index("## Power")
    assert page.startswith("# Rounds\n")
    assert page == with_section(page, "group", "A group", result)
