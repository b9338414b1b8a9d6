"""Delays of the producer, and recalled messages, with a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.client import BlockingProducer, Delay, Message, MessageExt, Producer, PullConsumer
from raptormq.client.cluster.routes import RouteTable
from raptormq.errors import MessageError, NoRoute, ServerError
from raptormq.protocol.recall_handle import RecallHandle, encode_recall_handle
from raptormq.storage.store import now_ms
from tests.client.embedded_cluster import Cluster
from tests.clock import Clock


def quick(folder: Path, clock: Callable[[], int] = now_ms) -> Cluster:
    cluster = Cluster(folder, timerPrecisionMs="100", recallMessageEnable="true", messageDelayLevel="1s 2s")
    cluster.clock = clock
    return cluster


async def test_delayed_messages_come_later_and_recalled_ones_never(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        quick(tmp_path, clock) as cluster,
        Producer("p", name_servers=cluster.name_servers) as producer,
        PullConsumer(name_servers=cluster.name_servers) as consumer,
    ):
        await cluster.create_topic("t", 1)
        now = clock.hold()
        recalled = await producer.send(Message("t", b"recalled", delay=Delay.by(0.4)))
        assert recalled.recall_handle is not None
        assert await producer.recall("t", recalled.recall_handle) == recalled.message_id
        await producer.send(Message("t", b"until", delay=Delay.until(now + 400)))
        levelled = await producer.send(
            Message("t", b"level", "tag", ("key",), {"mine": "yes"}, delay=Delay.by_level(1))
        )
        assert levelled.recall_handle is None
        await producer.send(Message("t", b"at once", delay=Delay.by(0)))
        clock.run()
        received: dict[bytes, MessageExt] = {}
        consumer.assign(await consumer.queues("t"))
        while len(received) < 3:
            received |= {message.body: message for message in await consumer.poll(5)}
        assert list(received) == [b"at once", b"until", b"level"]
        assert received[b"level"].properties["mine"] == "yes"
        (queue,) = await consumer.queues("t")
        assert await consumer.max_offset(queue) == 3


async def test_what_cannot_be_taken_back(tmp_path: Path) -> None:
    async with quick(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        with pytest.raises(MessageError, match="recall handle is invalid"):
            await producer.recall("t", "nonsense")
        with pytest.raises(NoRoute, match="broker elsewhere has no master"):
            await producer.recall("t", encode_recall_handle(RecallHandle("t", "elsewhere", "1", "id")))
        with pytest.raises(ServerError, match="timestamp invalid"):
            await producer.recall("t", encode_recall_handle(RecallHandle("t", "broker-0", "1", "id")))


async def test_the_blocking_producer_takes_back_too(tmp_path: Path) -> None:
    async with quick(tmp_path) as cluster:
        await cluster.create_topic("t", 1)

        def work() -> None:
            with BlockingProducer("p", name_servers=cluster.name_servers) as producer:
                sent = producer.send(Message("t", b"x", delay=Delay.by(60)))
                assert sent.recall_handle is not None
                assert producer.recall("t", sent.recall_handle) == sent.message_id

        await asyncio.to_thread(work)


async def test_a_level_below_1_and_a_delay_in_a_batch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match="0 is not a delay level"):
        Delay.by_level(0)
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        with pytest.raises(MessageError, match="a message of a batch cannot be delayed"):
            await producer.send_batch([Message("t", b"x", delay=Delay.by(1))])


async def test_the_first_message_of_a_new_topic_can_be_taken_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name server has the topic yet, so the message was sent by the route of the default topic."""

    async def not_yet(_: RouteTable, topic: str, deadline: float | None = None) -> None:
        assert topic == "new"

    async with quick(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        monkeypatch.setattr(RouteTable, "refresh", not_yet)
        sent = await producer.send(Message("new", b"recalled", delay=Delay.by(60)))
        assert sent.recall_handle is not None
        assert await producer.recall("new", sent.recall_handle) == sent.message_id
