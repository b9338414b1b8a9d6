"""Use of clients in another event loop than their own: they raise one clear error, and can be closed in their own
loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    AdminClient,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    PullConsumer,
    PushConsumer,
    SendContext,
    SendResult,
    TransactionProducer,
    TransactionState,
)
from raptormq.client.blocking import LoopThread
from raptormq.errors import ClientClosed
from tests.client.embedded_cluster import Cluster

MESSAGE = Message("t", b"x")
QUEUE = MessageQueue("t", "broker-0", 0)


@pytest.fixture
def name_servers(tmp_path: Path) -> Iterator[str]:
    """A cluster that runs in a thread."""
    thread = LoopThread("cluster")
    cluster = Cluster(tmp_path)
    thread.run(cluster.__aenter__(), 30)
    thread.run(cluster.create_topic("t", 1), 30)
    try:
        yield cluster.name_servers
    finally:
        thread.run(cluster.__aexit__(None, None, None), 30)
        thread.stop()


async def check(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def consume(_: list[MessageExt]) -> None:
    """A listener."""


async def refused(*calls: Callable[[], Awaitable[object]]) -> None:
    for call in calls:
        with pytest.raises(ClientClosed, match="started in an event loop that is not this one"):
            await call()


@pytest.mark.parametrize("auto_batch", [False, True])
def test_a_producer_belongs_to_the_loop_that_started_it(name_servers: str, auto_batch: bool) -> None:
    own = LoopThread("own")
    producer = Producer("p", name_servers=name_servers, auto_batch=auto_batch)
    own.run(producer.start(), 30)
    own.run(producer.send(MESSAGE), 30)

    async def elsewhere() -> None:
        await refused(
            producer.start,
            lambda: producer.send(MESSAGE),
            lambda: producer.send(MESSAGE, timeout=1),
            lambda: producer.send_batch([MESSAGE]),
            lambda: producer.send_oneway(MESSAGE),
            lambda: producer.request(MESSAGE),
            lambda: producer.queues("t"),
            lambda: producer.recall("t", "handle"),
            producer.close,
        )

    asyncio.run(elsewhere())
    assert own.run(producer.send(MESSAGE), 30).queue_offset == 1
    own.run(producer.close(), 30)
    own.stop()


class Calls(ProducerInterceptor):
    """Notes the bodies that are sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def before_send(self, context: SendContext) -> None:
        self.bodies.append(context.message.body)


