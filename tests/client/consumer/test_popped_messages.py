"""Settling of popped messages: batches, retries, dead letters, the end of the invisible time, interceptors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    BlockingPopConsumer,
    ClientConfig,
    ConsumeContext,
    ConsumerInterceptor,
    DeadLetterContext,
    Described,
    Message,
    MessageExt,
    MessageQueue,
    PopConsumer,
    PoppedBatch,
    Producer,
    PullConsumer,
    ReadState,
    RetryKind,
)
from raptormq.errors import ClientClosed, ClientError, ConfigError, RaptorMQError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

QUEUE = MessageQueue("t", "broker-0", 0)


async def send(cluster: Cluster, count: int) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number in range(count):
            await producer.send(Message("t", b"%d" % number), queue=QUEUE)


async def stored(cluster: Cluster, topic: str) -> list[MessageExt]:
    """Return the messages of the first queue of a topic."""
    async with PullConsumer(name_servers=cluster.name_servers) as reader:
        pulled = await reader.pull(MessageQueue(topic, "broker-0", 0), 0, 32)
    return list(pulled.messages())


def bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


class Noting(ConsumerInterceptor):
    """Records its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_start(self, client: Described) -> None:
        assert client.describe().is_started
        self.events.append("start")

    def on_close(self, client: Described) -> None:
        self.events.append("close")

    def before_consume(self, context: ConsumeContext) -> None:
        assert not context.in_listener
        assert context.topic == "t"
        self.events.append(f"before {context.messages[0].body.decode()}")

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.status is not None
        self.events.append(f"{context.status.value} {context.messages[0].body.decode()}")

    def on_dead_letter(self, context: DeadLetterContext) -> None:
        self.events.append(f"on_dead_letter {context.message.body.decode()} {context.reason}")


async def test_batches(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 41)  # more than one pop returns
        async with PopConsumer("g", "t", name_servers=cluster.name_servers) as consumer:
            batches = consumer.batches(max_messages=40, max_wait=60)
            first = await anext(batches)
            assert len(first) == 40
            await first[0].retry(0)
            assert len(first.open) == 39
            assert await first.ack()
            assert first.open == []
            second = await anext(consumer.batches(max_messages=2, max_wait=60))
            assert bodies(second) == bodies([first[0], MessageExt("t", b"40", {}, QUEUE, 0, 0, "", "", 0, 0)])
            assert await second.change_invisible_time(300)
            assert [each.kind for each in await second.retry(0)] == [RetryKind.AT_ONCE] * 2
            third = await anext(consumer.batches(max_messages=2, max_wait=60))
            assert await third.dead_letter("bad")
        assert len(await stored(cluster, "%DLQ%g")) == 2
        assert [batch async for batch in batches] == []


async def test_a_cancelled_batch_loses_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 1)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers) as consumer:

            async def first() -> PoppedBatch:
                return await anext(consumer.batches(max_messages=10, max_wait=60))

            filling = asyncio.create_task(first())
            await eventually(lambda: sum(queue.running_calls for queue in consumer.describe().queues) == 1)
            filling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await filling
            [message] = await consumer.receive(timeout=0)
            assert message.body == b"0"
            assert await message.ack()


@pytest.mark.parametrize("auto_create", ["true", "false"])
async def test_retries_and_dead_letters(tmp_path: Path, auto_create: str) -> None:
    noting = Noting()
    async with Cluster(tmp_path, autoCreateTopicEnable=auto_create) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 3)
        async with PopConsumer(
            "g", "t", name_servers=cluster.name_servers, invisible_time=4, max_reconsume_times=1, interceptors=[noting]
        ) as consumer:
            zero, one, two = await consumer.receive(3)
            assert await zero.ack()
            assert await one.retry(0.2) == (RetryKind.TIMER, 0.2, None)
            assert await two.dead_letter("bad\x01price")
            again = await anext(consumer)
            assert (again.body, again.reconsume_times) == (b"1", 1)
            assert (await again.retry()).kind is RetryKind.DEAD_LETTER
            assert await consumer.receive(timeout=6) == []  # longer than the invisible time
        letters = await stored(cluster, "%DLQ%g")
    assert [(letter.body, letter.properties.get("DLQ_REASON")) for letter in letters] == [
        (b"2", "bad price"),
        (b"1", None),
    ]
    assert not any("POP_CK" in letter.properties for letter in letters)
    assert noting.events == [
        *("start", "before 0", "before 1", "before 2"),
        *("consumed 0", "retried 1", "on_dead_letter 2 bad price", "dead letter 2"),
        *("before 1", "on_dead_letter 1 None", "dead letter 1", "close"),
    ]


