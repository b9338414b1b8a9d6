"""Handover of queues while messages are sent: members join and leave, no message is lost, and none is delivered
twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.handover import QueueLocks
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

CONFIG = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST,
    commit_interval=1000.0,  # periodic commits must not affect the result
    rebalance_interval=1.0,
    concurrency=3,
    hand_over_timeout=30.0,
)
QUEUES = 8


class Slow:
    """A listener that sends one more message per call, until there are no more."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()
        self._pace = asyncio.Semaphore(0)
        self._over = False

    async def take(self, messages: list[MessageExt]) -> None:
        await self._wait()
        self.bodies.update(message.body for message in messages)

    async def take_batch(self, batch: MessageBatch) -> None:
        await self._wait()
        self.bodies.update(map(bytes, batch.bodies()))

    async def _wait(self) -> None:
        if not self._over:
            await self._pace.acquire()

    def one_more(self) -> None:
        self._pace.release()

    def no_more(self) -> None:
        self._over = True
        for _ in range(1000):
            self._pace.release()


def consumer(cluster: Cluster, slow: Slow, whole: bool, config: ConsumerConfig = CONFIG) -> PushConsumer:
    made = PushConsumer("g", name_servers=cluster.name_servers, config=config)
    if whole:
        made.subscribe_batches("t", "*", slow.take_batch)
    else:
        made.subscribe("t", "*", slow.take)
    return made


def share(member: PushConsumer) -> int:
    return sum(queue.topic == "t" for queue in member.assignment)


@pytest.mark.parametrize("whole", [False, True], ids=["messages", "batches"])
async def test_members_come_and_go_and_no_message_comes_twice(tmp_path: Path, whole: bool) -> None:
    slow, sent, is_closed = Slow(), Counter[bytes](), False

    async def keep_sending() -> None:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            while not is_closed:
                body = b"%d" % len(sent)
                await producer.send_batch([Message("t", body)] * 3 if whole else [Message("t", body)])
                sent[body] += 3 if whole else 1
                slow.one_more()
                slow.one_more()

    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", QUEUES // 2)
        members = [consumer(cluster, slow, whole) for _ in range(4)]
        sending = asyncio.create_task(keep_sending())
        for count, member in enumerate(members, 1):
            before = slow.bodies.total()
            await member.start()
            await eventually(lambda: slow.bodies.total() > before + 30)  # noqa: B023 - awaited in this turn
            await eventually(lambda: [share(each) for each in members[:count]].count(0) == 0)  # noqa: B023
        await eventually(lambda: [share(each) for each in members] == [2, 2, 2, 2])
        for member in members[:3]:
            before = slow.bodies.total()
            await member.stop()
            await eventually(lambda: slow.bodies.total() > before + 30)  # noqa: B023
        is_closed = True
        await sending
        slow.no_more()
        await eventually(lambda: slow.bodies.total() >= sent.total())
        await members[3].stop()
    assert slow.bodies == sent


async def test_what_a_listener_has_is_finished_where_it_is_and_the_rest_elsewhere(tmp_path: Path) -> None:
    seen: list[tuple[str, bytes]] = []
    gate, blocked = asyncio.Event(), 0

    async def first(messages: list[MessageExt]) -> None:
        nonlocal blocked
        blocked += 1
        await gate.wait()
        seen.append(("first", messages[0].body))

    async def second(messages: list[MessageExt]) -> None:
        seen.append(("second", messages[0].body))

    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 2)
        config = replace(CONFIG, concurrency=20)
        members = [PushConsumer("g", name_servers=cluster.name_servers, config=config) for _ in range(2)]
        members[0].subscribe("t", "*", first)
        members[1].subscribe("t", "*", second)
        await members[0].start()
        for number in range(20):
            await producer.send(Message("t", b"%d" % number))
        await eventually(lambda: blocked == 20)
        await members[1].start()
        await eventually(lambda: share(members[0]) == 1)
        for number in range(20, 40):
            await producer.send(Message("t", b"%d" % number))
        # Until the gate opens, the second consumer must wait for the queue, because it cannot know the offset.
        assert share(members[1]) == 0
        gate.set()
        await eventually(lambda: len(seen) == 40)
        assert share(members[1]) == 1
        for member in members:
            await member.stop()
    assert Counter(body for _, body in seen) == Counter(b"%d" % number for number in range(40))
    assert Counter(who for who, _ in seen) == {"first": 30, "second": 10}


async def test_a_message_that_fails_during_the_hand_over_is_given_back_not_repeated_with_what_follows(
    tmp_path: Path,
) -> None:
    seen: Counter[bytes] = Counter()
    gate, blocked = asyncio.Event(), 0

    async def fails_once(messages: list[MessageExt]) -> ConsumeResult:
        nonlocal blocked
        blocked += 1
        await gate.wait()
        body = messages[0].body
        seen[body] += 1
        return ConsumeResult.RECONSUME_LATER if body == b"0" and seen[body] == 1 else ConsumeResult.SUCCESS

    async with Cluster(tmp_path, messageDelayLevel="1s 1s 1s") as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(9):
                await producer.send(Message("t", b"%d" % number))
        members = [PushConsumer("g", name_servers=cluster.name_servers, config=CONFIG) for _ in range(2)]
        for member in members:
            member.subscribe("t", "*", fails_once)
        await members[0].start()
        await eventually(lambda: blocked == 3)
        stopping = asyncio.create_task(members[0].stop())
        await members[1].start()
        gate.set()
        await stopping
        await eventually(lambda: seen[b"0"] == 2 and len(seen) == 9)
        await members[1].stop()
    assert seen == Counter({b"%d" % number: 1 for number in range(9)}) + Counter([b"0"])


