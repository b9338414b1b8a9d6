"""`LitePullConsumer` with real brokers: queues are assigned by the group, offsets are committed by the caller."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    BlockingLitePullConsumer,
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageQueue,
    Order,
    Producer,
)
from raptormq.errors import ClientClosed, ClientError, ConfigError, NoRoute, TransportError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=60, rebalance_interval=0.5)
QUEUE = MessageQueue("t", "broker-0", 0)


def consumer_of(cluster: Cluster, config: ConsumerConfig = FAST) -> LitePullConsumer:
    consumer = LitePullConsumer("g", name_servers=cluster.name_servers, config=config)
    consumer.subscribe("t")
    return consumer


async def send(cluster: Cluster, *bodies: bytes, queue: MessageQueue | None = QUEUE) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for body in bodies:
            await producer.send(Message("t", body), queue=queue)


async def polled(consumer: LitePullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.body for message in await consumer.poll(max_messages=count - len(found))]
    return found


async def test_what_is_committed_does_not_come_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2")
        async with consumer_of(cluster) as consumer:
            assert await polled(consumer, 2) == [b"0", b"1"]
            assert await consumer.commit()
            assert await consumer.committed(QUEUE) == 2
            assert consumer.position(QUEUE) == 2
            assert await polled(consumer, 1) == [b"2"]
            assert consumer.position(QUEUE) == 3
        async with consumer_of(cluster) as consumer:
            assert await polled(consumer, 1) == [b"2"]
            assert await consumer.poll(0.05) == []


async def test_polls_without_a_wait_return_all_waiting_messages(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(200)]
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, *bodies)
        async with consumer_of(cluster) as consumer:
            found = await polled(consumer, 1)
            await eventually(lambda: any(each.next_offset == len(bodies) for each in consumer.describe().queues))
            while messages := await consumer.poll(timeout=0, max_messages=1):
                found += [message.body for message in messages]
    assert found == bodies


async def test_seek(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2", b"3")
        async with consumer_of(cluster) as consumer:
            assert await polled(consumer, 3) == [b"0", b"1", b"2"]
            consumer.seek(QUEUE, 1)
            assert consumer.position(QUEUE) == 1
            assert await polled(consumer, 2) == [b"1", b"2"]
            assert await consumer.commit()
            assert await consumer.committed(QUEUE) == 3
            consumer.seek(QUEUE, await consumer.max_offset(QUEUE))
            await send(cluster, b"4")
            assert await polled(consumer, 1) == [b"4"]


async def test_members_share_the_queues(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        async with consumer_of(cluster) as first, consumer_of(cluster) as second:
            await eventually(
                lambda: [sum(queue.topic == "t" for queue in each.assignment) for each in (first, second)] == [2, 2]
            )
            await send(cluster, *(b"%d" % number for number in range(8)), queue=None)
            mine, yours = await asyncio.gather(polled(first, 4), polled(second, 4))
            assert sorted(mine + yours) == [b"%d" % number for number in range(8)]
            with pytest.raises(ClientError, match="is not assigned to this member of g now"):
                first.seek(next(queue for queue in second.assignment if queue.topic == "t"), 0)


async def test_a_queue_that_was_given_up_is_not_committed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = replace(FAST, hand_over_timeout=0.2)
        async with consumer_of(cluster, config) as slow:
            await send(cluster, b"0")
            await send(cluster, b"1", queue=MessageQueue("t", "broker-0", 1))
            assert sorted(await polled(slow, 2)) == [b"0", b"1"]
            async with consumer_of(cluster, config) as other:
                again = await polled(other, 1)
                assert not await slow.commit()
                assert await other.commit()
            assert again[0] in {b"0", b"1"}


async def test_a_broker_that_is_down_is_an_error_of_commit(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            await polled(consumer, 1)
            await cluster.stop_broker(0)
            with pytest.raises((TransportError, NoRoute)):
                await consumer.commit()


async def test_a_queue_that_is_being_handed_over_and_not_committed_is_an_error_of_commit(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1")
        async with consumer_of(cluster, replace(FAST, hand_over_timeout=60)) as consumer:
            assert await polled(consumer, 1) == [b"0"]
            offsets = {"%RETRY%g": 0, "t": 0}
            await eventually(
                lambda: {each.queue.topic: each.commit_offset for each in consumer.describe().queues} == offsets
            )
            assert await consumer.commit()  # also of the retry topic, which is not committed again below
            assert await polled(consumer, 1) == [b"1"]
            consumer.unsubscribe("t")
            await eventually(lambda: QUEUE not in consumer.assignment)
            await cluster.stop_broker(0)
            with pytest.raises((TransportError, NoRoute)):
                await consumer.commit()


async def test_wrong_calls() -> None:
    with pytest.raises(ConfigError, match="in the order of each queue"):
        LitePullConsumer("g", config=ConsumerConfig(order=Order.BY_QUEUE))
    consumer = LitePullConsumer("g")
    for call in (consumer.poll(), consumer.commit(), consumer.committed(QUEUE)):
        with pytest.raises(ClientClosed, match="not started"):
            await call
    with pytest.raises(ClientClosed, match="not started"):
        consumer.seek(QUEUE, 0)
    with pytest.raises(ConfigError, match="timeout must be a number from 0"):
        await consumer.poll(-1)
    with pytest.raises(ConfigError, match="max_messages must be a whole number above 0"):
        await consumer.poll(max_messages=0)
    await consumer.close()


async def test_without_asyncio(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1")

        def consume() -> None:
            with BlockingLitePullConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
                consumer.subscribe("t")
                found: list[bytes] = []
                while len(found) < 2:
                    found += [message.body for message in consumer.poll(max_messages=1)]
                assert found == [b"0", b"1"]
                consumer.seek(QUEUE, 1)
                assert consumer.position(QUEUE) == 1
                assert [message.body for message in consumer.poll(30)] == [b"1"]
                assert consumer.commit()
                assert consumer.committed(QUEUE) == 2
                assert consumer.describe().lag == 0

        await asyncio.to_thread(consume)
