"""`describe()`: the state of producers and consumers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    BlockingConsumer,
    BlockingProducer,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageQueue,
    Order,
    Producer,
    PushConsumer,
    ReadState,
    as_dict,
)
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5)
QUEUE = MessageQueue("t", "broker-0", 0)


async def send(cluster: Cluster, count: int) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number in range(count):
            await producer.send(Message("t", b"%d" % number), queue=QUEUE)


@pytest.mark.parametrize("order", list(Order), ids=str)
async def test_a_push_consumer(tmp_path: Path, order: Order) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 5)
        may_end = asyncio.Event()

        async def consume(_: list[MessageExt]) -> None:
            await may_end.wait()

        config = replace(FAST, order=order, concurrency=2, max_messages_per_queue=4, pull_batch=4)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        before = consumer.describe()
        assert (before.is_started, before.subscriptions, before.queues) == (False, {"t": "*"}, ())
        async with consumer:
            running = 1 if order is not Order.NONE else 2
            await eventually(lambda: consumer.describe().busy_workers == running)
            now = consumer.describe()
            [queue] = [each for each in now.queues if each.queue == QUEUE]
            assert (queue.commit_offset, queue.next_offset, queue.max_offset, queue.lag) == (0, 4, 5, 5)
            assert (queue.unfinished_messages, queue.unfinished_bytes, queue.running_calls) == (4, 4, running)
            assert (queue.state, queue.error) == (ReadState.FULL, None)
            assert (len(now.workers), now.waiting_messages, now.lag) == (2, 4 - running, 5)
            busy = next(worker for worker in now.workers if worker.topic is not None)
            assert (busy.topic, busy.queue, busy.messages) == ("t", QUEUE, 1)
            assert busy.seconds >= 0
            may_end.set()
            await eventually(lambda: consumer.describe().lag == 0)
            assert json.loads(json.dumps(as_dict(consumer.describe())))["queues"][-1]["lag"] == 0
        assert not consumer.describe().is_started


async def test_a_loop_and_a_broker_that_is_down(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 3)
        async with Consumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t")
            message = await anext(consumer)

            def described() -> tuple[ReadState, int, int]:
                now = consumer.describe()
                [queue] = [each for each in now.queues if each.queue == QUEUE]
                return queue.state, queue.running_calls, now.waiting_messages

            await eventually(lambda: described() == (ReadState.READING, 1, 2))
            consumer.pause()
            assert described()[0] is ReadState.PAUSED
            consumer.resume()
            await message.ack()
            await cluster.stop_broker(0)
            await eventually(lambda: described() == (ReadState.FAILING, 0, 2))
            [queue] = [each for each in consumer.describe().queues if each.queue == QUEUE]
            assert queue.error
            assert queue.lag == 2


async def test_a_producer(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", 1)
        producer = Producer("p", name_servers=cluster.name_servers)
        assert not producer.describe().is_started
        async with producer:
            sent = producer.submit(Message("t", b"12345"))
            now = producer.describe()
            assert (now.is_started, now.group, now.in_flight_messages, now.in_flight_bytes) == (True, "p", 1, 5)
            await sent
            assert producer.describe().in_flight_messages == 0
            await cluster.stop_broker(0)
            for _ in range(4):
                await producer.send(Message("t", b"x"))
            down, up = producer.describe().brokers
            assert (down.name, up.name, up.address) == ("broker-0", "broker-1", cluster.broker(1).address)
            assert down.avoided_seconds > 0
            assert up.avoided_seconds == 0


async def test_without_asyncio(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)

        def describe() -> None:
            with BlockingProducer("p", name_servers=cluster.name_servers) as producer:
                producer.send(Message("t", b"x"))
                assert producer.describe().is_started
            assert not producer.describe().is_started
            with BlockingConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
                consumer.subscribe("t")
                next(consumer).ack()
                assert consumer.describe().is_started

        await asyncio.to_thread(describe)
