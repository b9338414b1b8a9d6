"""Where the log of a group begins: the leader decides, and a member whose log begins later does not lead."""

from __future__ import annotations

from itertools import count

import pytest

from raptormq.raft import Begin, LostRange, ProposalRefused, Role, Status, TransferLeadership
from tests.broker.replication.group import HEARTBEAT_MS, SHORTENED_WAIT_MS, TICK_MS, Group, Member, messages_of
from tests.broker.replication.simulation import retire, shorten
from tests.broker.replication.test_group_member import followers, formed, hand_over, run
from tests.broker.replication.test_start_over import fill
from tests.storage.stores import SEGMENT_BYTES

WAIT_TICKS = SHORTENED_WAIT_MS // TICK_MS


async def filled(group: Group) -> tuple[Member, Member, Member]:
    """Return the leader and the followers of a group whose log has several segments on all members."""
    leader = await formed(group)
    await fill(group, leader)
    await group.calm(group.is_whole)
    first, second = followers(group)
    return leader, first, second


async def occupy(member: Member, ratio: float) -> None:
    """Let the files of others occupy the volume of a member, so that ``ratio`` of it is used, and let retention run."""
    await member.clean()
    member.volume.capacity = int(member.volume.used() / ratio)
    await member.clean()


def status_of(member: Member) -> Status:
    assert member.member is not None
    status = member.member.status()
    assert status is not None
    return status


def begin_of(member: Member) -> Begin:
    return status_of(member).begin


def test_follower_short_of_disk_keeps_what_its_leader_has() -> None:
    async def scenario() -> None:
        group = Group(1)
        leader, first, _ = await filled(group)
        await occupy(first, 0.88)
        assert first.store.start_offset == leader.store.start_offset == 0
        assert not first.store.is_volume_full, "diskSpaceWarningLevelRatio is 0.9"
        await hand_over(group, first)
        assert messages_of(first) == group.acknowledged

    run(scenario())


def test_followers_delete_what_the_leader_has_deleted() -> None:
    async def scenario() -> None:
        group = Group(2)
        leader, first, second = await filled(group)
        await retire(leader)
        for each in (first, second):
            await retire(each)
            assert each.store.start_offset == 0, "the decision has not arrived"
        await group.pass_time(5)
        for each in (first, second):
            await retire(each)
            assert each.store.start_offset == leader.store.start_offset > 0

    run(scenario())