async def test_the_end_of_the_invisible_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noting = Noting()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 1)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, interceptors=[noting]) as consumer:
            [late] = await consumer.receive(1)
            assert await late.change_invisible_time(0.6)
            await eventually(lambda: "abandoned 0" in noting.events)
            assert not await late.ack()
            assert not await late.change_invisible_time(10)
            assert (await late.retry(1)).kind is RetryKind.HANDED_OVER
            assert "acknowledged too late: its invisible time was over" in caplog.text
            [again] = await consumer.receive(1, timeout=60)
            assert (again.body, again.reconsume_times) == (b"0", 1)
            assert await again.ack()
            for settle in (again.ack, again.retry, lambda: again.change_invisible_time(1)):
                with pytest.raises(ClientError, match="it was acknowledged before"):
                    await settle()
    assert noting.events == ["start", "before 0", "abandoned 0", "before 0", "consumed 0", "close"]


async def test_a_message_that_is_never_settled_becomes_a_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 1)
        async with PopConsumer(
            "g",
            "t",
            name_servers=cluster.name_servers,
            invisible_time=0.3,
            max_reconsume_times=2,
            interceptors=[noting],
        ) as consumer:
            times = [message.reconsume_times for _ in range(3) for message in await consumer.receive(timeout=60)]
            assert times == [0, 1, 2]
            receiving = asyncio.create_task(consumer.receive(timeout=3600))
            await eventually(lambda: any(event.startswith("on_dead_letter") for event in noting.events))
        assert await receiving == []
        [letter] = await stored(cluster, "%DLQ%g")
        assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"0", "t")
        assert "dead letter: group=g topic=t" in caplog.text
        async with PopConsumer("g", "t", name_servers=cluster.name_servers) as consumer:
            assert await consumer.receive(timeout=1) == []  # longer than the invisible time
    assert noting.events == ["start", *["before 0", "abandoned 0"] * 3, "on_dead_letter 0 None", "close"]


async def test_a_dead_letter_that_no_broker_accepts_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 1)
        async with (
            AdminClient(name_servers=cluster.name_servers) as admin,
            PopConsumer(
                "g",
                "t",
                name_servers=cluster.name_servers,
                invisible_time=0.3,
                max_reconsume_times=0,
                interceptors=[noting],
            ) as consumer,
        ):
            await admin.create_topic("%RETRY%g", 1, 1, perm=4)
            assert len(await consumer.receive(timeout=60)) == 1
            receiving = asyncio.create_task(consumer.receive(timeout=3600))
            await eventually(lambda: "is no dead letter yet" in caplog.text)
            await admin.create_topic("%RETRY%g", 1, 1, perm=6)
            await eventually(lambda: "on_dead_letter 0 None" in noting.events)
        assert await receiving == []
        # An attempt that ended with the invisible time may nevertheless be stored.
        assert {letter.body for letter in await stored(cluster, "%DLQ%g")} == {b"0"}


async def test_every_invisible_time_ends(tmp_path: Path) -> None:
    noting = Noting()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 60)
        async with PopConsumer(
            "g", "t", name_servers=cluster.name_servers, invisible_time=0.3, interceptors=[noting]
        ) as consumer:
            received = [message for _ in range(60) for message in await consumer.receive(1)]
            # By the clock of the event loop, one timer in four fires early. It must not be the last one.
            await eventually(lambda: sum(queue.running_calls for queue in consumer.describe().queues) == 0)
    assert sum(event.startswith("abandoned") for event in noting.events) == len(received)


async def test_a_refused_call_leaves_the_message_open(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 3)
        port = int(cluster.broker().address.rpartition(":")[2])
        config = ClientConfig(name_servers=(cluster.name_servers,), request_timeout=1.0)
        async with PopConsumer("g", "t", client_config=config) as consumer:
            messages = await consumer.receive(3)
            await cluster.stop_broker(0)
            for call in (messages[0].ack, lambda: messages[1].retry(0), lambda: messages[2].dead_letter("bad")):
                with pytest.raises(RaptorMQError):
                    await call()
            with pytest.raises(RaptorMQError):
                await consumer.receive(timeout=0)
            [queue] = consumer.describe().queues
            assert (queue.state, queue.running_calls) == (ReadState.FAILING, 3)
            assert queue.error
            await cluster.start_broker(0, port)
            assert await messages[0].ack()
            assert (await messages[1].retry(300)).kind is RetryKind.TIMER
            assert await messages[2].dead_letter("bad")
            assert await consumer.receive(timeout=0) == []
            [queue] = consumer.describe().queues
            assert (queue.state, queue.running_calls, queue.error) == (ReadState.READING, 0, None)


