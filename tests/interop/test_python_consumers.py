"""Python consumers with the newest Apache RocketMQ: individual acknowledgements, delays of retries, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Order,
    PopConsumer,
    PoppedMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    Retry,
    RetryKind,
)
from raptormq.errors import NoRoute
from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin import Place, run
from tests.interop.rocketmq_java import Release, RocketMQServers, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=1.0)


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = RocketMQServers(build(), tmp_path_factory.mktemp("rocketmq"), settings=PATIENCE, release=Release.NEWEST)
    servers.start()
    yield servers.name_servers
    servers.kill()


async def create_topic(name_servers: str, topic: str, queues: int = 1) -> None:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(topic, queues, queues)
        while await admin.route(topic) is None:
            await asyncio.sleep(0.05)


async def send(name_servers: str, topic: str, *bodies: bytes) -> None:
    async with Producer("p", name_servers=name_servers) as producer:
        for body in bodies:
            await producer.send(Message(topic, body), queue=MessageQueue(topic, "broker-a", 0))


def consumer_of(name_servers: str, topic: str, config: ConsumerConfig = FAST) -> Consumer:
    consumer = Consumer(f"g-{topic}", name_servers=name_servers, config=config)
    consumer.subscribe(topic)
    return consumer


async def test_single_acknowledgements(name_servers: str) -> None:
    await create_topic(name_servers, "acks")
    await send(name_servers, "acks", b"0", b"1", b"2")
    async with consumer_of(name_servers, "acks") as consumer:
        messages = [await anext(consumer) for _ in range(3)]
        assert await messages[2].ack()
        assert await messages[0].ack()
    async with consumer_of(name_servers, "acks") as consumer:
        [second, third] = [await anext(consumer) for _ in range(2)]
        assert (second.body, third.body) == (b"1", b"2")
        await second.ack()
        await third.ack()
    async with PullConsumer(name_servers=name_servers, group="g-acks") as reader:
        assert await reader.committed(MessageQueue("acks", "broker-a", 0)) == 3


async def test_retries_after_an_own_delay(name_servers: str) -> None:
    await create_topic(name_servers, "retries")
    await send(name_servers, "retries", b"0")
    clock = asyncio.get_running_loop().time
    async with consumer_of(name_servers, "retries") as consumer:
        for times in range(2):
            message = await anext(consumer)
            assert (message.body, message.topic, message.reconsume_times) == (b"0", "retries", times)
            began = clock()
            assert await message.retry(after=2.0) == Retry(RetryKind.TIMER, 2.0)
        message = await anext(consumer)
        assert clock() - began >= 1.0  # a timer has a precision of one second
        assert message.reconsume_times == 2
        assert (await message.retry(after=0)).kind is RetryKind.AT_ONCE
        message = await anext(consumer)
        assert message.reconsume_times == 3
        await message.ack()


async def test_dead_letters_have_a_reason(name_servers: str) -> None:
    await create_topic(name_servers, "letters")
    await send(name_servers, "letters", b"0", b"1")
    async with consumer_of(name_servers, "letters", replace(FAST, max_reconsume_times=3)) as consumer:
        first = await anext(consumer)
        assert await first.dead_letter("no such account")
        second = await anext(consumer)
        for _ in range(3):
            await second.retry(after=0)
            second = await anext(consumer)
        assert await second.retry(after=3) == Retry(RetryKind.DEAD_LETTER)
    async with PullConsumer(name_servers=name_servers) as reader:
        letters: dict[bytes, dict[str, str]] = {}
        reader.assign(await reader.queues("%DLQ%g-letters"))
        while len(letters) < 2:
            letters |= {letter.body: letter.properties for letter in await reader.poll(timeout=10)}
    assert letters[b"0"]["DLQ_REASON"] == "no such account"
    assert letters[b"0"]["RETRY_TOPIC"] == "letters"
    assert "DLQ_REASON" not in letters[b"1"]


async def test_lite_pull(name_servers: str) -> None:
    await create_topic(name_servers, "lite")
    await send(name_servers, "lite", b"0", b"1", b"2")
    queue = MessageQueue("lite", "broker-a", 0)
    async with LitePullConsumer("g-lite", name_servers=name_servers, config=FAST) as consumer:
        consumer.subscribe("lite")
        found: list[bytes] = []
        while len(found) < 3:
            found += [message.body for message in await consumer.poll()]
        assert await consumer.commit()
        assert await consumer.committed(queue) == 3
        consumer.seek(queue, 1)
        assert (await consumer.poll(max_messages=1))[0].body == b"1"


async def test_pop(name_servers: str) -> None:
    await create_topic(name_servers, "popped", 2)
    async with (
        Producer("p", name_servers=name_servers) as producer,
        PopConsumer("g-pop", "popped", name_servers=name_servers, invisible_time=5) as first,
        PopConsumer("g-pop", "popped", name_servers=name_servers, invisible_time=5) as second,
    ):
        waiting = asyncio.create_task(first.receive(timeout=60))
        for number in range(4):
            await producer.send(Message("popped", b"%d" % number))
        found = await waiting
        while len(found) < 4:
            found += await second.receive()
        kept, longer, *others = sorted(found, key=lambda message: message.body)
        for message in others:
            await message.ack()
        await longer.change_invisible_time(60)
        again: list[PoppedMessage] = []
        while not again:
            again = await second.receive()
        assert [(message.body, message.topic, message.reconsume_times) for message in again] == [
            (kept.body, "popped", 1)
        ]
        assert await again[0].ack()
        assert await longer.ack()
        assert await second.receive(timeout=7) == []


async def test_popped_batches_retries_and_dead_letters(name_servers: str) -> None:
    await create_topic(name_servers, "settled")
    await send(name_servers, "settled", b"0", b"1", b"2")
    async with PopConsumer("g-settled", "settled", name_servers=name_servers, max_reconsume_times=1) as consumer:
        batch = await anext(consumer.batches(max_messages=3, max_wait=30))
        by_body = {message.body: message for message in batch}
        assert (await by_body[b"1"].retry(1)).kind is RetryKind.TIMER
        assert await by_body[b"2"].dead_letter("no price")
        assert await batch.ack()
        again = await anext(consumer)
        assert (again.body, again.reconsume_times) == (b"1", 1)
        assert (await again.retry()).kind is RetryKind.DEAD_LETTER
    found: dict[bytes, str | None] = {}
    async with PullConsumer(name_servers=name_servers) as reader:
        reader.assign(await reader.queues("%DLQ%g-settled"))
        while len(found) < 2:
            found |= {message.body: message.properties.get("DLQ_REASON") for message in await reader.poll()}
    assert found == {b"2": "no price", b"1": None}


async def test_a_popped_message_that_is_never_settled(name_servers: str) -> None:
    await create_topic(name_servers, "unsettled")
    await send(name_servers, "unsettled", b"0")
    async with PopConsumer(
        "g-unsettled", "unsettled", name_servers=name_servers, invisible_time=2, max_reconsume_times=1
    ) as consumer:
        times = [message.reconsume_times for _ in range(2) for message in await consumer.receive(timeout=60)]
        assert times == [0, 1]
        receiving = asyncio.create_task(consumer.receive(timeout=3600))
        async with PullConsumer(name_servers=name_servers) as reader:
            letters = await existing_queues(reader, "%DLQ%g-unsettled")
            reader.assign(letters)
            assert [message.body for message in await reader.poll(timeout=60)] == [b"0"]
    assert await receiving == []


async def existing_queues(reader: PullConsumer, topic: str) -> list[MessageQueue]:
    """Wait until a topic exists."""
    while True:
        try:
            return await reader.queues(topic)
        except NoRoute:
            await asyncio.sleep(0.1)


async def test_mqadmin_lists_members_that_pop(name_servers: str, tmp_path: Path) -> None:
    await create_topic(name_servers, "listed")
    await send(name_servers, "listed", b"0", b"1")
    async with (
        AdminClient(name_servers=name_servers) as admin,
        PopConsumer("g-listed", "listed", "*", name_servers=name_servers) as consumer,
    ):
        while await admin.group_connections("g-listed") is None:
            await consumer.receive(timeout=0)
            await asyncio.sleep(0.1)
        client_id = consumer.describe().client_id
        assert client_id is not None
        commands = [
            ["consumerConnection", "-g", "g-listed"],
            ["consumerStatus", "-g", "g-listed", "-i", client_id, "-s"],
        ]
        place = Place(name_servers, "", tmp_path)
        connection, status = await asyncio.to_thread(run, build(), place, commands, release=Release.NEWEST)
    for text in (client_id, "PYTHON", "listed", "ConsumeType: CONSUME_POP", "MessageModel: CLUSTERING"):
        assert text in connection
    assert "waitAckCount:2" in status
    assert "ClientInstance._refresh_routes" in status  # the stack traces


@pytest.mark.parametrize("order", [Order.NONE, Order.BY_QUEUE, Order.BY_KEY])
async def test_mqadmin_finds_no_fault_in_a_healthy_consumer(name_servers: str, tmp_path: Path, order: Order) -> None:
    topic = f"healthy-{order.value.lower()}"
    group, entered, leave = f"g-{topic}", asyncio.Event(), asyncio.Event()
    await create_topic(name_servers, topic, 2)
    await send(name_servers, topic, b"0", b"1")

    async def listener(_: list[MessageExt]) -> None:
        entered.set()
        await leave.wait()

    config = replace(FAST, order=order)
    async with PushConsumer(group, name_servers=name_servers, config=config) as consumer:
        consumer.subscribe(topic, "*", listener)
        await entered.wait()  # both messages are cached now, and the first is consumed
        client_id = consumer.describe().client_id
        assert client_id is not None
        commands = [["consumerStatus", "-g", group, "-i", client_id], ["consumerStatus", "-g", group]]
        place = Place(name_servers, "", tmp_path)
        one, all_members = await asyncio.to_thread(run, build(), place, commands, release=Release.NEWEST)
        leave.set()
    assert f"PROP_CONSUMEORDERLY : {'false' if order is Order.NONE else 'true'}" in " ".join(one.split())
    for text in ("can't lock for a while", "can't consume for a while", "maybe blocked", "still failed"):
        assert text not in one + all_members
    assert " 1970" not in one + all_members
    assert "=1970" not in one + all_members
    assert ("locked=true" in one) == (order is not Order.NONE)
