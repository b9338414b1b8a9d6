"""A member whose log begins after that of the group drops it and copies that of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from raptormq.broker.replication import renewal
from tests.broker.replication.group import TICK_MS, Group, Member, messages_of
from tests.broker.replication.simulation import shorten
from tests.broker.replication.test_begin import filled, occupy, status_of
from tests.broker.replication.test_group_member import hand_over, run, voters
from tests.broker.replication.test_start_over import fill

RENEWAL_MS, RETRY_MS, GIVE_UP_MS, GRANT_MS = 300, 400, 150, 500
"""Shorter times than those of a broker, because simulated time passes in small steps."""


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RETRY_MS", RETRY_MS), ("GIVE_UP_MS", GIVE_UP_MS), ("GRANT_MS", GRANT_MS)):
        monkeypatch.setattr(renewal, name, value)


async def with_shortened(seed: int, *, sync: bool = False) -> tuple[Group, Member, Member, Member]:
    """Return a group, its leader, a follower with a shortened log, which it soon drops, and the other follower."""
    group = Group(seed, sync=sync)
    group.renewal_ms = RENEWAL_MS
    leader, first, second = await filled(group)
    await shorten(first)
    await group.pass_time(5)
    assert status_of(first).shortened_by > 0
    return group, leader, first, second


def identity(member: Member) -> int:
    return member.files().load().hard_state.incarnation


def is_renewed(group: Group, member: Member) -> bool:
    return (
        group.is_whole()
        and not member.wants_restart
        and member.store.start_offset == 0
        and messages_of(member) == group.acknowledged
        and group.leader is not None
        and len(voters(group.leader)) == len(group.members)
    )


@pytest.mark.parametrize("sync", [False, True])
def test_shortened_member_copies_the_log_anew_and_may_lead_again(sync: bool) -> None:
    async def scenario() -> None:
        group, leader, first, _ = await with_shortened(1, sync=sync)
        before = identity(first)
        await group.pass_time(RENEWAL_MS // TICK_MS // 2)
        assert identity(first) == before, "it waits"
        for _ in range(10):
            group.send(leader)
            await group.pass_time(5)
        await group.calm(lambda: is_renewed(group, first))
        assert identity(first) != before
        assert first.member is not None
        assert first.member.remark == ""
        await hand_over(group, first)
        assert messages_of(first) == group.acknowledged

    run(scenario())


def test_member_keeps_its_log_without_the_setting() -> None:
    async def scenario() -> None:
        group, _, first, _ = await with_shortened(2)
        first.renewal._wait_ms = 0
        before = identity(first)
        await group.pass_time(RENEWAL_MS // TICK_MS * 4)
        assert identity(first) == before

    run(scenario())


async def stays(group: Group, member: Member, reason: str) -> None:
    """Assert that a member keeps its log for this reason while two attempts are due."""
    before = identity(member)
    await group.pass_time((RENEWAL_MS + RETRY_MS + GIVE_UP_MS + 100) // TICK_MS)
    assert identity(member) == before
    assert member.store.start_offset > 0
    assert member.member is not None
    assert reason in member.member.remark
    assert member.member.status() is not None, "it follows again"


@pytest.mark.parametrize("other", ["is down", "lacks the end", "lacks much", "is shortened more"])
def test_member_keeps_its_log_while_another_voter_does_not_have_it(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "MAX_MISSING_BYTES", 0 if other == "lacks much" else 1 << 20)

    async def scenario() -> None:
        group, leader, first, second = await with_shortened(3)
        if other == "is down":
            second.kill()
            await stays(group, first, f"{second.id} does not respond, or has lost power")
            second.start()
        elif other.startswith("lacks"):
            assert first.member is not None
            left, leave = [], first.member.withdraw

            async def noted(reason: str) -> int:
                left.append(reason)
                return await leave(reason)

            monkeypatch.setattr(first.member, "withdraw", noted)
            second.store._gate.set_full("ratio", "the disk is full")
            await group.pass_time(5)
            group.send(leader)
            await stays(group, first, f"{second.id} lacks a part of the log that {first.id} has")
            assert bool(left) is (other == "lacks the end"), "it does not leave the group in vain"
            await group.pass_time(20)
            assert leader.store.confirmed_offset == leader.store.end_offset, "first confirms it again"
            second.store._gate.clear_full("ratio")
        else:
            first.renewal._wait_ms = second.renewal._wait_ms = 0
            await fill(group, leader)
            await group.calm(group.is_whole)
            await shorten(second)
            await group.pass_time(5)
            assert second.store.start_offset > first.store.start_offset > 0
            former = identity(first), identity(second)
            first.renewal._wait_ms = second.renewal._wait_ms = RENEWAL_MS
            await group.calm(lambda: identity(second) != former[1])
            assert identity(first) == former[0], "first has more of the log than second"
        await group.calm(lambda: is_renewed(group, first))

    run(scenario())


def test_two_shortened_members_do_not_drop_their_logs_at_once() -> None:
    async def scenario() -> None:
        group, _, first, second = await with_shortened(4)
        await shorten(second)
        assert second.store.start_offset == first.store.start_offset
        ticks = 600
        while not (is_renewed(group, first) and is_renewed(group, second)):
            ticks -= 1
            assert ticks
            await group.pass_time(1)
            assert sum(each.store.end_offset > 0 for each in group.alive) >= 2
        assert messages_of(first) == messages_of(second) == group.acknowledged

    run(scenario())


def test_leader_that_is_alone_grants_nothing() -> None:
    async def scenario() -> None:
        group, leader, first, second = await with_shortened(5)
        group.cut_off(second)
        assert leader.member is not None
        verdict = leader.grants.answer(leader.member.status(), first.id, first.store.end_offset, group.now_ms)
        assert verdict.holds, "second responded just now"
        await group.pass_time(RENEWAL_MS // TICK_MS // 2)
        verdict = leader.grants.answer(leader.member.status(), first.id, first.store.end_offset, group.now_ms)
        assert not verdict.holds
        assert "1 voters have the log" in verdict.reason
        granted = leader.grants.answer(leader.member.status(), second.id, 1, group.now_ms)
        assert f"{first.id} has just been allowed" in granted.reason

    run(scenario())


def test_member_without_room_for_the_longer_log_keeps_its_own() -> None:
    async def scenario() -> None:
        group, _, first, _ = await with_shortened(6)
        await occupy(first, 0.89)
        await stays(group, first, "the disk has no room for")
        await group.calm(lambda: is_renewed(group, first))

    run(scenario())


def test_member_of_a_leader_of_an_earlier_version_keeps_its_log() -> None:
    async def scenario() -> None:
        group, leader, first, _ = await with_shortened(7)
        group.old.add(leader.id)
        await stays(group, first, "the leader is of an earlier version")

    run(scenario())


def at_leave(member: Member) -> Callable[[], bool]:
    return lambda: member.renewal._stored is not None


def at_mark(member: Member) -> Callable[[], bool]:
    return lambda: member.wants_restart


class Killed(Exception):
    """The process ends."""


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("step", ["leave", "mark", *range(12)])
def test_member_that_is_killed_at_any_step_of_a_renewal_goes_on(step: str | int, power: bool) -> None:
    """A number is that of the change of the disk, counted from the start that empties the store."""

    async def scenario() -> None:
        group, leader, first, _ = await with_shortened(8, sync=True)
        reached = at_leave(first) if step == "leave" else at_mark(first)
        while not reached():
            group.tick()
            await asyncio.sleep(0)
            for each in group.alive:
                each.dispatch()
            await deliver(group)
        assert first.store.start_offset > 0
        first.kill(power=power)
        if isinstance(step, int):
            await killed_in_start(first, step, power=power)
        group.send(leader)
        await group.pass_time(3)
        await group.calm(lambda: is_renewed(group, first))
        assert not group.halted()

    run(scenario())


async def deliver(group: Group) -> None:
    while group.network:
        group.deliver(0)
        for _ in range(3):
            await asyncio.sleep(0)


async def killed_in_start(member: Member, step: int, *, power: bool) -> None:
    """Start a member, and kill it when its disk is changed for the given time."""
    volume, left = member.volume, step
    names = ("remove", "remove_tree", "sync_directory", "replace")

    def counted(name: str) -> Callable[..., object]:
        change = getattr(volume, name)

        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            if left <= 0:
                raise Killed
            left -= 1
            return change(*arguments, **more)

        return call

    for name in names:
        setattr(volume, name, counted(name))
    try:
        member.start()
    except Killed:
        member.member = None
    for name in names:
        delattr(volume, name)
    if member.member is not None:
        member.kill(power=power)
    else:
        member.volume = volume.after_power_cut(member.group.rng) if power else volume.after_kill()
        member.boot += power
