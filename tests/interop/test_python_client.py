"""The Python client with Apache RocketMQ 5.3.3: the results equal those with RaptorMQ's brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    Compression,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullStatus,
    PushConsumer,
    SendStatus,
)
from raptormq.errors import KeyMissing, NoRoute, ServerError
from tests.client.single_key import OneKey
from tests.interop.make_reference import PATIENCE
from tests.interop.rocketmq_java import RocketMQServers, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

QUICK_RETRIES = {"messageDelayLevel": "1s 1s 1s 1s"}
"""The first retry has level 3."""
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.5)


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = RocketMQServers(build(), tmp_path_factory.mktemp("rocketmq"), settings=PATIENCE | QUICK_RETRIES)
    servers.start()
    yield servers.name_servers
    servers.kill()


async def create_topic(name_servers: str, topic: str, queues: int = 4, **attributes: str) -> None:
    """Create a topic and wait for its route, because RocketMQ registers it after the response."""
    async with AdminClient(name_servers=name_servers) as admin:
        named = {name.replace("_", "."): value for name, value in attributes.items()}
        await admin.create_topic(topic, queues, queues, attributes=named)
        while await admin.route(topic) is None:
            await asyncio.sleep(0.05)


async def runtime_info(admin: AdminClient, address: str) -> dict[str, str]:
    """Return the runtime info of a broker. The request fails at RocketMQ until the broker has counted its sends for the
    first time, one second after its start.
    """
    while True:
        try:
            return await admin.runtime_info(address)
        except ServerError as error:
            if "NoSuchElementException" not in str(error):
                raise
            await asyncio.sleep(0.05)


async def read(name_servers: str, queue: MessageQueue, offset: int, count: int) -> list[MessageExt]:
    """Pull the first `count` messages from `offset` on. RocketMQ builds the queue after the response to a send."""
    messages: list[MessageExt] = []
    async with PullConsumer(name_servers=name_servers) as consumer:
        while len(messages) < count:
            pulled = await consumer.pull(queue, offset, suspend_ms=2000)
            offset = pulled.next_offset
            messages += pulled.messages()
    return messages[:count]


async def test_topics(name_servers: str) -> None:
    await create_topic(name_servers, "topics", 3, message_type="NORMAL")
    async with AdminClient(name_servers=name_servers) as admin:
        info = await admin.cluster_info()
        assert info.clusters == {"DefaultCluster": ["broker-a"]}
        address = info.brokers["broker-a"].broker_addrs[0]
        config = await admin.topic_config(address, "topics")
        assert config is not None
        assert (config.read_queue_nums, config.attributes) == (3, {"message.type": "NORMAL"})
        assert await admin.topic_config(address, "nope") is None
        assert await admin.route("nope") is None
        assert "topics" in await admin.topics()
        assert {queue.queue_id for queue in await admin.topic_stats("topics")} == {0, 1, 2}
        assert (await runtime_info(admin, address))["brokerVersionDesc"] == "V5_3_3"
        await admin.delete_topic("topics")
        assert await admin.route("topics") is None


async def test_groups(name_servers: str) -> None:
    await create_topic(name_servers, "counted", 1)
    got: asyncio.Queue[MessageExt] = asyncio.Queue()

    async def listen(messages: list[MessageExt]) -> None:
        for message in messages:
            got.put_nowait(message)

    async with AdminClient(name_servers=name_servers) as admin, Producer("p", name_servers=name_servers) as producer:
        await producer.send(Message("counted", b"1"))
        consumer = PushConsumer("counters", name_servers=name_servers, config=FROM_FIRST)
        consumer.subscribe("counted", "*", listen)
        async with consumer:
            await got.get()
            connections = await admin.group_connections("counters")
        assert connections is not None
        assert [member.language for member in connections.members] == ["PYTHON"]
        assert connections.subscriptions["counted"].expression == "*"
        await producer.send(Message("counted", b"2"))
        while True:
            [progress] = (await admin.group_progress("counters", "counted")).values()
            if progress.lag == 1:
                break
            await asyncio.sleep(0.05)
        assert progress.consumer_offset == 1
        assert {queue.topic for queue in await admin.group_progress("counters")} >= {"counted"}
        assert await admin.group_connections("counters") is None
        assert "counters" in await admin.groups()
        assert list((await admin.reset_group("counters", "counted", 0)).values()) == [0]
        [progress] = (await admin.group_progress("counters", "counted")).values()
        assert progress.lag == 2


async def test_messages_one_by_one(name_servers: str) -> None:
    await create_topic(name_servers, "single")
    await create_topic(name_servers, "oneway", 1)
    async with Producer("p", name_servers=name_servers) as producer:
        sent = Message("single", b"\x00body\xff", "A", ("k1", "k2"), {"colour": "grün"}, flag=-7)
        result = await producer.send(sent)
        large = await producer.send(Message("single", b"text " * 5000))
        created = await producer.send(Message("created-by-sending", b"x"))
        await producer.send_oneway(Message("oneway", b"unanswered"))
    assert (result.status, created.status) == (SendStatus.SEND_OK, SendStatus.SEND_OK)
    [stored] = await read(name_servers, result.queue, result.queue_offset, 1)
    assert (stored.body, stored.tags, stored.keys, stored.flag) == (sent.body, "A", ("k1", "k2"), -7)
    assert stored.properties["colour"] == "grün"
    assert (stored.message_id, stored.offset_message_id) == (result.message_id, result.offset_message_id)
    assert (await read(name_servers, large.queue, large.queue_offset, 1))[0].body == b"text " * 5000
    [unanswered] = await read(name_servers, MessageQueue("oneway", "broker-a", 0), 0, 1)
    assert unanswered.body == b"unanswered"


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_lists(name_servers: str, queue_type: str) -> None:
    topic = f"lists-{queue_type}"
    await create_topic(name_servers, topic, 1, queue_type=queue_type)
    messages = [Message(topic, b"%d" % number, f"T{number % 2}") for number in range(20)]
    async with Producer("p", name_servers=name_servers) as producer:
        for base in (0, 20):
            assert (await producer.send_batch(messages)).queue_offset == base
    stored = await read(name_servers, MessageQueue(topic, "broker-a", 0), 0, 40)
    assert [m.queue_offset for m in stored] == list(range(40))
    assert [(m.body, m.tags) for m in stored] == [(m.body, m.tags) for m in messages] * 2


async def test_batches_for_many_queues_go_one_by_one(name_servers: str) -> None:
    """RocketMQ does not support requests for several queues. The attempt causes no loss, no duplicates and no
    disorder.
    """
    await create_topic(name_servers, "many", 32)
    queues = [MessageQueue("many", "broker-a", number) for number in range(32)]
    async with Producer("p", name_servers=name_servers, auto_batch=True) as producer:
        for _ in range(2):
            futures = [producer.submit(Message("many", b"x"), queue=queue) for _ in range(3) for queue in queues]
            results = await asyncio.gather(*futures)
    assert [result.queue for result in results] == queues * 3
    assert [result.queue_offset for result in results] == [offset for offset in (3, 4, 5) for _ in queues]
    async with AdminClient(name_servers=name_servers) as admin:
        while {each.max_offset for each in (await admin.topic_stats("many")).values()} != {6}:
            await asyncio.sleep(0.05)


async def test_batches_are_consumed_whole_and_retried_one_by_one(name_servers: str) -> None:
    await create_topic(name_servers, "whole", 1, queue_type="BatchCQ")
    seen: list[list[tuple[bytes, str | None, int, int]]] = []
    retried = asyncio.Event()

    async def listener(batch: MessageBatch) -> list[int]:
        seen.append([(each.body, each.tags, each.queue_offset, each.reconsume_times) for each in batch])
        if batch[0].reconsume_times:
            retried.set()
            return []
        return [index for index, body in enumerate(batch.bodies()) if bytes(body) == b"2"]

    messages = [Message("whole", b"%d" % number, "T") for number in range(4)]
    async with Producer("p", name_servers=name_servers) as producer:
        await producer.send_batch(messages[:3])
        await producer.send_batch(messages[3:])
    async with PullConsumer(name_servers=name_servers) as reader:
        queue = MessageQueue("whole", "broker-a", 0)
        reader.assign([queue])
        reader.seek(queue, 1)
        found: list[MessageExt] = []
        while len(found) < 3:
            found += await reader.poll(5)
        assert [each.queue_offset for each in found] == [1, 2, 3]
    async with PushConsumer("g-whole", name_servers=name_servers, config=FROM_FIRST) as consumer:
        consumer.subscribe_batches("whole", "*", listener)
        await retried.wait()
    assert sorted(seen[:2]) == [
        [(b"0", "T", 0, 0), (b"1", "T", 1, 0), (b"2", "T", 2, 0)],
        [(b"3", "T", 3, 0)],
    ]
    [[again]] = seen[2:]
    assert (again[0], again[3]) == (b"2", 1)


@pytest.mark.parametrize("compression", list(Compression), ids=lambda compression: compression.name)
@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_compressed_batches(name_servers: str, queue_type: str, compression: Compression) -> None:
    topic = f"compressed-{queue_type}-{compression.name}"
    await create_topic(name_servers, topic, 1, queue_type=queue_type)
    config = ProducerConfig(compress_batches=True, compression=compression, auto_batch=True, batch_max_delay_ms=50)
    bodies = [b"%d again and again " % number * 300 for number in range(4)]
    queue = MessageQueue(topic, "broker-a", 0)
    async with Producer("p", name_servers=name_servers, config=config) as producer:
        for base in (0, 4, 8):
            sent = [producer.submit(Message(topic, body)) for body in bodies]
            results = await asyncio.gather(*sent)
            assert [result.queue_offset for result in results] == list(range(base, base + 4))
    messages = await read(name_servers, queue, 0, 12)
    assert [message.body for message in messages] == bodies * 3
    assert [message.queue_offset for message in messages] == list(range(12))
    assert all(message.sys_flag & 0x1 for message in messages[4:])
    assert all(bool(message.sys_flag & 0x80) is (queue_type == "BatchCQ") for message in messages)


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_encrypted_batches(name_servers: str, queue_type: str) -> None:
    topic = f"encrypted-{queue_type}"
    await create_topic(name_servers, topic, 1, queue_type=queue_type)
    config = ClientConfig(name_servers, keys=OneKey())
    bodies = [b"%d secret" % number for number in range(4)]
    async with Producer("p", config=ProducerConfig(encrypt=True), client_config=config) as producer:
        for _ in range(2):
            await producer.send_batch([Message(topic, body, "T") for body in bodies])
        await producer.send(Message(topic, b"alone"))
    async with PullConsumer(client_config=config) as consumer:
        queue = MessageQueue(topic, "broker-a", 0)
        consumer.assign([queue])
        found: list[MessageExt] = []
        while len(found) < 9:
            found += await consumer.poll(5)
        assert b"secret" not in (await consumer.pull(queue, 0)).body
    assert [message.body for message in found] == [*bodies, *bodies, b"alone"]
    async with PullConsumer(name_servers=name_servers) as stranger:
        with pytest.raises(KeyMissing, match="'k1', and this client has no keys"):
            (await stranger.pull(queue, 0)).messages()


async def found_by(admin: AdminClient, topic: str, key: str, count: int = 1) -> list[MessageExt]:
    """Search until this number of messages is found, because RocketMQ indexes a message after the response to a
    send.
    """
    while len(found := await admin.find_messages(topic, key)) < count:
        await asyncio.sleep(0.05)
    return found


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
@pytest.mark.parametrize("kind", ["plain", "compressed", "encrypted"])
async def test_messages_are_found_by_key_and_by_place(name_servers: str, queue_type: str, kind: str) -> None:
    """RocketMQ returns batches as they are stored, and finds them by the keys of the batch."""
    topic = f"found-{queue_type}-{kind}"
    await create_topic(name_servers, topic, 1, queue_type=queue_type)
    merging = ProducerConfig(auto_batch=True, batch_max_delay_ms=50, compress_over_bytes=64)
    config = replace(merging, compress_batches=kind == "compressed", encrypt=kind == "encrypted")
    client = ClientConfig(name_servers, keys=OneKey())
    bodies = [b"%d again and again " % number * 30 for number in range(8)]
    async with (
        Producer("p", config=config, client_config=client) as producer,
        AdminClient(client_config=client) as admin,
    ):
        await producer.send(Message(topic, b"alone", keys=("grün", "all")))
        for part in (range(4), range(4, 8)):
            merged = [producer.submit(Message(topic, bodies[n], "T", (f"k{n}", "all"))) for n in part]
            sent = await asyncio.gather(*merged)
        [single] = await found_by(admin, topic, "grün")
        assert single.body == b"alone"
        assert await admin.find_messages(topic, single.message_id) == [single]
        assert await admin.message(single.offset_message_id) == single
        assert await admin.find_messages(topic, "nothing") == []
        in_order = await found_by(admin, topic, "all", 9)
        assert sorted(each.body for each in in_order) == sorted([b"alone", *bodies])
        assert [each.queue_offset for each in in_order] == [*range(9)]
        if queue_type == "BatchCQ":
            [found] = await found_by(admin, topic, "k6")
            assert (found.body, found.queue_offset, found.tags) == (bodies[6], 7, "T")
            there = await admin.message(sent[0].offset_message_id)
            assert there is not None
            assert (there.body, there.queue) == (bodies[4], found.queue)


async def test_a_group_consumes_everything_retries_and_goes_on_later(name_servers: str) -> None:
    await create_topic(name_servers, "group", 4)
    expected = {b"%d" % number for number in range(40)}
    seen: dict[bytes, list[int]] = {}
    done = asyncio.Event()

    async def listener(messages: list[MessageExt]) -> ConsumeResult:
        [message] = messages
        assert message.topic == "group"
        seen.setdefault(message.body, []).append(message.reconsume_times)
        if message.body == b"7" and message.reconsume_times == 0:
            return ConsumeResult.RECONSUME_LATER
        if set(seen) == expected and 1 in seen[b"7"]:
            done.set()
        return ConsumeResult.SUCCESS

    async with Producer("p", name_servers=name_servers) as producer:
        for body in sorted(expected):
            await producer.send(Message("group", body))
    async with PushConsumer("g", name_servers=name_servers, config=FROM_FIRST) as consumer:
        consumer.subscribe("group", "*", listener)
        await done.wait()
    assert {body: times for body, times in seen.items() if times != [0]} == {b"7": [0, 1]}
    async with PullConsumer(name_servers=name_servers, group="g") as reader:
        for queue in await reader.queues("group"):
            assert await reader.committed(queue) == await reader.max_offset(queue) == 10


async def test_members_share_the_queues(name_servers: str) -> None:
    await create_topic(name_servers, "shared", 4)

    async def listener(messages: list[MessageExt]) -> None:
        """Accept every message."""

    consumers = [PushConsumer("members", name_servers=name_servers, config=FROM_FIRST) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe("shared", "*", listener)

    def shares() -> list[int]:
        return [len([queue for queue in each.assignment if queue.topic == "shared"]) for each in consumers]

    async with consumers[0], consumers[1]:
        while shares() != [2, 2]:
            await asyncio.sleep(0.05)
        await consumers[1].stop()
        while shares() != [4, 0]:
            await asyncio.sleep(0.05)


async def test_offsets_and_pulls(name_servers: str) -> None:
    await create_topic(name_servers, "offsets", 1)
    queue = MessageQueue("offsets", "broker-a", 0)
    async with Producer("p", name_servers=name_servers) as producer:
        for number in range(5):
            await producer.send(Message("offsets", b"%d" % number, "AB"[number % 2]))
    await read(name_servers, queue, 0, 5)
    async with PullConsumer(name_servers=name_servers, group="pullers") as consumer:
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 5)
        assert await consumer.offset_by_time(queue, int(time.time() * 1000) + 60_000) == 5
        end = await consumer.pull(queue, 5)
        assert (end.status, end.next_offset) == (PullStatus.NO_NEW_MESSAGE, 5)
        beyond = await consumer.pull(queue, 99)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
        tagged = await consumer.pull(queue, 0, expression="B")
        assert [message.body for message in tagged.messages()] == [b"1", b"3"]
        consumer.assign([queue])
        consumer.seek(queue, 3)
        assert [message.body for message in await consumer.poll(10)] == [b"3", b"4"]
        await consumer.commit()
        assert await consumer.committed(queue) == 5
        with pytest.raises(NoRoute):
            await consumer.queues("nope")