@pytest.mark.parametrize("intercepted", [False, True], ids=["", "intercepted"])
@pytest.mark.parametrize("is_full", [False, True], ids=["room", "full"])
@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
def test_a_send_from_elsewhere_changes_nothing(
    name_servers: str, auto_batch: bool, is_full: bool, intercepted: bool
) -> None:
    own, calls = LoopThread("own"), Calls()
    settings = ProducerConfig(
        auto_batch=auto_batch,
        batch_max_delay_ms=10_000,
        max_in_flight_messages=1 if is_full else 100,
        send_timeout=60,
        interceptors=[calls] if intercepted else [],
    )
    producer = Producer("p", name_servers=name_servers, config=settings)
    own.run(producer.start(), 30)
    told = list[object]()

    def state() -> tuple[object, ...]:
        room, batches = producer._room, producer._batch_queue
        waiters = [len(batch.waiters) for batch in batches._open.values()] if batches else []
        return room.messages, room.bytes, len(room.line), waiters, producer.describe().waiting_messages

    async def begin() -> None:
        if is_full:
            producer._room.enter(1, 1)  # another producer of the client
        sending.extend([producer.submit(Message("t", b"own")), producer.submit(Message("t", b"own"))])
        if not is_full and not auto_batch:
            await asyncio.wait(sending)

    sending = list[asyncio.Future[SendResult]]()
    wrong = Message("t", b"elsewhere")
    at_once: list[Callable[[], object]] = [
        lambda: producer.submit(wrong),
        lambda: producer.submit(wrong, queue=QUEUE),
        lambda: producer.send_with_callback(wrong, told.append),
    ]
    awaited: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: producer.send(wrong),
        lambda: producer.send(wrong, key="k"),
        lambda: producer.send(wrong, queue=QUEUE),
        lambda: producer.send(wrong, timeout=1),
        lambda: producer.send_batch([wrong]),
        lambda: producer.send_oneway(wrong),
        lambda: producer.request(wrong),
    ]

    async def elsewhere() -> None:
        for call in at_once:
            with pytest.raises(ClientClosed, match="started in an event loop that is not this one"):
                call()
        await refused(*awaited)

    async def end() -> None:
        if is_full:
            producer._room.leave(1, 1)
        await producer.close()

    own.run(begin(), 30)
    before = state()
    asyncio.run(elsewhere())
    for call in at_once:  # a thread without an event loop
        with pytest.raises(ClientClosed, match="that does not run in this thread"):
            call()
    assert state() == before
    own.run(end(), 30)
    assert sorted(each.result().queue_offset for each in sending) == [0, 1]
    assert told == []
    assert calls.bodies == ([b"own", b"own"] if intercepted else [])
    own.stop()


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
def test_a_second_loop_of_the_same_thread_is_not_the_one_that_started_it(name_servers: str, auto_batch: bool) -> None:
    producer = Producer("p", name_servers=name_servers, auto_batch=auto_batch, batch_max_delay_ms=10_000)

    async def submit() -> asyncio.Future[SendResult]:
        return producer.submit(MESSAGE)

    with asyncio.Runner() as own, asyncio.Runner() as other:
        own.run(producer.start())
        sending = own.run(submit())
        with pytest.raises(ClientClosed, match="started in an event loop that is not this one"):
            other.run(submit())
        own.run(producer.close())
        assert sending.result().queue_offset == 0


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
def test_a_producer_restarted_in_another_thread_does_not_belong_to_the_first(
    name_servers: str, auto_batch: bool
) -> None:
    producer = Producer("p", name_servers=name_servers, auto_batch=auto_batch)

    async def first() -> None:
        async with producer:
            await producer.submit(MESSAGE)

    asyncio.run(first())
    second = LoopThread("second")
    try:
        second.run(producer.start(), 30)
        with pytest.raises(ClientClosed, match="does not run in this thread"):
            producer.submit(MESSAGE)
        second.run(producer.close(), 30)
    finally:
        second.stop()


def test_all_others_do_too(name_servers: str) -> None:
    own = LoopThread("own")
    transactions = TransactionProducer("p", check, name_servers=name_servers, topics=["t"])
    pull = PullConsumer(name_servers=name_servers)
    push = PushConsumer("g", name_servers=name_servers)
    push.subscribe("t", "*", consume)
    for client in (transactions, pull, push):
        own.run(client.start(), 30)

    async def begin() -> None:
        pull.assign([QUEUE])
        await pull.poll(0)

    own.run(begin(), 30)

    async def elsewhere() -> None:
        await refused(transactions.close, pull.close, push.stop, pull.poll, lambda: pull.queues("t"))

    asyncio.run(elsewhere())
    for end in (transactions.close, pull.close, push.stop):
        own.run(end(), 30)
    own.stop()


def drop(clients: list[Any]) -> None:
    """Drop the references to clients, and collect garbage."""
    clients.clear()
    gc.collect()


def test_a_loop_that_has_ended_is_named(name_servers: str) -> None:
    clients: list[Any] = [Producer("p", name_servers=name_servers), AdminClient(name_servers=name_servers)]

    async def begin() -> None:
        for client in clients:
            await client.start()

    asyncio.run(begin())
    for number in range(2):
        with pytest.raises(ClientClosed, match="an event loop that has ended"):
            asyncio.run(clients[number].close())
    with pytest.raises(ClientClosed, match="an event loop that has ended"):
        asyncio.run(clients[0].send(MESSAGE))
    with pytest.warns(ResourceWarning, match="unclosed"):  # they cannot be closed any more
        drop(clients)
