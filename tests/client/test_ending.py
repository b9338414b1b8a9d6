"""A cancelled close continues in the background, and a second close can wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Delay,
    Message,
    MessageExt,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.cluster.client_instance import _instances
from raptormq.client.lifecycle import Shutdown
from raptormq.errors import ClientError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import ScriptedPeer, route, silence, stored


async def test_an_end_goes_on_when_who_waits_for_it_gives_up() -> None:
    ending, go, steps = Shutdown("something"), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        steps.append("done")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ending.run(work()), 0.01)
    waiting = asyncio.create_task(ending.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await waiting
    assert steps == ["done"]
    await ending.wait()


async def test_an_end_that_fails_is_over() -> None:
    ending = Shutdown("something")

    async def work() -> None:
        raise ClientError("as told")

    with pytest.raises(ClientError, match="as told"):
        await ending.run(work())
    await ending.wait()


async def test_who_waits_for_one_end_does_not_forget_the_next() -> None:
    consumer = PushConsumer("g", name_servers="127.0.0.1:1")
    await consumer.start()

    async def twice() -> None:
        await consumer.stop()
        await consumer.start()
        await consumer.stop()

    async def slower() -> None:
        await consumer.stop()
        await asyncio.sleep(0)
        await consumer.start()

    await asyncio.gather(twice(), slower())
    await consumer.stop()
    assert not _instances[asyncio.get_running_loop()]


async def test_a_consumer_whose_stop_was_given_up_leaves_its_group(tmp_path: Path) -> None:
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    called, go = asyncio.Event(), asyncio.Event()

    async def consume(_: list[MessageExt]) -> None:
        called.set()
        await go.wait()

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer(name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"x"))
        shared = ClientConfig(cluster.name_servers)
        consumer = PushConsumer("g", client_config=shared, config=config)
        consumer.subscribe("t", "*", consume)
        await consumer.start()
        await called.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.stop(), 0.01)
        go.set()
        await consumer.stop()
        assert not _instances[asyncio.get_running_loop()]
        async with AdminClient(name_servers=cluster.name_servers) as admin:
            assert await admin.group_connections("g") is None
            assert [each.lag for each in (await admin.group_progress("g", "t")).values()] == [0]
        async with PushConsumer("g", client_config=shared, config=config):
            pass


@pytest.mark.parametrize("as_task", [False, True])
async def test_a_listener_may_stop_its_consumer(tmp_path: Path, as_task: bool) -> None:
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    tasks: list[asyncio.Task[None]] = []
    called = asyncio.Event()

    async def consume(_: list[MessageExt]) -> None:
        if as_task:
            tasks.append(asyncio.create_task(consumer.stop()))
        else:
            await consumer.stop()
            await consumer.stop()
        called.set()

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer(name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"x"))
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", consume)
            await called.wait()
        await asyncio.gather(*tasks)
        async with AdminClient(name_servers=cluster.name_servers) as admin:
            assert [each.lag for each in (await admin.group_progress("g", "t")).values()] == [0]
            assert await admin.group_connections("g") is None


async def test_a_consumer_that_starts_again_waits_for_its_end() -> None:
    consumer = PushConsumer("g", name_servers="127.0.0.1:1")
    await consumer.start()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    await consumer.start()
    assert stopping.done()
    await consumer.stop()
    assert not _instances[asyncio.get_running_loop()]


async def test_producers_and_others_end_when_nobody_waits() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.SEND_MESSAGE_V2, silence)
        config = ClientConfig(peer.address, request_timeout=5.0, close_timeout=0.3)
        producer = Producer(client_config=config)
        pulling, admin = PullConsumer(client_config=config), AdminClient(client_config=config)
        for each in (producer, pulling, admin):
            await each.start()
        sending = producer.submit(Message("t", b"x"))
        await peer.wait_for(RequestCode.SEND_MESSAGE_V2)
        for each in (producer, pulling, admin):
            closing = asyncio.create_task(each.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await each.close()
        assert not _instances[asyncio.get_running_loop()]
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_producer_waits_for_single_sends_and_for_batches_at_the_same_time() -> None:
    unanswered: list[tuple[Connection, RemotingCommand]] = []
    config = ProducerConfig(auto_batch=True, batch_max_delay_ms=30_000)
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.SEND_MESSAGE_V2, lambda *sent: unanswered.append(sent))
        peer.on(RequestCode.SEND_BATCH_MESSAGE, stored())
        client = ClientConfig(peer.address, close_timeout=60)
        async with Producer("p", config=config, client_config=client) as producer:
            alone = producer.submit(Message("t", b"x", delay=Delay.by(60)))
            batched = [producer.submit(Message("t", b"x")) for _ in range(2)]
            closing = asyncio.create_task(producer.close())
            await peer.wait_for(RequestCode.SEND_MESSAGE_V2)
            await peer.wait_for(RequestCode.SEND_BATCH_MESSAGE)
            stored(7)(*unanswered[0])
            await closing
        assert alone.result().queue_offset == 7
        assert all(future.done() for future in batched)


@pytest.mark.parametrize("turns", range(6))
async def test_a_single_send_that_is_given_up_while_the_producer_begins_to_close(turns: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.SEND_MESSAGE_V2, silence)
        async with Producer("p", client_config=ClientConfig(peer.address, close_timeout=60)) as producer:
            alone = producer.submit(Message("t", b"x"))
            await peer.wait_for(RequestCode.SEND_MESSAGE_V2)
            closing = asyncio.create_task(producer.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            alone.cancel()
            await closing
        assert alone.cancelled()
