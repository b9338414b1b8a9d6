"""A few seeds in every run of the unit tests, and a check that the simulation causes its faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from raptormq.broker.replication.group_member import GroupMember
from raptormq.raft import Raft
from raptormq.storage.replica import Replica
from tests.broker.replication.group import Member
from tests.broker.replication.simulation import Simulation, SimulationFailed


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_group_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + 10):
        Simulation(seed).run()


def test_what_happens_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            happened[name] += 1
            return plain(*given, **named)

        monkeypatch.setattr(owner, name, counted)

    kinds: list[tuple[type, str]] = [
        (Replica, "truncate"), (GroupMember, "_reset"), (GroupMember, "_fail"), (GroupMember, "_learn_history"),
        (Member, "kill"),
    ]  # fmt: skip
    for owner, name in kinds:
        count(owner, name)
    for seed in range(60):
        simulation = Simulation(seed)
        simulation.run()
        happened["terms"] += len(simulation.leaders)
        happened["acknowledged"] += len(simulation.group.acknowledged)
        happened["reads"] += simulation.passed_reads
        happened["seen"] += len(simulation.seen)
    assert happened["terms"] > 80, happened
    assert happened["acknowledged"] > 400, happened
    assert happened["reads"] > 1_000, happened
    assert all(happened[name] > 2 for _, name in kinds), happened


def test_a_failure_tells_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raft, "tick", lambda raft, now_ms: 1 / 0)
    with pytest.raises(SimulationFailed, match=r"python -m tests.broker.replication.simulation --seed 7 --verbose"):
        Simulation(7).run()