async def test_a_listener_that_hangs_holds_its_queue_up_for_a_while_only(tmp_path: Path) -> None:
    impatient = replace(CONFIG, hand_over_timeout=0.1)
    hangs, taken = asyncio.Event(), Slow()
    taken.no_more()

    async def never_ends(messages: list[MessageExt]) -> None:
        hangs.set()
        await asyncio.Event().wait()

    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 2)
        for number in range(20):
            await producer.send(Message("t", b"%d" % number))
        client = ClientConfig(cluster.name_servers, close_timeout=0.1)
        hanging = PushConsumer("g", client_config=client, config=impatient)
        hanging.subscribe("t", "*", never_ends)
        await hanging.start()
        await hangs.wait()
        member = consumer(cluster, taken, whole=False, config=impatient)
        await member.start()
        await eventually(lambda: len(taken.bodies) == 10)  # of its queue, including unresponsive calls
        await hanging.stop()
        await eventually(lambda: len(taken.bodies) == 20)
        await member.stop()


async def locked_by_the_dead(cluster: Cluster) -> None:
    """Lock all queues without unlocking them."""
    instance = ClientInstance.acquire(ClientConfig(cluster.name_servers, instance_name="dead"))
    route = await instance.routes.find("t")
    assert await QueueLocks(instance, "g").lock(route.read_queues) == set(route.read_queues)
    await instance.release()


async def test_a_member_that_is_alone_does_not_wait_for_dead_ones(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await locked_by_the_dead(cluster)
        member = consumer(cluster, Slow(), whole=False, config=replace(CONFIG, hand_over_timeout=1000.0))
        async with member:
            await eventually(lambda: share(member) == 2)


async def test_locks_of_a_client_that_is_no_member_delay_nobody(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = replace(CONFIG, hand_over_timeout=1000.0)
        async with consumer(cluster, Slow(), whole=False, config=config) as other:
            await eventually(lambda: share(other) == 2)
            assert other._running is not None
            assert other._running._locks is not None
            await other._running._locks.unlock(other.assignment)
            await locked_by_the_dead(cluster)
            async with consumer(cluster, Slow(), whole=False, config=config) as member:
                await eventually(lambda: (share(other), share(member)) == (1, 1))


async def test_a_consumer_that_is_closed_leaves_exact_progress(tmp_path: Path) -> None:
    slow = Slow()
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 2)
        for number in range(50):
            await producer.send(Message("t", b"%d" % number))
        for _ in range(3):  # the listener has three at a time, and many more are cached
            before = slow.bodies.total()
            member = consumer(cluster, slow, whole=False)
            await member.start()
            for _ in range(10):
                slow.one_more()
            await eventually(lambda: slow.bodies.total() >= before + 10)  # noqa: B023
            stopping = asyncio.create_task(member.stop())
            for _ in range(3):
                slow.one_more()
            await stopping
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
            progress = [await reader.committed(queue) for queue in await reader.queues("t")]
        assert sum(offset or 0 for offset in progress) == slow.bodies.total() == len(slow.bodies)


async def test_progress_of_a_queue_that_another_member_has_got_is_not_stored(tmp_path: Path) -> None:
    slow = Slow()
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        async with consumer(cluster, slow, whole=False) as member:
            for number in range(10):
                await producer.send(Message("t", b"%d" % number))
                slow.one_more()
            await eventually(lambda: slow.bodies.total() == 10)
            assert member._running is not None
            member._running.rebalancer.locks_lost(member.assignment)
            assert member.assignment == []
            slow.no_more()
            await eventually(lambda: slow.bodies.total() == 20)  # without a commit it starts at the beginning


@pytest.mark.parametrize("brokers", [1, 2])
async def test_nothing_comes_twice_when_a_broker_restarts(tmp_path: Path, brokers: int) -> None:
    sent, is_closed = set[bytes](), False
    bodies, places = (
        set[bytes](),
        Counter[tuple[MessageQueue, int]](),
    )  # a repeated send can be stored twice, at two offsets
    config = replace(CONFIG, rebalance_interval=1000.0)

    async def take(messages: list[MessageExt]) -> None:
        bodies.update(message.body for message in messages)
        places.update((message.queue, message.queue_offset) for message in messages)

    async def keep_sending() -> None:
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            while not is_closed:
                body = b"%d" % len(sent)
                await producer.send(Message("t", body), timeout=60)
                sent.add(body)

    async with Cluster(tmp_path, brokers=brokers) as cluster:
        await cluster.create_topic("t", QUEUES // brokers)
        clients = [ClientConfig(cluster.name_servers, instance_name=f"m{number}") for number in range(2)]
        members = [PushConsumer("g", client_config=client, config=config) for client in clients]
        for member in members:
            member.subscribe("t", "*", take)
            await member.start()
        await eventually(lambda: [share(member) for member in members] == [4, 4])
        sending = asyncio.create_task(keep_sending())
        await eventually(lambda: len(bodies) > 30)
        await cluster.stop_broker(0)
        if brokers > 1:  # the other queue is written and read meanwhile
            before = len(bodies)
            await eventually(lambda: len(bodies) > before + 300)
        await cluster.start_broker(0)
        restarted_at = len(sent)
        await eventually(lambda: len(sent) > restarted_at + 30)
        await eventually(lambda: [share(member) for member in members] == [4, 4])
        is_closed = True
        await sending
        await eventually(lambda: bodies >= sent)
        for member in members:
            await member.stop()
    assert set(places.values()) == {1}
