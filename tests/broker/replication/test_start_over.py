"""A member that lacks ranges which all members have deleted starts over at the oldest range of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.storage import PendingRecord
from tests.broker.replication.group import Group, Member, messages_of
from tests.broker.replication.simulation import retire
from tests.broker.replication.test_group_member import followers, formed, hand_over, run
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import bodies, message, read_queue
from tests.storage.test_concurrent_build import inner_batch

BATCHES = TopicConfig("batches", 1, 1, 6, attributes={"queue.type": "BatchCQ"})


async def fill(group: Group, leader: Member) -> None:
    """Send until the log has several more segments."""
    end = leader.store.end_offset + 5 * leader.store.config.segment_size
    while leader.store.end_offset < end:
        group.send(leader)
        await group.settle()
        await group.deliver_all()


async def lagging(group: Group, act: Callable[[Member], Awaitable[None]]) -> tuple[Member, Member]:
    """Return a leader that has deleted ranges which another member lacks, and this member. ``act`` runs at the leader
    before.
    """
    leader = await formed(group)
    lagging = followers(group)[0]
    lagging.kill()
    await act(leader)
    await fill(group, leader)
    await group.pass_time(10)
    await retire(leader)
    await group.pass_time(3)
    for each in group.alive:
        await retire(each)
    assert leader.store.start_offset > lagging.store.end_offset
    return leader, lagging


async def nothing(_: Member) -> None:
    """Do nothing."""


@pytest.mark.parametrize("wiped", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_it_gets_all_that_is_left_and_takes_part(wiped: bool, sync: bool) -> None:
    async def scenario() -> None:
        group = Group(11, sync=sync)
        leader, late = await lagging(group, nothing)
        if wiped:
            late.volume = MemoryFileSystem()
        await group.calm(lambda: group.is_whole() and late.store.start_offset == leader.store.start_offset > 0)
        assert not group.halted()
        left = messages_of(leader)
        assert messages_of(late) == left == group.acknowledged[-len(left) :] != []
        await group.calm(lambda: len([each for each in _voters(leader) if each == late.id]) == 1)
        await hand_over(group, late)
        group.send(late)
        await group.calm(group.is_whole)
        assert messages_of(leader) == messages_of(late) == group.acknowledged[-len(messages_of(late)) :]
        late.kill()
        late.start()
        await group.calm(group.is_whole)
        assert messages_of(late) == messages_of(leader)

    run(scenario())


def _voters(member: Member) -> list[str]:
    status = member.member.status() if member.member is not None else None
    return status.configuration.voters() if status is not None else []


def test_queues_whose_messages_are_all_deleted_go_on_where_they_ended() -> None:
    async def scenario() -> None:
        group = Group(12)

        async def act(leader: Member) -> None:
            leader.topics.put(TopicConfig("old", 2, 2, 6))
            leader.topics.put(BATCHES)
            leader.store.append([message("x", topic="old", queue_id=1) for _ in range(7)])
            leader.store.append([inner_batch(5, "plain", "a")])
            await group.settle()

        leader, late = await lagging(group, act)
        assert leader.store.queue_end("old", 1) == 7
        await group.calm(lambda: group.is_whole() and late.store.start_offset == leader.store.start_offset > 0)
        for _ in range(2):
            assert late.store.queue_end("old", 1) == 7
            assert late.store.queue_end("batches", 0) == 5
            late.kill()
            late.start()
            await group.calm(group.is_whole)
        await hand_over(group, late)
        late.store.append([message("new", topic="old", queue_id=1), inner_batch(2, "plain", "b")])
        await group.calm(group.is_whole)
        for each in group.members.values():
            assert each.store.queue_end("old", 1) == 8
            assert bodies(read_queue(each.store, "old", 1)) == ["new"]
            assert each.store.queue_end("batches", 0) == 7

    run(scenario())


def test_topics_whose_creation_is_deleted_have_queues_of_their_type() -> None:
    """The message does not contain the queue type, and is the first remaining message of the topic."""

    async def scenario() -> None:
        group = Group(13)
        records: list[PendingRecord] = [message("single", topic="batches"), inner_batch(3, "plain", "b")]

        async def act(leader: Member) -> None:
            leader.topics.put(BATCHES)

        leader, late = await lagging(group, act)
        leader.store.append(records)
        await group.calm(lambda: group.is_whole() and late.store.start_offset == leader.store.start_offset > 0)
        assert not group.halted()
        for each in group.members.values():
            assert each.store.is_batch_topic("batches")
            assert each.store.queue_end("batches", 0) == 4

    run(scenario())


def test_a_broker_that_had_no_copies_becomes_the_first_member() -> None:
    """The data of the broker has no records of tables, and can begin at any offset."""

    async def scenario() -> None:
        group = Group(14)
        first = group.members["n0"]
        first.start_alone()
        first.topics.put(BATCHES)
        first.topics.put(TopicConfig("topic", 1, 1, 6))
        first.store.append([message("single", topic="batches"), inner_batch(3, "plain", "b")])
        for number in range(60):
            first.store.append([message(f"{number}".ljust(100))])
        first.store.append([message("another", topic="batches"), inner_batch(3, "plain", "c")])
        first.store.dispatch()
        first.store.flush()
        await retire(first)
        first.store.close()
        first.saved_topics = dict(first.topics.configs)
        group.start()
        await group.calm(group.is_whole)
        assert group.leader is first
        assert first.store.start_offset > 0
        for each in group.members.values():
            assert messages_of(each) == messages_of(first) != []
            assert each.store.queue_end("batches", 0) == 8
            assert each.topics.configs.keys() >= {"batches", "topic"}
        assert not group.halted()

    run(scenario())


@pytest.mark.parametrize("seed", range(15))
def test_a_member_that_is_killed_while_it_begins_anew_begins_again(seed: int) -> None:
    async def scenario() -> None:
        group = Group(100 + seed)
        leader, late = await lagging(group, nothing)
        late.start()
        for _ in range(40):
            group.tick()
            await asyncio.sleep(0)
            while group.network:
                group.deliver(0)
                for _ in range(group.rng.randint(0, 3)):
                    await asyncio.sleep(0)
            if late.member is not None and group.rng.random() < 0.2:
                late.kill(power=False)
                late.start()
        await group.calm(lambda: group.is_whole() and late.store.start_offset == leader.store.start_offset > 0)
        assert messages_of(late) == messages_of(leader)

    run(scenario())
