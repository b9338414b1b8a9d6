"""`Consumer` with real brokers: a loop over messages that are settled in any order, without losses."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    BlockingConsumer,
    ClientConfig,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageModel,
    MessageQueue,
    Order,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Retry,
    RetryKind,
)
from raptormq.errors import ClientClosed, ClientError, ConfigError, NoRoute, TransportError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.1, rebalance_interval=0.5)
QUEUE = MessageQueue("t", "broker-0", 0)


def consumer_of(cluster: Cluster, config: ConsumerConfig = FAST) -> Consumer:
    consumer = Consumer("g", name_servers=cluster.name_servers, config=config)
    consumer.subscribe("t")
    return consumer


async def send(cluster: Cluster, *bodies: bytes) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for body in bodies:
            await producer.send(Message("t", body), queue=QUEUE)


async def committed(cluster: Cluster) -> int | None:
    async with PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
        return await reader.committed(QUEUE)


async def receive(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    return [await anext(consumer) for _ in range(count)]


async def test_messages_are_acknowledged_in_any_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2", b"3")
        async with consumer_of(cluster) as consumer:
            messages = await receive(consumer, 4)
            assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
            for index in (3, 1, 0):
                assert await messages[index].ack()
        assert await committed(cluster) == 2
        async with consumer_of(cluster) as consumer:
            again = await receive(consumer, 2)
            assert [message.body for message in again] == [b"2", b"3"]
            assert [await message.ack() for message in again] == [True, True]
        assert await committed(cluster) == 4


async def test_a_message_is_settled_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            message = await anext(consumer)
            await message.ack()
            with pytest.raises(ClientError, match=r"offset 0 of t@broker-0:0 cannot be retried: it was acknowledged"):
                await message.retry()


async def test_a_loop_ends_when_the_consumer_is_closed_after_its_message(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        consumer = consumer_of(cluster)
        await consumer.start()
        began, may_end = asyncio.Event(), asyncio.Event()

        async def loop() -> list[bytes]:
            done = []
            async for message in consumer:
                began.set()
                await may_end.wait()
                assert await message.ack()
                done.append(message.body)
            return done

        looping = asyncio.create_task(loop())
        await began.wait()
        closing = asyncio.create_task(consumer.close())
        while not consumer._buffer or not consumer._buffer.is_closed:
            await asyncio.sleep(0)
        assert not closing.done()
        may_end.set()
        assert await looping == [b"0"]
        await closing
        assert await committed(cluster) == 1
        await consumer.close()


async def test_a_loop_that_is_left_does_not_delay_the_close(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        config = ClientConfig(cluster.name_servers, close_timeout=90)
        consumer = Consumer("g", config=FAST, client_config=config)
        consumer.subscribe("t")
        async with consumer:
            message = await anext(consumer)
        assert not await message.ack()
        assert await committed(cluster) in {None, 0}
        assert await receive_none(consumer)


async def receive_none(consumer: Consumer) -> bool:
    return not [message async for message in consumer]


async def test_a_cancelled_receive_takes_no_message(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster) as consumer:
            waiting = asyncio.create_task(anext(consumer))
            batches = consumer.batches(max_messages=2, max_wait=60)
            collecting = asyncio.create_task(anext(batches))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await send(cluster, b"0")
            assert consumer._buffer is not None
            await eventually(lambda: consumer._buffer is not None and bool(consumer._buffer._waiting))
            collecting.cancel()
            await asyncio.wait([collecting])
            assert (await anext(consumer)).body == b"0"


async def test_batches(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2")
        async with consumer_of(cluster) as consumer:
            batches = consumer.batches(max_messages=2, max_wait=0.2)
            first = await anext(batches)
            assert [message.body for message in first] == [b"0", b"1"]
            await first[0].ack()
            assert [message.body for message in first.open] == [b"1"]
            assert await first.ack()
            assert not first.open
            second = await anext(batches)
            assert [message.body for message in second] == [b"2"]
            assert [each.kind for each in await second.retry(0)] == [RetryKind.AT_ONCE]
            [again] = await anext(batches)
            assert (again.body, again.topic, again.reconsume_times) == (b"2", "t", 1)
            await again.ack()
        assert await committed(cluster) == 3


async def test_a_retry_after_an_own_delay(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            message = await anext(consumer)
            began = asyncio.get_running_loop().time()
            assert await message.retry(after=1.5) == Retry(RetryKind.TIMER, 1.5)
            again = await anext(consumer)
            assert asyncio.get_running_loop().time() - began >= 1.4
            assert (again.body, again.reconsume_times) == (b"0", 1)
            assert await again.retry(after=1.5) == Retry(RetryKind.TIMER, 1.5)  # without properties of the first retry
            third = await anext(consumer)
            assert (third.body, third.reconsume_times) == (b"0", 2)
            await third.ack()


async def test_without_timers_a_retry_has_the_next_level(tmp_path: Path) -> None:
    async with Cluster(tmp_path, timerWheelEnable="false") as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            assert await (await anext(consumer)).retry(after=0.3) == Retry(RetryKind.LEVEL, 1, 1)
            again = await anext(consumer)
            assert (again.body, again.reconsume_times) == (b"0", 1)
            await again.ack()


async def test_a_dead_letter_has_its_reason(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1")
        async with consumer_of(cluster, replace(FAST, max_reconsume_times=0)) as consumer:
            first, second = await receive(consumer, 2)
            assert await first.dead_letter("no such\x01account " + "9" * 1200)
            assert await second.retry(after=5) == Retry(RetryKind.DEAD_LETTER)
        assert await committed(cluster) == 2
        async with PullConsumer(name_servers=cluster.name_servers) as reader:
            reader.assign(await reader.queues("%DLQ%g"))
            letters = await reader.poll(timeout=30)
            while len(letters) < 2:
                letters += await reader.poll(timeout=30)
        reasons = {letter.body: letter.properties.get("DLQ_REASON") for letter in letters}
        assert reasons[b"1"] is None
        reason = reasons[b"0"]
        assert reason is not None
        assert reason.startswith("no such account 99")
        assert len(reason) == 1000
        assert reason.endswith("…")


async def test_a_message_that_no_broker_takes_back_stays_open(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            message = await anext(consumer)
            port = int(cluster.broker().address.rpartition(":")[2])
            await cluster.stop_broker(0)
            with pytest.raises((NoRoute, TransportError)):
                await message.dead_letter("broken")
            await cluster.start_broker(0, port)
            assert await message.ack()


async def test_what_another_member_has_taken_over_is_not_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = replace(FAST, hand_over_timeout=0.2)
        async with consumer_of(cluster, config) as slow:
            await eventually(lambda: len([queue for queue in slow.assignment if queue.topic == "t"]) == 2)
            async with Producer("p", name_servers=cluster.name_servers) as producer:
                for number in range(2):
                    await producer.send(Message("t", b"%d" % number), queue=MessageQueue("t", "broker-0", number))
            held = await receive(slow, 2)
            async with consumer_of(cluster, config) as other:
                again = await anext(other)
                assert await again.ack()
                accepted = {message.body: await message.ack() for message in held}
                assert accepted.pop(again.body) is False
                assert list(accepted.values()) == [True]
    assert "its queue was given up, so the message is delivered again" in caplog.text


async def test_a_forgotten_acknowledgement_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.client.consumer.delivery_buffer.UNSETTLED_WARNING_S", 0.05)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2")
        async with consumer_of(cluster, replace(FAST, max_messages_per_queue=2, pull_batch=1)) as consumer:
            held = await receive(consumer, 2)
            waiting = asyncio.create_task(anext(consumer))
            await eventually(
                lambda: "reading of t@broker-0:0 is paused, because 2 of its messages are neither" in caplog.text
            )
            await held[0].ack()
            assert (await waiting).body == b"2"


async def test_paused_queues_keep_their_messages(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1")
        async with consumer_of(cluster) as consumer:
            await (await anext(consumer)).ack()
            consumer.pause()
            waiting = asyncio.create_task(anext(consumer))
            await send(cluster, b"2")
            await asyncio.sleep(0)
            assert not waiting.done()
            consumer.resume()
            assert (await waiting).body == b"1"
            assert (await anext(consumer)).body == b"2"


async def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use a PushConsumer with order="):
        Consumer("g", config=ConsumerConfig(order=Order.BY_KEY))
    consumer = Consumer("g")
    with pytest.raises(ClientClosed, match="not started"):
        await anext(consumer)
    with pytest.raises(ClientClosed, match="not started"):
        consumer.batches()
    with pytest.raises(ConfigError, match="max_messages must be a whole number above 0"):
        consumer.batches(max_messages=0)
    with pytest.raises(ConfigError, match="max_wait must be a number from 0"):
        consumer.batches(max_wait=-1)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            message = await anext(consumer)
            with pytest.raises(ConfigError, match="after must be a number from 0"):
                await message.retry(after=-1)
            with pytest.raises(ConfigError, match="reason must be text"):
                await message.dead_letter(None)  # type: ignore[arg-type]
            await message.ack()
        folder = tmp_path / "offsets"
        broadcast = replace(FAST, message_model=MessageModel.BROADCASTING, offset_folder=folder)
        async with consumer_of(cluster, broadcast) as consumer:
            message = await anext(consumer)
            with pytest.raises(ClientError, match="group g broadcasts"):
                await message.retry()
            await message.ack()


async def test_without_asyncio(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2", b"3")
        done: list[bytes] = []

        def consume() -> None:
            consumer = BlockingConsumer("g", name_servers=cluster.name_servers, config=FAST)
            with pytest.raises(ClientClosed):
                next(consumer)
            consumer.subscribe("t")
            with consumer:
                assert {queue.topic for queue in consumer.assignment} <= {"t", "%RETRY%g"}
                message = next(consumer)
                assert message.retry(0).kind is RetryKind.AT_ONCE
                for batch in consumer.batches(max_messages=2, max_wait=10):
                    done.extend(message.body for message in batch)
                    assert batch.ack()
                    if len(done) == 4:
                        break
                closer = threading.Timer(0.2, consumer.close)
                closer.start()
                assert list(consumer) == []
                closer.join()
            assert next(consumer, None) is None

        await asyncio.to_thread(consume)
        assert sorted(done) == [b"0", b"1", b"2", b"3"]
        assert await committed(cluster) == 4
