"""A few seeds in every run of the unit tests, and a check that the simulation causes its faults."""

from __future__ import annotations

from collections import Counter

import pytest

from raptormq.raft import Install, Raft, Reset, Truncate
from tests.raft.simulation import Disk, Node, Simulation, SimulationFailed


def test_a_group_keeps_its_promises() -> None:
    for seed in range(40):
        Simulation(seed).run()


def test_what_happens_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: Counter[str] = Counter()
    do, start, receive = Disk.do, Node.start, Node.receive

    def counted_do(disk: Disk, effect: object) -> None:
        happened["truncated"] += isinstance(effect, Truncate)
        happened["reset"] += isinstance(effect, Reset)
        do(disk, effect)

    def counted_start(node: Node) -> None:
        start(node)
        assert node.raft is not None
        happened["recovering"] += node.raft.status().recovering

    def counted_receive(node: Node, message: object) -> None:
        happened["installed"] += isinstance(message, Install)
        receive(node, message)  # type: ignore[arg-type]

    monkeypatch.setattr(Disk, "do", counted_do)
    monkeypatch.setattr(Node, "start", counted_start)
    monkeypatch.setattr(Node, "receive", counted_receive)
    for seed in range(60):
        simulation = Simulation(seed)
        simulation.run()
        happened["terms"] += len(simulation.leaders)
        happened["acknowledged"] += len(simulation.acknowledged)
        happened["changes"] += sum(entry.configuration is not None for entry in simulation.truth_entries[1:])
    assert happened["terms"] > 120
    assert happened["acknowledged"] > 800
    for kind in ("truncated", "reset", "recovering", "installed", "changes"):
        assert happened[kind] > 2, happened


def test_a_failure_tells_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raft, "tick", lambda raft, now_ms: 1 / 0)
    with pytest.raises(SimulationFailed, match=r"python -m tests.raft.simulation --seed 7 --verbose"):
        Simulation(7).run()