async def test_a_close_waits_for_other_tasks(tmp_path: Path) -> None:
    noting = Noting()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 2)
        config = ClientConfig(name_servers=(cluster.name_servers,), close_timeout=1000)
        consumer = PopConsumer("g", "t", client_config=config, interceptors=[noting])
        assert not consumer.describe().is_started
        await consumer.start()
        may_end = asyncio.Event()

        async def work() -> bool:
            message = await anext(consumer)
            await may_end.wait()
            return await message.ack()

        working = asyncio.create_task(work())
        mine = await anext(consumer)
        await eventually(lambda: sum(queue.running_calls for queue in consumer.describe().queues) == 2)
        asyncio.get_running_loop().call_soon(may_end.set)
        await consumer.close()
        assert working.done()
        assert await working
        assert not await mine.ack()
        with pytest.raises(ClientClosed):
            await consumer.receive()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
    mine_number, other = mine.body.decode(), str(1 - int(mine.body))
    assert noting.events[-3:] == [f"consumed {other}", f"abandoned {mine_number}", "close"]


async def test_the_message_trace(tmp_path: Path) -> None:
    async with Cluster(tmp_path, traceTopicEnable="true") as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 2)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, message_trace=True) as consumer:
            first, second = await consumer.receive(2)
            await first.ack()
            await second.retry(300)
        traces = await stored(cluster, "RMQ_SYS_TRACE_TOPIC")
    lines = [line.split("\x01") for trace in traces for line in trace.body.decode().split("\x02") if line]
    assert [line[5] for line in lines if line[0] == "SubBefore"] == [first.message_id, second.message_id]
    assert [line[2] for line in lines if line[0] == "SubAfter"] == [first.message_id, second.message_id]


async def test_without_asyncio(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 4)

        def consume() -> list[bytes]:
            consumer = BlockingPopConsumer("g", "t", name_servers=cluster.name_servers)
            with pytest.raises(ClientClosed):
                next(consumer)
            done: list[bytes] = []
            with consumer:
                message = next(consumer)
                before = message.invisible_until_ms
                assert message.change_invisible_time(200)
                assert message.invisible_until_ms > before + 100_000
                assert message.retry(0).kind is RetryKind.AT_ONCE
                [message] = consumer.receive(1)
                assert message.dead_letter("bad")
                assert consumer.describe().queues[0].running_calls == 0
                for batch in consumer.batches(max_messages=3, max_wait=60):
                    assert batch.change_invisible_time(100)
                    assert batch.ack()
                    done += [message.body for message in batch]
                    break
                closer = threading.Timer(0.2, consumer.close)
                closer.start()
                assert list(consumer) == []
                closer.join()
            assert next(consumer, None) is None
            return done

        assert len(await asyncio.to_thread(consume)) == 3
        assert len(await stored(cluster, "%DLQ%g")) == 1


async def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_reconsume_times must be a whole number from 0"):
        PopConsumer("g", "t", max_reconsume_times=-1)
    with pytest.raises(ConfigError, match="interceptors must be objects of subclasses of ConsumerInterceptor"):
        PopConsumer("g", "t", interceptors=[Noting])  # type: ignore[list-item] # the class instead of an object
    with pytest.raises(ClientClosed, match="not started"):
        PopConsumer("g", "t").batches()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, 1)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers) as consumer:
            [message] = await consumer.receive(1)
            for after in (301, -1, "1"):
                with pytest.raises(ConfigError, match="after must be a number"):
                    await message.retry(after)  # type: ignore[arg-type] # text is wrong on purpose
            with pytest.raises(ConfigError, match="reason must be text"):
                await message.dead_letter(17)  # type: ignore[arg-type] # wrong on purpose
            with pytest.raises(ConfigError, match="max_messages must be"):
                consumer.batches(max_messages=0)
            assert await message.ack()
