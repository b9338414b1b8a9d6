"""`PopConsumer` with real brokers: each message is delivered to one member and is invisible for a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import ConsumeFromWhere, Message, MessageQueue, PopConsumer, PoppedMessage, Producer, Sql
from raptormq.client.consumer.pop_requests import Popped, PopRequests
from raptormq.errors import ClientClosed, ConfigError, MessageError, NoRoute, ServerError
from raptormq.protocol.codes import ResponseCode
from tests.client.embedded_cluster import Cluster

QUEUE = MessageQueue("t", "broker-0", 0)


def consumer_of(cluster: Cluster, expression: str | Sql = "*", invisible_time: float = 60.0) -> PopConsumer:
    return PopConsumer("g", "t", expression, name_servers=cluster.name_servers, invisible_time=invisible_time)


async def send(cluster: Cluster, *bodies: bytes) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for body in bodies:
            await producer.send(Message("t", body, tags=body.decode()))


async def received(consumer: PopConsumer, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await consumer.receive(count - len(found))
    return found


async def test_members_share_one_queue(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0", b"1", b"2", b"3")
        async with consumer_of(cluster) as first, consumer_of(cluster) as second:
            mine, yours = await received(first, 2), await received(second, 2)
            assert sorted(message.body for message in mine + yours) == [b"0", b"1", b"2", b"3"]
            assert await first.receive(timeout=0) == []
            for message in mine + yours:
                await message.ack()


async def test_what_is_not_acknowledged_comes_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await send(cluster, b"0", b"1", b"2")
        async with consumer_of(cluster, invisible_time=3.0) as consumer:
            for message in await received(consumer, 3):
                if message.body == b"0":
                    await message.ack()
                elif message.body == b"1":
                    before = message.invisible_until_ms
                    await message.change_invisible_time(300)
                    assert message.invisible_until_ms > before + 250_000
                    kept = message
            [again] = await received(consumer, 1)
            assert (again.body, again.topic, again.reconsume_times) == (b"2", "t", 1)
            await again.change_invisible_time(0.5)
            [third] = await received(consumer, 1)
            assert (third.body, third.reconsume_times) == (b"2", 2)
            await third.ack()
            await kept.ack()  # with its second handle
            assert await consumer.receive(timeout=0.05) == []


async def test_a_waiting_receive_gets_what_is_sent(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster) as consumer:
            for body in (b"0", b"1", b"2"):
                waiting = asyncio.create_task(consumer.receive(timeout=60))
                await asyncio.sleep(0)
                await send(cluster, body)
                [message] = await waiting
                assert message.body == body
                await message.ack()
            cancelled = asyncio.create_task(consumer.receive(timeout=60))
            while not cancelled.done():
                await asyncio.sleep(0.01)
                cancelled.cancel()
            await send(cluster, b"3")
            [message] = await received(consumer, 1)
            assert message.body == b"3"


async def test_only_wanted_messages_are_popped(tmp_path: Path) -> None:
    async with Cluster(tmp_path, enablePropertyFilter="true") as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"Aa", b"BB", b"C")  # the first two have equal hashes
        async with consumer_of(cluster, "Aa || C") as consumer:
            assert [message.body for message in await received(consumer, 2)] == [b"Aa", b"C"]
        sql = PopConsumer("h", "t", Sql("TAGS = 'BB'"), name_servers=cluster.name_servers)
        async with sql:
            assert [message.body for message in await received(sql, 1)] == [b"BB"]


async def test_a_loop_ends_when_the_consumer_is_closed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        consumer = consumer_of(cluster)
        await consumer.start()
        got = asyncio.Event()

        async def loop() -> list[bytes]:
            done = []
            async for message in consumer:
                await message.ack()
                done.append(message.body)
                got.set()
            return done

        looping = asyncio.create_task(loop())
        await got.wait()
        await consumer.close()
        assert await looping == [b"0"]
        with pytest.raises(ClientClosed):
            await consumer.receive()


async def test_one_broker_of_two_is_down(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster) as consumer:
            assert await consumer.receive(timeout=0) == []
            await cluster.stop_broker(0)
            await send(cluster, b"0", b"1")
            for message in await received(consumer, 2):
                await message.ack()
            await cluster.stop_broker(1)
            with pytest.raises(Exception, match=r"master|connect|refused"):
                await consumer.receive(timeout=0)


async def test_a_receive_goes_on_after_a_broker_that_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former leader answers with code 14 until the consumer knows the next one."""
    pop, refusals = PopRequests.pop, [ServerError(ResponseCode.SERVICE_NOT_AVAILABLE, "does not lead", "n0")]

    async def refuse_first(self: PopRequests, broker: str, address: str | None, count: int) -> list[Popped]:
        if refusals:
            raise refusals.pop()
        return await pop(self, broker, address, count)

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, b"0")
        async with consumer_of(cluster) as consumer:
            monkeypatch.setattr(PopRequests, "pop", refuse_first)
            [message] = await received(consumer, 1)
            assert message.body == b"0"


async def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invisible_time must be a number above 0, at most 300"):
        PopConsumer("g", "t", invisible_time=301)
    with pytest.raises(ConfigError, match="must be FIRST or LAST"):
        PopConsumer("g", "t", consume_from=ConsumeFromWhere.TIMESTAMP)
    with pytest.raises(MessageError, match="Sql"):
        PopConsumer("g", "t", "a > 1")
    with pytest.raises(ClientClosed, match="not started"):
        await PopConsumer("g", "t").receive()
    async with Cluster(tmp_path, autoCreateSubscriptionGroup="false") as cluster:
        async with PopConsumer("g", "missing", name_servers=cluster.name_servers) as consumer:
            with pytest.raises(NoRoute):
                await consumer.receive()
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster) as consumer:
            with pytest.raises(ConfigError, match="max_messages must be a whole number above 0, at most 32"):
                await consumer.receive(33)
            with pytest.raises(ServerError, match="code 26"):
                await consumer.receive()
