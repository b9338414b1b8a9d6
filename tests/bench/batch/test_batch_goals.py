"""Ratios and limits of medians, computed only if both sides were measured."""

from __future__ import annotations

import pytest

from bench.batch.goals import Outcome, outcomes
from bench.batch.plan import FULL_SPEED, PUBLISH, QUEUES_10000
from bench.batch.result import Run
from bench.batch.systems import System
from tests.bench.batch.batch_runs import run


def by_name(runs: list[Run]) -> dict[str, Outcome]:
    return {f"{each.goal.what}, {each.goal.base.system if each.goal.base else ''}": each for each in outcomes(runs)}


def test_a_ratio_is_that_of_the_medians() -> None:
    runs = [run(PUBLISH, sent=sent, consumed=None) for sent in (300_000, 280_000, 1_000)]
    runs.append(run(PUBLISH, System.ROCKETMQ, sent=200_000, consumed=None))
    found = by_name(runs)["16 queues, publish only, sent, Apache RocketMQ 5.5.0"]
    assert (found.ours, found.base, found.compared) == (280_000, 200_000, 1.4)
    assert found.kept


@pytest.mark.parametrize(("p99", "kept"), [(50.0, True), (50.1, False)])
def test_a_largest_ratio_is_a_bound_from_above(p99: float, kept: bool) -> None:
    runs = [run(FULL_SPEED, p99=p99), run(FULL_SPEED, System.KAFKA, p99=100)]
    assert by_name(runs)["16 queues, publish p99, Apache Kafka 4.3.1"].kept is kept


def test_a_goal_of_its_own_needs_no_peer() -> None:
    found = by_name([run(FULL_SPEED)])["lag of the queues, 16 queues, "]
    assert (found.ours, found.base, found.kept) == (12.5, None, True)


def test_without_the_other_side_there_is_no_outcome() -> None:
    runs = [run(QUEUES_10000), Run(FULL_SPEED.name, System.RAPTORMQ, 1, failure="no")]
    assert by_name(runs) == {}


def test_a_peer_that_did_nothing_is_infinitely_slower() -> None:
    runs = [run(FULL_SPEED), run(FULL_SPEED, System.ROCKETMQ, consumed=0)]
    assert by_name(runs)["16 queues, consumed, Apache RocketMQ 5.5.0"].compared == float("inf")
