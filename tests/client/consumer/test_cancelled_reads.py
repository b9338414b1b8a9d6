"""Reads that are cancelled: no message is lost, hidden or skipped, whenever the cancellation comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    PopConsumer,
    Producer,
    PullConsumer,
)
from raptormq.client.consumer.pop_requests import Popped, PopRequests
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

LONG_S = 300.0
"""Invisible time that outlasts a test: a hidden message never comes again."""
MESSAGES = 300
QUEUE = MessageQueue("t", "broker-0", 0)
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
Read = Callable[[], Awaitable[Sequence[MessageExt]]]


@asynccontextmanager
async def received(cluster: Cluster) -> AsyncIterator[Read]:
    async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:
        yield lambda: consumer.receive(4, timeout=LONG_S)


@asynccontextmanager
async def popped(cluster: Cluster) -> AsyncIterator[Read]:
    async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:

        async def read() -> list[MessageExt]:
            return [await anext(consumer)]

        yield read


@asynccontextmanager
async def popped_batches(cluster: Cluster) -> AsyncIterator[Read]:
    async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:
        yield lambda: anext(consumer.batches(max_messages=8, max_wait=0.01))


@asynccontextmanager
async def polled(cluster: Cluster) -> AsyncIterator[Read]:
    consumer = LitePullConsumer("g", name_servers=cluster.name_servers, config=FIRST)
    consumer.subscribe("t")
    await consumer.start()
    try:
        yield lambda: consumer.poll(LONG_S, max_messages=4)
    finally:
        await consumer.close()


@asynccontextmanager
async def iterated(cluster: Cluster) -> AsyncIterator[Read]:
    async with Consumer("g", name_servers=cluster.name_servers, config=FIRST) as consumer:
        consumer.subscribe("t")

        async def read() -> list[MessageExt]:
            return [await anext(consumer)]

        yield read


@asynccontextmanager
async def iterated_batches(cluster: Cluster) -> AsyncIterator[Read]:
    async with Consumer("g", name_servers=cluster.name_servers, config=FIRST) as consumer:
        consumer.subscribe("t")
        yield lambda: anext(consumer.batches(max_messages=8, max_wait=0.01))


@asynccontextmanager
async def pulled(cluster: Cluster) -> AsyncIterator[Read]:
    async with PullConsumer(name_servers=cluster.name_servers, consume_from=ConsumeFromWhere.FIRST) as consumer:
        consumer.assign([QUEUE])
        yield lambda: consumer.poll(LONG_S)


@pytest.mark.parametrize(
    "reader",
    [received, popped, popped_batches, polled, iterated, iterated_batches, pulled],
    ids=lambda reader: reader.__name__,
)
async def test_every_message_is_read_although_reads_are_cancelled(tmp_path: Path, reader: Any) -> None:
    rng = random.Random(5)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer, reader(cluster) as read:

            async def send() -> None:
                for number in range(MESSAGES):
                    await producer.send(Message("t", b"%d" % number), queue=QUEUE)

            sending = asyncio.create_task(send())
            found: list[bytes] = []
            while len(found) < MESSAGES:
                reading = asyncio.ensure_future(read())
                if len(found) < MESSAGES // 2 or rng.random() < 0.5:
                    await asyncio.wait([reading], timeout=rng.random() / 100)
                    reading.cancel()
                await asyncio.wait([reading])
                if not reading.cancelled():
                    found += [message.body for message in reading.result()]
            await sending
    assert sorted(found) == sorted(b"%d" % number for number in range(MESSAGES))


class HeldPops:
    """Withholds the responses of pops from the client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived = asyncio.Event()
        """Set when a response with messages has arrived."""
        self.released = asyncio.Event()
        pop = PopRequests.pop

        async def held(requests: PopRequests, broker: str, address: str | None, count: int) -> list[Popped]:
            found = await pop(requests, broker, address, count)
            if found:
                self.arrived.set()
                await self.released.wait()
            return found

        monkeypatch.setattr(PopRequests, "pop", held)


async def test_the_messages_of_a_pop_in_flight_go_to_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pops = HeldPops(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send_batch([Message("t", b"0"), Message("t", b"1"), Message("t", b"2")], queue=QUEUE)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:
            reading = asyncio.create_task(consumer.receive())
            await pops.arrived.wait()
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            pops.released.set()
            first = await consumer.receive(2)
            assert [message.body for message in first] == [b"0", b"1"]
            second = await consumer.receive()
            assert [message.body for message in second] == [b"2"]
            assert all([await message.ack() for message in (*first, *second)])


async def test_the_messages_of_a_pop_in_flight_go_to_a_call_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pops = HeldPops(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:
            async with Producer("p", name_servers=cluster.name_servers) as producer:
                await producer.send(Message("t", b"0"), queue=QUEUE)
            reading = asyncio.create_task(consumer.receive())
            await pops.arrived.wait()
            waiting = asyncio.create_task(consumer.receive(timeout=LONG_S))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            pops.released.set()
            assert [message.body for message in await waiting] == [b"0"]


async def test_a_consumer_is_closed_during_a_pop_whose_caller_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pops = HeldPops(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"0"), queue=QUEUE)
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=1.0) as consumer:
            reading = asyncio.create_task(consumer.receive())
            await pops.arrived.wait()
            reading.cancel()
            await eventually(lambda: len(consumer._popping) == 1)
        assert consumer._popping == set()
        pops.released.set()
        async with PopConsumer("g", "t", name_servers=cluster.name_servers, invisible_time=LONG_S) as consumer:
            assert [message.body for message in await consumer.receive(timeout=LONG_S)] == [b"0"]
