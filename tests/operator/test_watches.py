"""Whether a process receives the events of its objects."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq_operator.kube.reflector import WatchState
from raptormq_operator.watches import BEGINS_S, BLIND_S, HANGS_S, LASTS_S, Watches


@dataclass
class Watch:
    state: WatchState

    async def run(self) -> None: ...


class Process:
    """Two namespaces, and one kind of child objects."""

    def __init__(self) -> None:
        self.now = 0.0
        self.first, self.second, self.child = (WatchState(name, 0.0) for name in ("first", "second", "child"))
        self.watches = Watches([Watch(self.first), Watch(self.second)], [Watch(self.child)], lambda: self.now)

    def see(self) -> None:
        for state in (self.first, self.second, self.child):
            state.synced = True
            state.runs(self.now)


def test_one_namespace_is_enough_to_see_something() -> None:
    process = Process()
    process.see()
    process.first.fails(0.0, "it is forbidden")
    process.now = 10 * BLIND_S
    assert not process.watches.blind()
    process.second.fails(process.now, "it is forbidden, too")
    process.now += BLIND_S - 1
    assert not process.watches.blind()
    process.now += 1
    assert process.watches.blind()
    process.first.runs(process.now)
    assert not process.watches.blind()


def test_children_that_are_not_seen_keep_the_lease() -> None:
    process = Process()
    process.see()
    process.child.fails(0.0, "it is forbidden")
    process.now = LASTS_S
    assert not process.watches.blind()
    assert process.watches.faults() == ["watch of child: it is forbidden"]


def test_a_beginning_may_take_longer() -> None:
    process = Process()
    process.first.fails(0.0, "not found")
    process.now = BEGINS_S - 1
    assert not process.watches.blind()
    process.now = BEGINS_S
    assert process.watches.blind()


def test_what_fails_for_a_moment_is_nobodys_business() -> None:
    process = Process()
    process.see()
    process.first.fails(0.0, "reset")
    process.first.fails(LASTS_S - 1, "reset")
    process.now = LASTS_S - 1
    assert process.watches.faults() == []
    process.now = LASTS_S
    assert process.watches.faults() == ["watch of first: reset"]


def test_who_fails_does_not_hang() -> None:
    process = Process()
    process.see()
    for state in (process.first, process.child):
        state.fails(HANGS_S - 1, "refused")
    process.now = HANGS_S
    assert process.watches.hung() == ["watch of second hangs"]
