"""The leader's Lease: one holder at a time. It is taken over only if its record has not changed for its whole
duration.
"""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest

from raptormq_operator.kube import lease
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.lease import LEASE_DURATION_S, RENEW_DEADLINE_S, Candidate, Lease, LeaseLost
from raptormq_operator.manifests.metadata import Manifest
from tests.operator.fake_kube import FakeKube

PLACE = ("Lease", "raptormq", "raptormq-operator")


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Contest:
    """Two candidates with the same API, each with its own clock."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.clocks = {name: Clock() for name in "ab"}
        self.leases = {
            name: Lease(self.kube, Candidate(PLACE[1], PLACE[2], name), monotonic=clock, now=lambda: "t")
            for name, clock in self.clocks.items()
        }

    async def turn(self, name: str, after: float = 0.0) -> bool:
        self.clocks[name].now += after
        return await self.leases[name].try_once()

    @property
    def holder(self) -> str:
        found: str = self.kube.objects[PLACE]["spec"]["holderIdentity"]
        return found


async def test_the_first_one_leads_and_the_second_waits() -> None:
    contest = Contest()
    assert await contest.turn("a")
    assert not await contest.turn("b")
    assert contest.holder == "a"


async def test_a_holder_that_renews_keeps_it_for_ever() -> None:
    contest = Contest()
    await contest.turn("a")
    for _ in range(10):
        assert not await contest.turn("b", after=LEASE_DURATION_S - 1)
        assert await contest.turn("a", after=LEASE_DURATION_S - 1)
    assert contest.kube.objects[PLACE]["spec"]["leaseTransitions"] == 1


async def test_a_silent_holder_is_replaced_after_the_whole_duration_by_the_candidates_clock() -> None:
    contest = Contest()
    await contest.turn("a")
    assert not await contest.turn("b")
    assert not await contest.turn("b", after=LEASE_DURATION_S - 0.1)
    assert await contest.turn("b", after=0.2)
    assert contest.holder == "b"
    assert not await contest.turn("a")


async def test_a_released_lease_is_free_at_once() -> None:
    contest = Contest()
    await contest.turn("a")
    await contest.leases["b"].release()
    assert contest.holder == "a", "only the holder can release"
    await contest.leases["a"].release()
    assert await contest.turn("b")


async def test_of_two_that_take_it_at_once_one_gets_it() -> None:
    contest = Contest()
    outcomes = await asyncio.gather(contest.turn("a"), contest.turn("b"))
    assert sorted(outcomes) == [False, True]


def without_waiting(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Advance the clock instead of waiting."""

    async def pass_time(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(asyncio, "sleep", pass_time)


async def test_who_finds_another_holder_is_no_longer_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = Contest()
    await contest.turn("a")
    contest.kube.objects[PLACE]["spec"]["holderIdentity"] = "b"
    without_waiting(monkeypatch, contest.clocks["a"])
    with pytest.raises(LeaseLost, match="another operator"):
        await contest.leases["a"].keep()


async def test_who_cannot_renew_gives_up_before_anyone_may_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = Contest()
    await contest.turn("a")
    monkeypatch.setattr(contest.kube, "replace", AsyncMock(side_effect=KubeError(0, "no answer")))
    without_waiting(monkeypatch, contest.clocks["a"])
    with pytest.raises(LeaseLost, match="could not be renewed"):
        await contest.leases["a"].keep()
    assert contest.clocks["a"].now <= RENEW_DEADLINE_S < LEASE_DURATION_S


async def test_the_deadline_counts_from_the_request_and_not_from_its_late_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contest = Contest()
    clock, replace = contest.clocks["a"], contest.kube.replace
    await contest.turn("a")
    renewed: list[float] = []

    async def answer_late(manifest: Manifest) -> Manifest:
        if renewed:
            raise KubeError(0, "no answer")
        renewed.append(clock.now)
        found = await replace(manifest)
        clock.now += 4.9
        return found

    monkeypatch.setattr(contest.kube, "replace", answer_late)
    without_waiting(monkeypatch, clock)
    with pytest.raises(LeaseLost, match="could not be renewed"):
        await contest.leases["a"].keep()
    assert clock.now - renewed[0] <= RENEW_DEADLINE_S


async def test_waiting_for_the_lease_outlasts_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = Contest()
    create = contest.kube.create
    monkeypatch.setattr(
        contest.kube, "create", AsyncMock(side_effect=[KubeError(500, "later"), KubeError(0, "no answer")])
    )
    clock = contest.clocks["a"]

    async def pass_time(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 3:
            monkeypatch.setattr(contest.kube, "create", create)

    monkeypatch.setattr(asyncio, "sleep", pass_time)
    await contest.leases["a"].acquire(AsyncMock())
    assert (contest.holder, contest.leases["a"].fault) == ("a", None)


async def test_who_could_not_do_the_work_leaves_the_lease_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = Contest()
    fit = AsyncMock(side_effect=[KubeError(403, "it sees nothing"), KubeError(403, "it sees nothing"), None])
    seen: list[tuple[str | None, bool]] = []

    async def pass_time(_: float) -> None:
        seen.append((contest.leases["a"].fault, PLACE in contest.kube.objects))

    monkeypatch.setattr(asyncio, "sleep", pass_time)
    await contest.leases["a"].acquire(fit)
    assert seen == [("it sees nothing", False)] * 2
    assert contest.holder == "a"


async def test_a_release_does_not_wait_for_an_api_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = Contest()
    await contest.turn("a")

    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(contest.kube, "get", hangs)
    monkeypatch.setattr(lease, "RELEASE_S", 0.0)
    await contest.leases["a"].release()
