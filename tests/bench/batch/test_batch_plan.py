"""What is run, and in which order."""

from __future__ import annotations

from bench.batch.plan import FIXED, FULL_SPEED, PLAN, QUICK_PLAN, steps
from bench.batch.systems import System
from bench.batch.workload import Client


def test_the_systems_are_next_to_each_other_in_changing_order() -> None:
    both = [(step.workload, step.system) for step in steps(PLAN, 2, ["full-speed"])]
    first = [(FULL_SPEED, system) for system in (System.RAPTORMQ, System.ROCKETMQ, System.KAFKA)]
    assert both == [*first, *reversed(first)]


def test_runs_are_chosen_by_name_pattern_and_system() -> None:
    assert {step.workload.name for step in steps(PLAN, 1, ["delay-*"])} == {"delay-1", "delay-50"}
    [only] = steps(PLAN, 1, ["fixed-rate"], [System.KAFKA])
    assert (only.workload, only.system, only.round) == (FIXED, System.KAFKA, 1)
    assert list(steps(PLAN, 1, ["fixed"])) == []


def test_names_are_unique_and_our_client_runs_on_our_broker_alone() -> None:
    assert len({workload.name for workload in PLAN}) == len(PLAN)
    own = [systems for workload, systems in PLAN.items() if workload.client is Client.OWN]
    assert own
    assert set(own) == {(System.RAPTORMQ,)}
    assert set(QUICK_PLAN) <= set(PLAN)
