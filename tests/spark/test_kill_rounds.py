"""Four rounds of kills of a Spark driver and what it needs; more by `python -m tests.spark.kill_rounds`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.spark import kill_rounds

FAULTS = (kill_rounds.worker, kill_rounds.leader, kill_rounds.jvm, kill_rounds.all_members)
"""Only one of them needs a new driver, whose start takes most of the time."""


@pytest.mark.spark
@pytest.mark.timeout(1800)
async def test_every_message_is_copied_once_through_rounds_of_kills(tmp_path: Path) -> None:
    result = await kill_rounds.run(tmp_path, 5, FAULTS)
    assert result.violations == [], result.rounds
    assert result.once == result.source
    assert result.source.keys() == {b"%d" % number for number in range(len(FAULTS) * kill_rounds.IDS_PER_ROUND)}
    assert result.starts >= 2


def test_the_report_says_what_must_not_be() -> None:
    source = Counter([b"1", b"2", b"3"])
    result = kill_rounds.Result(7, [], 1, source, Counter([b"1", b"1", b"2"]), Counter([b"1", b"3", b"3", b"4"]))
    assert result.violations == []
    result.compare("round 1")
    assert result.violations == [
        "round 1: copied-once: 3 is missing",
        "round 1: copied: 2 is missing",
        "round 1: copied: 4 was never sent",
        "round 1: copied-once: 1 is there again",
    ]
    assert "at least once: 4 messages, of them 2 again\n4 violations" in kill_rounds.report(result)
    assert kill_rounds.checksum(Counter([b"2", b"1"])) != kill_rounds.checksum(Counter([b"2", b"1", b"1"]))


def test_each_fault_comes_before_any_comes_again() -> None:
    count = len(kill_rounds.FAULTS)
    faults = kill_rounds.chosen(3, 3 * count)
    assert set(faults[:count]) == set(faults[count : 2 * count]) == set(kill_rounds.FAULTS)
    assert faults == kill_rounds.chosen(3, 3 * count) != kill_rounds.chosen(4, 3 * count)