def test_begin_of_the_group_survives_restarts() -> None:
    async def scenario() -> None:
        group = Group(3)
        leader, first, second = await filled(group)
        await retire(leader)
        await group.pass_time(5)
        await retire(first)
        term, begin = begin_of(first)
        assert begin == leader.store.start_offset
        for each in (leader, first, second):
            each.kill(power=True)
        for each in (first, second):
            each.start()
            assert begin_of(each) == (term, begin)
        await group.calm(group.is_whole)
        await hand_over(group, first)
        assert begin_of(first).offset == begin
        assert begin_of(first).term > term

    run(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_member_with_a_shortened_log_is_not_elected(seed: int) -> None:
    async def scenario() -> None:
        group = Group(10 + seed)
        leader, first, second = await filled(group)
        await shorten(first)
        leader.kill()
        ticks = count()
        while group.leader is None:
            assert next(ticks) < WAIT_TICKS
            await group.pass_time(1)
        assert group.leader is second
        assert messages_of(second) == group.acknowledged

    run(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_member_that_does_not_know_that_its_log_is_shortened_gets_no_vote(seed: int) -> None:
    """Such a member comes from version 0.2.0, which deleted segments on its own."""

    async def scenario() -> None:
        group = Group(20 + seed)
        leader, first, second = await filled(group)
        await shorten(first)
        first.kill()
        files = first.files()
        state = files.load()
        files.save(state.hard_state._replace(begin=Begin()), state.entries, sync_flush=False)
        leader.kill()
        first.start()
        assert begin_of(first) == (0, first.store.start_offset)
        await group.pass_time(WAIT_TICKS // 2)
        assert group.leader is second

    run(scenario())


def test_leadership_is_not_transferred_to_a_member_with_a_shortened_log() -> None:
    async def scenario() -> None:
        group = Group(4)
        leader, first, second = await filled(group)
        await shorten(first)
        await group.pass_time(5)
        assert leader.member is not None
        reason = (
            f"the log of {first.id} begins at {first.store.start_offset}, and that of the group at 0: consumers would"
        )
        with pytest.raises(ProposalRefused, match=reason):
            leader.member.propose(TransferLeadership(first.id))
        await hand_over(group, second)

    run(scenario())


def test_shortened_member_leads_when_there_was_no_leader_for_long() -> None:
    async def scenario() -> None:
        group = Group(5)
        leader, first, second = await filled(group)
        for each in (first, second):
            await shorten(each)
        start = first.store.start_offset
        leader.kill()
        await group.pass_time(WAIT_TICKS // 2)
        assert [each for each in group.alive if status_of(each).role is Role.LEADER] == []
        await group.pass_time(WAIT_TICKS)
        new = group.leader
        assert new is not None
        for each in (first, second):
            assert begin_of(each).offset == start
        assert status_of(new).lost == LostRange(0, start)
        new.kill()
        new.start()
        assert status_of(new).lost == LostRange(0, start), "it is known after a restart"

    run(scenario())


def test_lost_range_is_over_when_retention_has_passed_it() -> None:
    async def scenario() -> None:
        group = Group(6)
        leader, first, second = await filled(group)
        for each in (first, second):
            await shorten(each)
        leader.kill()
        await group.pass_time(2 * WAIT_TICKS)
        new = group.leader
        assert new is not None
        await fill(group, new)
        await retire(new)
        await group.pass_time(5)
        assert status_of(new).lost is None

    run(scenario())


def test_follower_with_a_full_volume_copies_nothing_and_votes() -> None:
    async def scenario() -> None:
        group = Group(7)
        leader, first, second = await filled(group)
        await occupy(first, 0.95)
        assert first.store.is_volume_full
        await group.pass_time(2)
        end = first.store.end_offset
        for _ in range(5):
            group.send(leader)
            await group.pass_time(2)
        assert first.store.end_offset == end < leader.store.end_offset
        assert leader.store.confirmed_offset == leader.store.end_offset, "the other follower has it"
        group.tick()
        await group.settle()
        sizes = [len(frame[0]) for _, to, frame in group.network if to == first.id]
        assert sizes, "the leader sends heartbeats"
        assert max(sizes) < SEGMENT_BYTES // 2, "the leader does not repeat what the follower does not take"
        second.kill()
        second.start()
        assert [each.active for each in status_of(leader).members if each.id == first.id] == [True]
        await group.make_room()
        await group.calm(group.is_whole)
        assert messages_of(first) == group.acknowledged

    run(scenario())


def test_leader_with_a_longer_log_than_the_group_changes_nothing_for_the_others() -> None:
    async def scenario() -> None:
        group = Group(9)
        leader, first, second = await filled(group)
        await retire(leader)
        await group.pass_time(5)
        await retire(first)
        begin = leader.store.start_offset
        await hand_over(group, second)
        assert second.store.start_offset == 0
        await group.pass_time(5)
        assert {begin_of(each).offset for each in group.alive} == {begin}
        await hand_over(group, first)

    run(scenario())


def test_voter_that_missed_a_decision_elects_a_member_that_has_followed_it() -> None:
    async def scenario() -> None:
        group = Group(30)
        leader, first, second = await filled(group)
        group.cut_off(second)
        group.send(leader)
        await group.pass_time(3)
        await retire(leader)
        await group.pass_time(3)
        await retire(first)
        assert first.store.start_offset == leader.store.start_offset > begin_of(second).offset
        leader.kill()
        group.cut.clear()
        await group.pass_time(WAIT_TICKS // 2)
        assert group.leader is first, "the other one lacks a message"

    run(scenario())


@pytest.mark.parametrize("old", [{"n0"}, {"n1", "n2"}, {"n0", "n1", "n2"}])
def test_members_of_two_versions_form_a_group(old: set[str]) -> None:
    async def scenario() -> None:
        group = Group(8)
        group.old = old
        await filled(group)
        for _ in range(3):
            await hand_over(group, followers(group)[0])
        leader = group.leader
        assert leader is not None
        await fill(group, leader)
        await group.calm(group.is_whole)
        assert all(messages_of(each) == group.acknowledged for each in group.alive)
        if leader.id in old:
            others = [each for each in group.alive if each is not leader]
            await retire(leader)
            await group.pass_time(5)
            for each in others:
                await retire(each)
                assert each.store.start_offset == 0, "the leader does not say what may be deleted"
        group.old = set()
        leader.kill()
        await group.pass_time(20 * HEARTBEAT_MS // TICK_MS)
        assert group.leader is not None

    run(scenario())
