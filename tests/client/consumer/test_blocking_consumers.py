"""`BlockingConsumer` and `BlockingPopConsumer`: what their close does to messages that threads hold."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.client import (
    BlockingConsumer,
    BlockingPopConsumer,
    BlockingPoppedBatch,
    BlockingReceivedBatch,
    ClientConfig,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    Producer,
    Retry,
    RetryKind,
)
from tests.client.embedded_cluster import Cluster

AnyConsumer = BlockingConsumer | BlockingPopConsumer
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=60.0)


def queue_consumer(client_config: ClientConfig) -> BlockingConsumer:
    consumer = BlockingConsumer("g", config=FIRST, client_config=client_config)
    consumer.subscribe("t")
    return consumer


def pop_consumer(client_config: ClientConfig) -> BlockingPopConsumer:
    return BlockingPopConsumer("g", "t", client_config=client_config)


both = pytest.mark.parametrize("new", [queue_consumer, pop_consumer])
New = Callable[[ClientConfig], AnyConsumer]


async def with_messages(folder: Path, count: int, work: Callable[[str], None]) -> None:
    """Run `work` with the address of a name server in a thread; the topic has this many messages."""
    async with Cluster(folder) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(count):
                await producer.send(Message("t", b"%d" % number))
        await asyncio.to_thread(work, cluster.name_servers)


def next_batch(consumer: AnyConsumer) -> BlockingReceivedBatch | BlockingPoppedBatch:
    if isinstance(consumer, BlockingConsumer):
        return next(consumer.batches(max_messages=2, max_wait=60))
    return next(consumer.batches(max_messages=2, max_wait=60))


def next_bodies(new: New, name_servers: str) -> list[bytes]:
    """Return the body of the next message that the group gets."""
    with new(ClientConfig(name_servers)) as consumer:
        message = next(consumer)
        assert message.ack()
        return [message.body]


@both
async def test_a_thread_settles_its_message_while_the_consumer_is_closed(tmp_path: Path, new: New) -> None:
    def consume(name_servers: str) -> None:
        consumer = new(ClientConfig(name_servers, close_timeout=60.0)).start()
        taken, go_on, acks = threading.Event(), threading.Event(), list[bool]()

        def work() -> None:
            for message in consumer:
                taken.set()
                go_on.wait()
                acks.append(message.ack())
            acks.append(True)  # the loop has ended without an error

        worker = threading.Thread(target=work)
        worker.start()
        assert taken.wait(20)
        closer = threading.Thread(target=consumer.close)
        closer.start()
        while consumer._wrapped._running is not None:
            time.sleep(0.01)
        go_on.set()
        closer.join(20)
        worker.join(20)
        assert acks == [True, True]
        assert next_bodies(new, name_servers) == [b"1"]

    await with_messages(tmp_path, 2, consume)


@both
async def test_a_message_is_given_up_after_the_close(tmp_path: Path, new: New) -> None:
    def consume(name_servers: str) -> None:
        with new(ClientConfig(name_servers, close_timeout=60.0)) as consumer:
            messages = [next(consumer) for _ in range(3)]
            batch = next_batch(consumer)
            assert batch[0].ack()
        began = time.monotonic()
        assert not messages[0].ack()
        assert messages[1].retry() == Retry(RetryKind.HANDED_OVER)
        assert not messages[2].dead_letter("late")
        assert not batch.ack()
        assert batch.retry() == [Retry(RetryKind.HANDED_OVER)]
        assert not batch.dead_letter("late")
        assert time.monotonic() - began < 20

    await with_messages(tmp_path, 5, consume)


@both
async def test_a_thread_that_has_ended_does_not_delay_the_close(tmp_path: Path, new: New) -> None:
    def consume(name_servers: str) -> None:
        consumer = new(ClientConfig(name_servers, close_timeout=60.0)).start()
        go_on, taken = threading.Event(), threading.Event()

        def take() -> None:
            next(consumer)
            taken.set()
            go_on.wait()

        taker = threading.Thread(target=take)
        taker.start()
        assert taken.wait(20)
        closer = threading.Thread(target=consumer.close)
        closer.start()
        closer.join(0.3)
        assert closer.is_alive()
        go_on.set()
        closer.join(20)
        assert not closer.is_alive()

    await with_messages(tmp_path, 1, consume)


@both
async def test_threads_that_close_a_consumer_do_not_wait_for_the_messages_of_each_other(
    tmp_path: Path, new: New
) -> None:
    def consume(name_servers: str) -> None:
        consumer = new(ClientConfig(name_servers, close_timeout=60.0)).start()
        all_taken = threading.Barrier(3)

        def take_and_close() -> None:
            next(consumer)
            all_taken.wait()
            consumer.close()

        closers = [threading.Thread(target=take_and_close) for _ in range(3)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(20)
        assert not any(closer.is_alive() for closer in closers)

    await with_messages(tmp_path, 3, consume)


async def test_tasks_that_close_a_consumer_do_not_wait_for_the_messages_of_each_other(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for _ in range(2):
                await producer.send(Message("t", b"x"))
        shared = ClientConfig(cluster.name_servers, close_timeout=60.0)
        consumer = Consumer("g", config=FIRST, client_config=shared)
        consumer.subscribe("t")
        await consumer.start()
        all_taken = asyncio.Barrier(2)

        async def take_and_close() -> None:
            await anext(consumer)
            await all_taken.wait()
            await consumer.close()

        async with asyncio.timeout(20):
            await asyncio.gather(take_and_close(), take_and_close())


async def test_a_batch_that_was_given_up_is_not_acknowledged(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"x"))
        async with Consumer("g", config=FIRST, name_servers=cluster.name_servers) as consumer:
            consumer.subscribe("t")
            batch = await anext(consumer.batches())
        assert not await batch.ack()
        assert await batch.retry() == [Retry(RetryKind.HANDED_OVER)]
