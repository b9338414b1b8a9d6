"""Stored offsets of a topic that was deleted and recreated are not used for the new topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    MessageExt,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.consumer.local_offsets import LocalOffsets
from raptormq.errors import ServerError
from raptormq.protocol.message import Message, MessageQueue
from tests.client.consumer.test_push_consumer import readers
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.recording_listener import Listener

OLD = [b"old %d" % number for number in range(10)]
NEW = [b"new %d" % number for number in range(30)]
"""More than the stored offsets, so that only the id distinguishes the two topics."""
QUEUE = MessageQueue("t", "broker-0", 0)


def broadcasting(folder: Path, where: ConsumeFromWhere = ConsumeFromWhere.FIRST) -> ConsumerConfig:
    return ConsumerConfig(
        consume_from=where,
        commit_interval=0.1,
        message_model=MessageModel.BROADCASTING,
        offset_folder=str(folder / "offsets"),
    )


async def send(cluster: Cluster, messages: list[bytes]) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for body in messages:
            await producer.send(Message("t", body))


async def make_again(cluster: Cluster, messages: list[bytes], queues: int = 1) -> None:
    async with AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.delete_topic("t")
    await cluster.create_topic("t", queues)
    await send(cluster, messages)


async def consume(cluster: Cluster, config: ConsumerConfig, count: int) -> Listener:
    """Run a consumer until it has this number of messages and has committed their offsets."""
    listener = Listener()
    consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
    consumer.subscribe("t", "*", listener)
    async with consumer:
        await listener.until(count)
    return listener


@pytest.mark.parametrize("queues", [1, 3])
async def test_a_broadcasting_consumer_reads_all_of_the_new_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, queues: int
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", queues)
        await send(cluster, OLD)
        assert Counter((await consume(cluster, broadcasting(tmp_path), len(OLD))).bodies) == Counter(OLD)
        await send(cluster, [b"more"])
        assert (await consume(cluster, broadcasting(tmp_path), 1)).bodies == [b"more"]
        await make_again(cluster, NEW)
        assert (await consume(cluster, broadcasting(tmp_path), len(NEW))).bodies == NEW
        warnings = [text for text in caplog.messages if "was deleted and recreated" in text]
        assert len([text for text in warnings if "offsets" in text and "t" in text]) == 1
        await send(cluster, [b"at last"])
        assert (await consume(cluster, broadcasting(tmp_path), 1)).bodies == [b"at last"]


async def test_a_broadcasting_consumer_of_the_latest_begins_at_the_end_of_the_new_topic(tmp_path: Path) -> None:
    listener = Listener()
    async with Cluster(tmp_path) as cluster, PullConsumer(name_servers=cluster.name_servers) as asking:

        async def consume_one(body: bytes, count: int) -> None:
            config = broadcasting(tmp_path, ConsumeFromWhere.LAST)
            consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
            consumer.subscribe("t", "*", listener)
            topic_id = await asking.topic_id(QUEUE)
            async with consumer:
                await eventually(
                    lambda: (
                        [read.process_queue and read.process_queue.topic_id for read in readers(consumer)] == [topic_id]
                    )
                )
                await send(cluster, [body])
                await listener.until(count)

        await cluster.create_topic("t", 1)
        await consume_one(b"old", 1)
        await make_again(cluster, NEW)
        await consume_one(b"new", 2)
    assert listener.bodies == [b"old", b"new"]


async def test_offsets_without_ids_as_of_the_java_client_are_taken_as_they_are(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, OLD)
        config = broadcasting(tmp_path)
        await consume(cluster, config, len(OLD))
        [file] = (tmp_path / "offsets").glob("*/g/offsets.json")
        assert b'"topicIds":{"t":{"broker-0":"' in file.read_bytes()
        file.write_bytes(b'{"offsetTable":{{"brokerName":"broker-0","queueId":0,"topic":"t"}:4}}')
        listener = await consume(cluster, config, len(OLD) - 4)
        assert b'"topicIds":{"t":{"broker-0":"' in file.read_bytes()
    assert listener.bodies == OLD[4:]


@pytest.mark.parametrize("model", list(MessageModel))
async def test_a_consumer_that_is_busy_reads_all_of_the_new_topic(tmp_path: Path, model: MessageModel) -> None:
    """It pulls only when its listener is ready, and then at an offset that the new topic also has."""
    bodies, gate = list[bytes](), asyncio.Event()

    async def listen(messages: list[MessageExt]) -> ConsumeResult:
        bodies.extend(message.body for message in messages)
        await gate.wait()
        return ConsumeResult.SUCCESS

    config = ConsumerConfig(
        consume_from=ConsumeFromWhere.FIRST,
        message_model=model,
        offset_folder=str(tmp_path / "offsets"),
        commit_interval=0.1,
        max_messages_per_queue=len(OLD),
        pull_batch=len(OLD),
        concurrency=1,
    )
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, OLD)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", listen)
        async with consumer:
            await eventually(lambda: bodies == OLD[:1])
            await make_again(cluster, NEW)
            gate.set()
            await eventually(lambda: len(bodies) >= len(OLD) + len(NEW))
    assert Counter(bodies) == Counter(OLD) + Counter(NEW)


async def test_progress_in_the_topic_before_is_not_committed_in_the_new_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, OLD)
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as consumer:
            consumer.assign([QUEUE])
            while consumer.position(QUEUE) != len(OLD):
                await consumer.poll()
            await make_again(cluster, NEW)
            with pytest.raises(ServerError) as refused:
                await consumer.commit()
            assert refused.value.code == 31002
            assert await consumer.committed(QUEUE) in (None, 0)


async def test_a_pull_consumer_goes_on_at_the_begin_of_the_new_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = list[bytes]()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, OLD)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([QUEUE])
            while len(found) < len(OLD):
                found += [message.body for message in await consumer.poll()]
            await make_again(cluster, NEW)
            while len(found) < len(OLD) + len(NEW):
                found += [message.body for message in await consumer.poll()]
    assert found == OLD + NEW
    assert "was deleted and recreated" in caplog.text


async def test_who_names_a_topic_gets_nothing_of_another(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, PullConsumer(name_servers=cluster.name_servers) as consumer:
        await cluster.create_topic("t", 1)
        await send(cluster, OLD)
        old = await consumer.topic_id(QUEUE)
        assert old is not None
        assert await consumer.max_offset(QUEUE, topic_id=old) == len(OLD)
        assert (await consumer.pull(QUEUE, 3, topic_id=old)).next_offset == len(OLD)
        await make_again(cluster, NEW)
        for ask in (
            consumer.min_offset(QUEUE, topic_id=old),
            consumer.max_offset(QUEUE, topic_id=old),
            consumer.offset_by_time(QUEUE, 1, topic_id=old),
            consumer.pull(QUEUE, 3, topic_id=old),
        ):
            with pytest.raises(ServerError, match="was deleted and recreated") as refused:
                await ask
            assert refused.value.code == 31002
        assert await consumer.topic_id(QUEUE) not in (None, old)
        assert await consumer.max_offset(QUEUE) == len(NEW)


async def test_local_offsets_are_of_one_topic(tmp_path: Path) -> None:
    first, second = (MessageQueue("t", "b", number) for number in range(2))
    other = MessageQueue("u", "b", 0)
    offsets = LocalOffsets(tmp_path, "me", "g")
    for queue in (first, second):
        await offsets.store(queue, 10, "old")
    await offsets.store(other, 7)
    path = tmp_path / "me" / "g" / "offsets.json"
    assert path.read_bytes().endswith(b',"topicIds":{"t":{"b":"old"}}}')
    again = LocalOffsets(tmp_path, "me", "g")
    assert (again.get(second), again.topic_id(second), again.topic_id(other)) == (10, "old", None)
    await again.store(first, 1, "new")
    assert (again.get(first), again.get(second), again.topic_id(second)) == (1, None, "new")
    await again.store(second, 11, "old")
    assert (again.get(second), again.topic_id(second)) == (None, "new"), "a reader that has not heard of it yet"
    await again.store(second, 2)
    await again.store(second, 3, "new")
    assert LocalOffsets(tmp_path, "me", "g").get(second) == 3
    assert again.forget(first, "new")
    assert not again.forget(second, "new")
    assert (again.get(first), again.topic_id(first), again.get(other)) == (None, None, 7)
