"""A member uses its store, its files and its messages so that no acknowledged record is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest

from raptormq.broker.replication.codec import decode
from raptormq.broker.tables import POP, GroupConfig, RequestMode
from raptormq.errors import DiskFull, NotLeader, OutOfResources, StorageError
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_names import TABLES_TOPIC
from raptormq.raft import ProposalRefused, Status, TransferLeadership, VoteRequest, VoteResponse
from raptormq.storage import PendingRecord
from tests.broker.replication.group import ELECTION_MS, TICK_MS, Group, Member, messages_of
from tests.storage.batch_stores import batch
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import bodies, message, read_queue


def run(scenario: Any) -> None:
    asyncio.run(scenario)


async def formed(group: Group) -> Member:
    """Form a group and return its leader."""
    group.start()
    await group.calm(group.is_whole)
    assert group.leader is not None
    return group.leader


def followers(group: Group) -> list[Member]:
    return [each for each in group.members.values() if each is not group.leader]


def followers_of(group: Group, leader: Member) -> list[Member]:
    return [each for each in group.members.values() if each is not leader]


def voters(member: Member) -> list[str]:
    status = member.member.status() if member.member is not None else None
    return status.configuration.voters() if status is not None else []


@pytest.mark.parametrize("sync", [False, True])
def test_a_message_is_acknowledged_when_a_majority_has_it(sync: bool) -> None:
    async def scenario() -> None:
        group = Group(1, sync=sync)
        leader = await formed(group)
        for each in followers(group):
            each.kill()
        group.send(leader)
        group.tick()
        await group.settle()
        assert not group.acknowledged
        follower = followers(group)[0].store
        with pytest.raises(NotLeader):
            follower.append([message("x")])
        await group.calm(lambda: bool(group.acknowledged) and group.is_whole())
        assert [messages_of(each) for each in group.members.values()] == [group.acknowledged] * 3

    run(scenario())


def test_who_waits_for_a_leader_that_is_cut_off_is_told_so() -> None:
    async def scenario() -> None:
        group = Group(2)
        leader = await formed(group)
        told: list[Any] = []
        group.cut_off(leader)
        end = leader.store.append([message("lonely")]).end_offset
        leader.store.on_confirmed(end, told.append)
        await group.pass_time(40)
        assert isinstance(told[0], NotLeader)
        new = group.leader
        assert new is not None
        assert new is not leader
        group.send(new)
        await group.calm(group.is_whole)
        assert "lonely" not in messages_of(leader), "the tail that no other member had is truncated"
        assert messages_of(leader) == group.acknowledged

    run(scenario())


@pytest.mark.parametrize("place", ["length", "body"])
def test_a_wiped_member_waits_for_the_repair_of_a_damaged_leader_which_keeps_leading(place: str) -> None:
    async def scenario() -> None:
        group = Group(3)
        leader = await formed(group)
        for _ in range(20):
            group.send(leader)
        await group.calm(group.is_whole)
        damaged: list[tuple[int, int]] = []
        assert leader.member is not None
        leader.member.listeners = replace(
            leader.member.listeners, damage_found=lambda offset, size: damaged.append((offset, size))
        )
        wiped = followers(group)[0]
        wiped.kill()
        wiped.volume = MemoryFileSystem()
        at = leader.replica.align(0, 1000)
        file = leader.volume.open(f"/store/commitlog/{0:020d}")
        position, size = (at, 4) if place == "length" else (at + 88, 1)
        before = bytes(file.read_at(position, size))
        file.write_at(position, [b"\xff" * size], size)

        def is_refused() -> bool:
            return wiped.member is not None and wiped.member.refused is not None

        await group.calm(lambda: bool(damaged) if place == "length" else is_refused())
        assert group.leader is leader
        assert wiped.member is not None
        if place == "body":
            assert wiped.member.refused is not None
            assert (wiped.member.refused.leader, wiped.member.refused.begin) == (leader.id, at)
            assert f"member {leader.id} has sent a damaged record at offset {at}" in wiped.member.remark
        else:
            assert all(offset <= at < offset + length for offset, length in damaged)
        file.write_at(position, [before], size)
        await group.calm(lambda: group.is_whole() and messages_of(wiped) == group.acknowledged)
        assert not is_refused()
        assert [each.member.halted for each in group.members.values() if each.member is not None] == ["", "", ""]

    run(scenario())


def test_a_wiped_member_gets_everything_again() -> None:
    async def scenario() -> None:
        group = Group(3)
        leader = await formed(group)
        for _ in range(20):
            group.send(leader)
        await group.calm(group.is_whole)
        wiped = followers(group)[0]
        wiped.kill()
        wiped.volume = MemoryFileSystem()
        await group.calm(lambda: group.is_whole() and len(messages_of(wiped)) == len(group.acknowledged))
        assert messages_of(wiped) == group.acknowledged
        await group.calm(lambda: len(voters(leader)) == len(group.members))

    run(scenario())


def test_a_member_whose_disk_fails_for_a_moment_begins_again() -> None:
    async def scenario() -> None:
        group = Group(4)
        leader = await formed(group)
        victim = followers(group)[0]
        assert victim.member is not None
        write, victim.store.replica.write = victim.replica.write, _no_room  # type: ignore[union-attr, method-assign]
        group.send(leader)
        await group.pass_time(5)
        assert victim.member.status() is None, "the member has detected it"
        victim.replica.write = write  # type: ignore[method-assign]
        await group.calm(group.is_whole)
        assert messages_of(victim) == group.acknowledged != []

    run(scenario())


def test_follower_whose_disk_stays_full_waits_and_votes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        group = Group(33)
        leader = await formed(group)
        victim, other = followers(group)
        attempts = []

        def no_room(*range_: Any) -> None:
            attempts.append(group.now_ms)
            raise DiskFull("cannot allocate a segment: No space left on device")

        write, victim.replica.write = victim.replica.write, no_room  # type: ignore[method-assign,assignment]
        group.send(leader)
        await group.pass_time(20_000 // TICK_MS)
        pauses = [after - before for before, after in pairwise(attempts)]
        assert 2 <= len(pauses) <= 5, attempts
        assert all(after > 1.5 * before for before, after in pairwise(pauses))
        assert victim.member is not None
        assert victim.member.remark == (
            f"member {victim.id} cannot write its log, and copies nothing until it can: cannot allocate a segment:"
            " No space left on device"
        )
        texts = [text for text in caplog.messages if f"member {victim.id}" in text]
        assert len([text for text in texts if "cannot write its log" in text]) == 1
        assert len(texts) == len(set(texts))
        other.kill()
        group.send(leader)
        await group.pass_time(2 * ELECTION_MS // TICK_MS)
        assert group.leader is leader, "the full member responds to its heartbeats"
        assert leader.store.confirmed_offset < leader.store.end_offset
        victim.replica.write = write  # type: ignore[method-assign]
        await group.calm(group.is_whole, 40_000 // TICK_MS)
        assert victim.member.remark == ""
        assert messages_of(victim) == group.acknowledged

    with caplog.at_level(logging.INFO):
        run(scenario())


def test_member_that_cannot_save_its_state_takes_no_part_for_growing_times(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        group = Group(34)
        leader = await formed(group)
        victim = followers(group)[0]
        group.send(leader)
        await group.calm(group.is_whole)
        assert victim.member is not None
        files, attempts = victim.member._files, []

        def no_room(*_: Any, **__: Any) -> None:
            attempts.append(group.now_ms)
            raise OSError(errno.ENOSPC, "No space left on device")

        save, files.save = files.save, no_room  # type: ignore[method-assign]
        leader.kill()
        await group.pass_time(20_000 // TICK_MS)
        assert 2 <= len(attempts) <= 5, attempts
        assert victim.member.status() is None
        assert "cannot save its state, and takes no part in the group" in victim.member.remark
        assert victim.member.halted == ""
        files.save = save  # type: ignore[method-assign]
        await group.calm(lambda: victim.member is not None and not victim.member.remark, 40_000 // TICK_MS)
        await group.calm(group.is_whole)

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert len([record for record in caplog.records if "cannot save its state" in record.getMessage()]) == 1


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("leads", [False, True])
def test_a_member_whose_disk_has_failed_takes_no_part(sync: bool, kind: str, leads: bool) -> None:
    """After a failed sync the page cache may contain bytes that are not on the disk."""

    async def scenario() -> None:
        group = Group(19, sync=sync)
        disks = {name: FaultyFileSystem(each.volume) for name, each in group.members.items()}
        for name, each in group.members.items():
            each.volume = disks[name]  # type: ignore[assignment]
        leader = await formed(group)
        victim = leader if leads else followers(group)[0]
        group.send(leader)
        await group.calm(group.is_whole)
        disks[victim.id].faults.append(Fault(kind=kind, path="commitlog", error=errno.EIO, repeats=True))
        group.send(leader)
        before = len(group.acknowledged)
        for _ in range(300):
            group.tick()
            await group.settle()
            if not sync:
                flush_all(group)
            await group.deliver_all()
            if group.leader is not None and group.leader is not victim and len(group.acknowledged) < before + 3:
                group.send(group.leader)
        assert group.leader is not None
        assert group.leader is not victim
        assert len(group.acknowledged) >= before + 3
        disks[victim.id].faults.clear()
        for _ in range(20):
            group.tick()
            await group.settle()
        assert victim.member is not None
        assert victim.member.status() is None, "it does not continue before a restart, even if the disk works"
        assert "its disk failed" in victim.member.halted
        for name, each in group.members.items():
            each.volume = disks[name].inner  # type: ignore[assignment]
        victim.kill(power=sync and kind == "sync")
        await group.calm(group.is_whole)
        assert not group.halted()
        assert messages_of(victim) == messages_of(group.leader)
        assert set(group.acknowledged) <= set(messages_of(victim))

    run(scenario())


@pytest.mark.parametrize("sync", [False, True])
def test_a_member_whose_disk_fails_in_a_truncation_takes_no_part(sync: bool) -> None:
    """The failed sync must not be repeated: the pages that it has lost count as clean."""

    async def scenario() -> None:
        group = Group(19, sync=sync)
        disks = {name: FaultyFileSystem(each.volume) for name, each in group.members.items()}
        for name, each in group.members.items():
            each.volume = disks[name]  # type: ignore[assignment]
        leader = await formed(group)
        group.cut_off(leader)
        leader.store.append([message("lost")])
        successor = await replaced(group, leader)
        group.send(successor)
        flush_all(group)  # the next sync of the log is that of the truncation
        disks[leader.id].faults.append(Fault(kind="sync", path="commitlog", error=errno.EIO))
        group.cut.clear()
        await group.pass_time(300)
        assert leader.member is not None
        assert "its disk failed" in leader.member.halted
        assert leader.member.status() is None
        for name, each in group.members.items():
            each.volume = disks[name].inner  # type: ignore[assignment]
        leader.kill(power=True)
        await group.calm(group.is_whole)
        assert messages_of(leader) == group.acknowledged != []

    run(scenario())


def flush_all(group: Group) -> None:
    for each in group.alive:
        with suppress(OSError, StorageError):
            each.store.flush()


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_group_that_has_lost_power_goes_on(seed: int, sync: bool) -> None:
    """Each member lacks records that the others know it to have confirmed. That is not held against it, also if the
    group flushes from then on.
    """

    async def scenario() -> None:
        group = Group(seed)
        leader = await formed(group)
        for _ in range(9):
            group.send(leader)
            await group.pass_time(3)
        ends = {}
        for each in group.alive:
            assert each.member is not None
            assert each.member._raft is not None
            ends[each.id] = each.store.end_offset
            each.member._files.save_progress(each.member._saved_progress._replace(promises=each.member._raft.promises))
        for each in group.alive:
            each.kill(power=True)
        group.sync = sync
        group.start()
        assert all(each.store.end_offset < ends[each.id] for each in group.alive)
        await group.calm(group.is_whole)
        assert not any(each.member.conflict for each in group.alive if each.member is not None)

    run(scenario())


@pytest.mark.parametrize("leads", [False, True])
def test_a_disk_that_does_not_end_a_flush_delays_no_acknowledgement(leads: bool) -> None:
    """Any two of three members have flushed."""

    async def scenario() -> None:
        group = Group(20, sync=True)
        leader = await formed(group)
        victim = leader if leads else followers(group)[0]
        assert victim.member is not None
        plain, ended = victim.member._in_thread, asyncio.Event()

        async def slow(work: Callable[[], Any]) -> Any:
            await ended.wait()
            return await plain(work)

        victim.member._in_thread = slow
        for _ in range(3):
            group.send(leader)
        await group.pass_time(10)
        assert len(group.acknowledged) >= 3
        assert group.leader is leader
        ended.set()
        victim.member._in_thread = plain
        await group.calm(group.is_whole)
        assert messages_of(victim) == group.acknowledged

    run(scenario())


def test_a_member_whose_flush_fails_as_nobody_expects_stops() -> None:
    """Otherwise it would count as flushed, and acknowledge nothing before the next append."""

    async def scenario() -> None:
        group = Group(21, sync=True)
        leader = await formed(group)
        victim = followers(group)[0]
        assert victim.member is not None

        async def fails(_: Callable[[], Any]) -> Any:
            raise RuntimeError("no new thread")

        victim.member._in_thread = fails
        group.send(leader)
        await group.pass_time(5)
        assert victim.member.halted == "RuntimeError: no new thread"
        assert group.acknowledged

    run(scenario())


def _no_room(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_vote_is_on_the_disk_before_it_is_given() -> None:
    async def scenario() -> None:
        group = Group(8)
        leader = await formed(group)
        voter, candidate = followers(group)
        assert voter.member is not None
        assert candidate.member is not None
        leader.kill()
        group.network.clear()
        group.delivered.clear()
        voter.member._may_lead = lambda: False  # type: ignore[method-assign]
        voter.member._files.save = _no_room  # type: ignore[assignment]
        await group.pass_time(60)
        votes = [each for each in group.delivered if isinstance(each, VoteResponse) and not each.pre]
        assert not [each for each in votes if each.sender == voter.id]
        assert group.leader is None
        await group.calm(lambda: group.leader is candidate)

    run(scenario())


def test_what_is_appended_in_the_turn_in_which_leadership_ends_is_cut() -> None:
    """The library must know the new end, or the next range would not continue the log."""

    async def scenario() -> None:
        group = Group(9)
        leader = await formed(group)
        group.cut_off(leader)
        new: Member | None = None
        while new is None:  # the clock of the old leader is stopped
            group.now_ms += TICK_MS
            for each in followers_of(group, leader):
                assert each.member is not None
                each.member.tick()
            await group.settle()
            await group.deliver_all()
            new = next((each for each in followers_of(group, leader) if each.member and each.member.leads), None)
        group.send(new)
        await group.settle()
        group.cut.clear()
        assert new.member is not None
        group.now_ms += 2 * TICK_MS
        new.member.tick()  # a heartbeat is due
        await group.settle()
        place = next(place for place, (_, to, _) in enumerate(group.network) if to == leader.id)
        leader.store.append([message("too late")])
        group.deliver(place)  # before the next iteration of the event loop
        await group.calm(group.is_whole)
        assert not group.halted()
        assert messages_of(leader) == group.acknowledged

    run(scenario())


def test_tables_follow() -> None:
    async def scenario() -> None:
        group = Group(5)
        leader = await formed(group)
        leader.topics.put(TopicConfig("orders", 4, 4, 6))
        leader.topics.put(TopicConfig("gone", 4, 4, 6))
        leader.groups.put(GroupConfig("payers", retry_max_times=3))
        leader.store.append([message("x", topic="gone")])
        leader.store.consumer_offsets.commit("orders", "payers", 1, 7)
        group.now_ms += 2000
        await group.calm(group.is_whole)
        leader.topics.delete("gone")
        leader.tables.delete_queues("gone")
        await group.calm(group.is_whole)
        for each in followers(group):
            assert each.topics.configs == leader.topics.configs
            assert "gone" not in each.topics.configs
            assert each.store.queue_ids("gone") == []
            assert each.groups.to_dict()["subscriptionGroupTable"] == leader.groups.to_dict()["subscriptionGroupTable"]
            assert each.store.consumer_offsets.get("orders", "payers", 1) == 7

    run(scenario())


def test_a_member_that_could_not_save_a_topic_has_it_after_a_restart() -> None:
    """Otherwise its next snapshot deletes the topic from all members."""

    async def scenario() -> None:
        group = Group(6, sync=True)
        leader = await formed(group)
        late = followers(group)[0]
        late.saves_topics = False
        leader.topics.put(TopicConfig("orders", 4, 4, 6))
        leader.groups.put(GroupConfig("payers"))
        leader.store.consumer_offsets.commit("orders", "payers", 1, 7)
        await group.pass_time(200)
        leader.tables.log_shrunk()  # appends a snapshot
        await group.pass_time(2_000)
        late.kill()
        late.start()
        await group.calm(group.is_whole)
        await hand_over(group, late)
        for each in group.members.values():
            assert "orders" in each.topics.configs, each.id
            assert "payers" in each.groups.configs, each.id
            assert each.store.consumer_offsets.get("orders", "payers", 1) == 7, each.id

    run(scenario())


def test_a_start_applies_the_last_snapshot_and_what_follows_it() -> None:
    async def scenario() -> None:
        group = Group(6, sync=True)
        leader = await formed(group)
        late = followers(group)[0]
        for number in range(5):
            leader.topics.put(TopicConfig(f"t{number}", 4, 4, 6))
            await group.pass_time(1)
        leader.tables.log_shrunk()  # appends a snapshot
        leader.topics.put(TopicConfig("last", 4, 4, 6))
        await group.calm(group.is_whole)
        for each in group.members.values():
            assert each.tables.snapshot_offset == leader.store.queue_end(TABLES_TOPIC, 0) - 3, each.id
        await group.pass_time(300)  # the progress is saved
        late.kill()
        late.saved_topics.clear()
        late.start()
        assert late.topics.configs.keys() == leader.topics.configs.keys()

    run(scenario())


def test_a_snapshot_that_is_not_confirmed_does_not_count() -> None:
    async def scenario() -> None:
        group = Group(6)
        leader = await formed(group)
        before = leader.tables.snapshot_offset
        group.cut_off(leader)
        leader.tables.log_shrunk()  # appends a snapshot
        assert leader.tables.snapshot_offset == before
        await replaced(group, leader)
        await group.calm(group.is_whole)
        assert min(each.tables.snapshot_offset for each in group.members.values()) > before

    run(scenario())


def test_records_that_are_applied_again_leave_the_next_topic_of_a_name_as_it_is() -> None:
    async def scenario() -> None:
        group = Group(6, sync=True)
        leader = await formed(group)
        late = followers(group)[0]
        leader.topics.put(BATCH)
        leader.store.consumer_offsets.commit("t", "g", 0, 1)
        leader.tables.flush()
        await group.calm(group.is_whole)
        leader.topics.delete("t")
        leader.tables.delete_queues("t")
        await group.calm(group.is_whole)
        leader.topics.put(SIMPLE)
        leader.store.append([message("x", topic="t")])
        await group.pass_time(300)  # the progress is saved
        late.kill()
        late.start()
        assert late.topics.configs["t"] == leader.topics.configs["t"]
        assert bodies(read_queue(late.store, "t")) == ["x"]
        assert not late.store.is_batch_topic("t")
        assert "t@g" not in dict(late.store.consumer_offsets.rows())

    run(scenario())


@pytest.mark.parametrize("removed", [False, True])
def test_changed_offsets_are_confirmed_before_the_answer(removed: bool) -> None:
    """The next leader has an offset that an administrator has reset, and not those of a group that is deleted."""

    async def scenario() -> None:
        group = Group(6)
        leader = await formed(group)
        leader.topics.put(TopicConfig("orders", 1, 1, 6))
        leader.store.consumer_offsets.commit("orders", "payers", 0, 7)
        leader.tables.flush()
        await group.calm(group.is_whole)
        if removed:
            leader.store.consumer_offsets.remove_group("payers")
        else:
            leader.store.consumer_offsets.commit("orders", "payers", 0, 3)
        confirmed = asyncio.ensure_future(leader.tables.confirmed(leader.store.leadership))
        await group.settle()
        assert not confirmed.done()
        await group.deliver_all()
        await confirmed
        leader.kill()
        await group.pass_time(40)
        assert group.leader is not None
        found = {each.store.consumer_offsets.get("orders", "payers", 0) for each in followers_of(group, leader)}
        assert found == {None if removed else 3}

    run(scenario())


def test_a_new_leader_has_the_last_say_about_the_tables() -> None:
    async def scenario() -> None:
        group = Group(6)
        leader = await formed(group)
        group.cut_off(leader)
        leader.topics.put(TopicConfig("nobody-knows", 4, 4, 6))
        await group.pass_time(40)
        assert group.leader not in (None, leader)
        await group.calm(group.is_whole)
        assert "nobody-knows" not in leader.topics.configs

    run(scenario())


def test_a_topic_whose_deletion_is_not_confirmed_keeps_its_messages() -> None:
    async def scenario() -> None:
        group = Group(8)
        leader = await formed(group)
        leader.topics.put(TopicConfig("t", 1, 1, 6))
        leader.store.append([message("kept", topic="t")])
        await group.calm(group.is_whole)
        group.cut_off(leader)
        leader.topics.delete("t")
        leader.tables.delete_queues("t")
        waiting = asyncio.ensure_future(leader.tables.confirmed(leader.store.leadership))
        await group.pass_time(40)
        assert group.leader not in (None, leader)
        with pytest.raises(NotLeader):
            await waiting
        await group.calm(group.is_whole)
        for each in group.members.values():
            assert "t" in each.topics.configs
            assert bodies(read_queue(each.store, "t")) == ["kept"]

    run(scenario())


def test_a_deletion_that_is_requested_again_keeps_the_topic_from_being_made_again() -> None:
    async def scenario() -> None:
        group = Group(7)
        leader = await formed(group)
        leader.topics.put(TopicConfig("t", 1, 1, 6))
        await group.calm(group.is_whole)
        for _ in range(2):
            leader.topics.delete("t")
            leader.tables.delete_queues("t")
        with pytest.raises(StorageError, match="is being deleted"):
            leader.topics.put(TopicConfig("t", 1, 1, 6))
        await group.calm(group.is_whole)
        assert leader.topics.put(TopicConfig("t", 1, 1, 6))

    run(scenario())


async def replaced(group: Group, leader: Member) -> Member:
    """Wait until another member leads in the place of a leader that is cut off. Return the new leader."""
    await group.pass_time(40)
    assert group.leader not in (None, leader)
    assert group.leader is not None
    return group.leader


def test_a_wait_that_begins_after_the_loss_of_leadership_confirms_nothing() -> None:
    async def scenario() -> None:
        group = Group(8)
        leader = await formed(group)
        await group.calm(group.is_whole)
        group.cut_off(leader)
        leader.topics.put(TopicConfig("made", 1, 1, 6))
        appended = leader.store.append([message("lost")])
        successor = await replaced(group, leader)
        with pytest.raises(NotLeader, match="whether the change is made is not known"):
            await leader.tables.confirmed(leader.store.leadership)
        told: list[StorageError | None] = []
        leader.store.on_confirmed(appended.end_offset, told.append)
        for _ in range(5):
            successor.store.append([message("x" * 300)])
        await group.calm(group.is_whole)
        leader.store.on_confirmed(appended.end_offset, told.append)
        assert [type(each) for each in told] == [NotLeader, NotLeader]
        assert "lost" not in messages_of(leader)
        assert "made" not in leader.topics.configs

    run(scenario())


def test_a_topic_of_a_lost_leadership_can_be_made_when_it_leads_again() -> None:
    async def scenario() -> None:
        group = Group(8)
        leader = await formed(group)
        await group.calm(group.is_whole)
        group.cut_off(leader)
        leader.topics.put(TopicConfig("x", 1, 1, 6))
        leader.topics.delete("x")
        leader.tables.delete_queues("x")
        await replaced(group, leader)
        await group.calm(group.is_whole)
        assert "x" not in leader.topics.to_dict()["topicConfigTable"]
        await hand_over(group, leader)
        assert leader.topics.put(TopicConfig("x", 1, 1, 6))

    run(scenario())


SIMPLE = TopicConfig("t", 1, 1, 6)
BATCH = TopicConfig("t", 1, 1, 6, attributes={QUEUE_TYPE: BATCH_CQ})


@pytest.mark.parametrize("creates_again", [False, True])
@pytest.mark.parametrize(("lost", "made"), [(SIMPLE, BATCH), (BATCH, SIMPLE)], ids=["simple-batch", "batch-simple"])
def test_queues_of_a_topic_whose_creation_is_lost_have_the_type_of_the_next_one(
    lost: TopicConfig, made: TopicConfig, creates_again: bool
) -> None:
    """The old leader has built no queue of the lost topic: a later topic of this name may be of the other type."""

    async def scenario() -> None:
        group = Group(8)
        leader = await formed(group)
        group.cut_off(leader)
        leader.topics.put(lost)
        leader.store.append([message("lost", topic="t")])
        successor = await replaced(group, leader)
        if not creates_again:
            successor.topics.put(made)
            fill_topic(successor)
        await group.calm(group.is_whole)
        await hand_over(group, leader)
        if creates_again:
            leader.topics.put(made)
            fill_topic(leader)
        fill_topic(leader)
        await group.calm(group.is_whole)
        expected = [(number, f"{number % 4}") for number in range(8)]
        for each in group.members.values():
            assert each.topics.configs["t"] == leader.topics.configs["t"]
            assert [queue.is_batch for queue in each.store._queues.queues_of("t")] == [made.is_batch], each.id
            found = read_queue(each.store, "t")
            assert [(one.queue_offset, one.body.decode()) for one in found] == expected, each.id

    run(scenario())


def fill_topic(leader: Member) -> None:
    """Send four messages to topic ``t``, in batches if it takes them."""
    if leader.topics.configs["t"].is_batch:
        leader.store.append([batch(["0", "1"], topic="t"), batch(["2", "3"], topic="t")])
    else:
        leader.store.append([message(f"{number}", topic="t") for number in range(4)])


async def hand_over(group: Group, to: Member) -> None:
    """Make ``to`` the leader."""
    while group.leader is not to:
        if group.leader is not None and group.leader.member is not None:
            with suppress(ProposalRefused):
                group.leader.member.propose(TransferLeadership(to.id))
        await group.pass_time(20)
    await group.calm(group.is_whole)


def test_a_member_whose_saved_state_makes_no_sense_stops_once() -> None:
    async def scenario() -> None:
        group = Group(19)
        await formed(group)
        victim = followers(group)[0].member
        assert victim is not None
        first = victim._entries[0]
        later = first._replace(term=first.term + 1)
        victim._files.save(victim._hard_state, (later, first), sync_flush=False)
        victim._fail(OSError("planted"))
        while not victim.halted:
            group.tick()
            await group.settle()
        assert "the epoch table is not in order" in victim.halted
        for _ in range(20):
            victim.tick()
        assert victim.status() is None

    run(scenario())


def test_request_modes_are_those_of_the_leader() -> None:
    async def scenario() -> None:
        group = Group(23)
        leader = await formed(group)
        for topic, name in (("t", "payers"), ("t", "readers"), ("u", "payers")):
            leader.modes.put(topic, name, RequestMode(POP, 2))
        await group.calm(group.is_whole)
        leader.modes.put("t", "payers", RequestMode(POP, 1))
        leader.modes.put_topic("u", None)
        followers(group)[0].modes.put("only here", "payers", RequestMode(POP, 0))
        await group.calm(group.is_whole)
        assert followers(group)[0].modes.get("t", "payers") == RequestMode(POP, 1)
        leader.tables.log_shrunk()
        await group.calm(group.is_whole)
        for each in group.members.values():
            assert each.modes.by_topic() == leader.modes.by_topic(), each.id
        assert leader.modes.get("t", "readers") == RequestMode(POP, 2)
        assert leader.modes.by_topic().keys() == {"t"}

    run(scenario())


def test_a_snapshot_of_a_release_without_request_modes_leaves_them_as_they_are() -> None:
    async def scenario() -> None:
        group = Group(23)
        leader = await formed(group)
        late = followers(group)[0]
        late.modes.put("t", "payers", RequestMode(POP, 2))
        await group.calm(group.is_whole)
        late.store.consumer_offsets.set_row("t@gone", {0: 7})
        everything = {"topics": list(leader.topics.configs), "groups": ["payers"], "offsets": []}
        leader.groups.put(GroupConfig("payers"))
        body = orjson.dumps({"forbidden": {}, "all": everything})
        end = leader.store.append([PendingRecord(TABLES_TOPIC, 0, body)]).end_offset
        await group.calm(lambda: group.is_whole() and late.replica.dispatched_offset >= end)
        assert late.modes.get("t", "payers") == RequestMode(POP, 2)
        assert dict(late.store.consumer_offsets.rows()) == {}

    run(scenario())


def test_no_member_keeps_offsets_of_a_deleted_topic() -> None:
    async def scenario() -> None:
        group = Group(9)
        leader = await formed(group)
        leader.topics.put(TopicConfig("t", 1, 1, 6))
        leader.store.append([message("old", topic="t")])
        await group.calm(group.is_whole)
        leader.store.consumer_offsets.commit("t", "g", 0, 1)
        leader.topics.delete("t")
        leader.tables.delete_queues("t")
        leader.tables.flush()  # as before a transfer of leadership
        assert leader.member is not None
        leader.member.propose(TransferLeadership(followers(group)[0].id))
        await group.calm(lambda: group.is_whole() and group.leader is not leader)
        for each in group.members.values():
            assert "t@g" not in dict(each.store.consumer_offsets.rows()), each.id

    run(scenario())


def test_a_topic_that_is_made_again_keeps_its_new_messages() -> None:
    async def scenario() -> None:
        group = Group(7)
        leader = await formed(group)
        leader.topics.put(TopicConfig("t", 1, 1, 6))
        leader.store.append([message("old", topic="t")])
        await group.calm(group.is_whole)
        leader.topics.delete("t")
        leader.tables.delete_queues("t")
        with pytest.raises(StorageError, match="topic t is being deleted: retry"):
            leader.topics.put(TopicConfig("t", 1, 1, 6))
        assert leader.topics.auto_create("t", "template", 1) is None
        await group.calm(group.is_whole)
        leader.topics.put(TopicConfig("t", 1, 1, 6))
        leader.store.append([message("new", topic="t")])
        await group.calm(group.is_whole)
        for each in group.members.values():
            assert each.store.queue_end("t", 0) == 1, each.id
            assert each.topics.configs["t"] == leader.topics.configs["t"]

    run(scenario())


def test_a_vote_outlives_the_process_that_gave_it() -> None:
    """Two candidates of one term must not both get a majority."""

    async def scenario() -> None:
        group = Group(10)
        leader = await formed(group)
        voter, other = followers(group)
        assert voter.member is not None
        before = voter.member.status()
        assert before is not None
        leader.kill()
        other.kill()
        assert await _asks_for_vote(group, voter, leader.id, before)
        voter.kill()
        voter.start()
        other.start()
        for _ in range(6):  # it votes when it knows that it has what it has promised
            assert voter.member is not None
            voter.member.tick()
            await group.settle()
            for index in range(len(group.network) - 1, -1, -1):
                group.deliver(index)
            await group.settle()
            group.now_ms += 10
        other.kill()
        assert not await _asks_for_vote(group, voter, other.id, before)
        assert await _asks_for_vote(group, voter, leader.id, before), "the same candidate may repeat its request"

    run(scenario())


async def _asks_for_vote(group: Group, voter: Member, candidate: str, before: Status) -> bool:
    """Return whether ``voter`` grants its vote in the next term."""
    known = before.configuration.get(candidate)
    assert known is not None
    assert voter.member is not None
    group.network.clear()
    request = VoteRequest(
        sender=candidate, to=voter.id, term=before.term + 1, incarnation=known.incarnation, boot=9,
        to_incarnation=before.incarnation, group=before.group, last_term=before.term, end=before.end, transfer=True,
    )  # fmt: skip
    voter.member.step(request)
    await group.settle()
    (response,) = [each for _, _, frame in group.network if isinstance(each := decode(*frame), VoteResponse)]
    return response.granted


def test_two_processes_with_one_identity_are_told_of_and_change_nothing() -> None:
    async def scenario() -> None:
        group = Group(15)
        leader = await formed(group)
        double = followers(group)[0]
        group.send(leader)
        await group.calm(group.is_whole)
        duplicate = Member(group, double.id)
        duplicate.start()
        for _ in range(60):
            group.tick()
            assert duplicate.member is not None
            duplicate.member.tick()
            await group.settle()
            await group.deliver_all()
        assert leader.member is not None
        assert f"uses the id of member {double.id}" in leader.member.conflict
        assert voters(leader) == sorted(group.members)
        assert messages_of(double) == messages_of(leader) == group.acknowledged

    run(scenario())


def test_a_disk_of_another_group_is_refused_and_keeps_its_data() -> None:
    async def scenario() -> None:
        other = Group(16)
        group = Group(17)
        for each in (other, group):
            leader = await formed(each)
            each.send(leader)
            await each.calm(each.is_whole)
        leader, stranger = await formed_again(group), followers(other)[0]
        taken = followers(group)[0]
        kept = b"".join(map(bytes, stranger.replica.read(0, stranger.store.end_offset, wait=True)))
        taken.kill()
        stranger.kill()
        taken.volume = stranger.volume
        taken.start()
        await group.pass_time(60)
        assert leader.member is not None
        assert "its disk must be empty" in leader.member.conflict
        found = taken.replica.read(0, taken.store.end_offset, wait=True)
        assert b"".join(map(bytes, found)) == kept != b""
        assert not group.halted()

    run(scenario())


@pytest.mark.parametrize("starts", [1, 2])
def test_an_older_copy_of_a_disk_counts_for_nothing_and_is_told_of(starts: int) -> None:
    """The leader must not count the lost records on this member. With one start since the copy was made, the copy has
    the same number of starts as the disk that it replaces.
    """

    async def scenario() -> None:
        group = Group(18)
        leader = await formed(group)
        taken = followers(group)[0]
        snapshot = taken.volume.after_kill()
        for _ in range(starts):
            taken.kill()
            taken.start()
        group.send(leader)
        await group.calm(group.is_whole)
        taken.kill()
        taken.volume = snapshot
        taken.start()
        await group.pass_time(20)
        assert leader.member is not None
        assert f"the disk of {taken.id} is an older copy of itself" in leader.member.conflict
        status = leader.member.status()
        assert status is not None
        assert not next(each for each in status.members if each.id == taken.id).active
        taken.kill()
        taken.volume = MemoryFileSystem()
        await group.calm(group.is_whole)
        assert messages_of(taken) == messages_of(leader) == group.acknowledged

    run(scenario())


async def formed_again(group: Group) -> Member:
    await group.calm(lambda: group.leader is not None)
    assert group.leader is not None
    return group.leader


def test_request_modes_are_part_of_a_snapshot() -> None:
    async def scenario() -> None:
        group = Group(31)
        leader = await formed(group)
        leader.modes.put("orders", "payers", RequestMode(POP, 2))
        await group.calm(group.is_whole)
        leader.tables.log_shrunk()  # appends a snapshot
        await group.calm(lambda: group.is_whole() and bool(leader.tables.snapshot_offset))
        await group.pass_time(3_000 // TICK_MS)  # every member saves where the snapshot begins
        member = followers(group)[0]
        member.kill()
        await group.calm(group.is_whole)
        assert member.modes.get("orders", "payers") == RequestMode(POP, 2)

    run(scenario())


def test_offsets_that_could_not_be_appended_are_appended_later() -> None:
    async def scenario() -> None:
        group = Group(32)
        leader = await formed(group)
        group.send(leader)
        await group.calm(group.is_whole)
        leader.store.consumer_offsets.commit("topic", "payers", 0, 1)

        def full(*_: Any) -> None:
            raise OutOfResources("the disk is full")

        append, leader.store.append = leader.store.append, full  # type: ignore[method-assign,assignment]
        leader.tables.flush()
        leader.store.append = append  # type: ignore[method-assign]
        leader.tables.flush()
        await group.calm(group.is_whole)
        committed = [each.store.consumer_offsets.get("topic", "payers", 0) for each in group.members.values()]
        assert committed == [1, 1, 1]

    run(scenario())
