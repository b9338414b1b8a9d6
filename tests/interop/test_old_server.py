"""The Python client with Apache RocketMQ 4.9.7, which supports neither batch queues nor topic attributes nor RaptorMQ's
requests.

Simulated old brokers are in `tests/client/test_mixed_versions.py`. The Java client of RocketMQ 4 with RaptorMQ's broker
is one of the scenarios (`io.raptormq.interop.old`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raptormq.client import (
    AdminClient,
    Compression,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    Retry,
    RetryKind,
)
from raptormq.errors import ServerError
from tests.interop.make_reference import PATIENCE
from tests.interop.rocketmq_java import Release, RocketMQServers, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

INNER_BATCH = 0x80
QUICK_RETRIES = {"messageDelayLevel": "1s 1s 1s 1s"}
"""The first retry has level 3."""
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = RocketMQServers(
        build(), tmp_path_factory.mktemp("rocketmq4"), settings=PATIENCE | QUICK_RETRIES, release=Release.OLD
    )
    servers.start()
    yield servers.name_servers
    servers.kill()


async def create_topic(name_servers: str, topic: str, queues: int) -> list[MessageQueue]:
    """Create a topic with batch queues, which this broker ignores."""
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(topic, queues, queues, attributes={"queue.type": "BatchCQ"})
        while await admin.route(topic) is None:
            await asyncio.sleep(0.05)
        address = (await admin.cluster_info()).brokers["broker-a"].broker_addrs[0]
        with pytest.raises(ServerError, match="request type 351 not supported"):
            await admin.topic_config(address, topic)
    return [MessageQueue(topic, "broker-a", number) for number in range(queues)]


async def read(name_servers: str, queue: MessageQueue, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with PullConsumer(name_servers=name_servers) as consumer:
        while len(messages) < count:
            messages += (await consumer.pull(queue, len(messages), suspend_ms=2000)).messages()
    return messages


async def test_automatic_batches_for_many_queues(name_servers: str) -> None:
    queues = await create_topic(name_servers, "automatic", 16)
    async with Producer("p", name_servers=name_servers, auto_batch=True) as producer:
        for first in (0, 5):
            sent = [
                producer.submit(
                    Message(queue.topic, b"%d" % (first + number), "T", (f"k{first + number}",)), queue=queue
                )
                for number in range(5)
                for queue in queues
            ]
            results = await asyncio.gather(*sent)
            assert [each.queue for each in results] == queues * 5
            assert [each.queue_offset for each in results] == [first + n for n in range(5) for _ in queues]
            told = {each.message_id for each in results}
            assert len(told) == len(sent)
    for queue in queues:
        stored = await read(name_servers, queue, 10)
        assert [(each.queue_offset, each.body, each.tags) for each in stored] == [
            (n, b"%d" % n, "T") for n in range(10)
        ]
        assert not any(each.sys_flag & INNER_BATCH for each in stored)
        assert all(f"k{n}" in each.keys for n, each in enumerate(stored))


@pytest.mark.parametrize("compression", list(Compression), ids=lambda compression: compression.name)
async def test_lists_that_are_to_be_compressed_as_a_whole(name_servers: str, compression: Compression) -> None:
    topic = f"lists-{compression.name}"
    [queue] = await create_topic(name_servers, topic, 1)
    config = ProducerConfig(compress_batches=True, compression=compression)
    bodies = [b"%d again and again " % number * 300 for number in range(4)]
    async with Producer("p", name_servers=name_servers, config=config) as producer:
        for base in (0, 4, 8):
            result = await producer.send_batch([Message(topic, body, "T") for body in bodies])
            assert result.queue_offset == base
        single = await producer.send(Message(topic, bodies[0]))
        assert single.queue_offset == 12
    stored = await read(name_servers, queue, 13)
    assert [each.body for each in stored] == [*bodies * 3, bodies[0]]
    assert [each.queue_offset for each in stored] == list(range(13))
    assert not any(each.sys_flag & INNER_BATCH for each in stored)


async def test_batch_listeners_and_retries_of_single_messages(name_servers: str) -> None:
    await create_topic(name_servers, "consumed", 1)
    seen: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def listener(batch: MessageBatch) -> list[int]:
        came = [(each.body, each.reconsume_times) for each in batch]
        seen.extend(came)
        if (b"2", 1) in seen and (b"last", 0) in seen:
            done.set()
        return [index for index, each in enumerate(came) if each == (b"2", 0)]

    async with Producer("p", name_servers=name_servers, auto_batch=True) as producer:
        await producer.send_batch([Message("consumed", b"%d" % number, "T") for number in range(4)])
        await asyncio.gather(*(producer.submit(Message("consumed", b"%d" % number, "T")) for number in range(4, 8)))
        await producer.send(Message("consumed", b"last"))
    async with PushConsumer("g", name_servers=name_servers, config=FROM_FIRST) as consumer:
        consumer.subscribe_batches("consumed", "*", listener)
        await done.wait()
    assert sorted(seen) == sorted([*((b"%d" % number, 0) for number in range(8)), (b"last", 0), (b"2", 1)])


async def test_a_retry_gets_the_next_delay_level(name_servers: str) -> None:
    """Brokers of RocketMQ 4 treat TIMER_DELAY_MS as a property of the application, and deliver immediately."""
    await create_topic(name_servers, "levels", 1)
    async with Producer("p", name_servers=name_servers) as producer:
        await producer.send(Message("levels", b"x"))
    async with Consumer("g-levels", name_servers=name_servers, config=FROM_FIRST) as consumer:
        consumer.subscribe("levels")
        assert await (await anext(consumer)).retry(after=7) == Retry(RetryKind.LEVEL, 10, 3)
        message = await anext(consumer)
        assert (message.body, message.reconsume_times) == (b"x", 1)
        assert await message.dead_letter("broken")
    async with PullConsumer(name_servers=name_servers) as reader:
        reader.assign(await reader.queues("%DLQ%g-levels"))
        [letter] = await reader.poll(timeout=10)
        assert letter.properties["DLQ_REASON"] == "broken"
