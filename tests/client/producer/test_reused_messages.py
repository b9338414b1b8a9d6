"""A message is stored as it was when it was passed to a send, whatever its application does with it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    PullConsumer,
    SendResult,
)
from raptormq.errors import MessageError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

QUEUE = MessageQueue("t", "broker-0", 0)
LONG_MS = 1_000
"""Delay of a batch; it is sent after 0.1 s without another message."""
Send = Callable[[Producer, Message], Coroutine[Any, Any, SendResult]]


def with_callback(producer: Producer, message: Message) -> Coroutine[Any, Any, SendResult]:
    told: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

    def tell(outcome: SendResult | BaseException) -> None:
        told.set_exception(outcome) if isinstance(outcome, BaseException) else told.set_result(outcome)

    producer.send_with_callback(message, tell)
    return waiting(told)


async def waiting(future: asyncio.Future[SendResult]) -> SendResult:
    return await future


SENDS: dict[str, Send] = {
    "send": lambda producer, message: producer.send(message),
    "send in a task": lambda producer, message: waiting(asyncio.create_task(producer.send(message))),
    "send with a queue": lambda producer, message: producer.send(message, queue=QUEUE),
    "send with a key": lambda producer, message: producer.send(message, key="k"),
    "send with a timeout": lambda producer, message: producer.send(message, timeout=60.0),
    "submit": lambda producer, message: waiting(producer.submit(message)),
    "callback": with_callback,
}


def mutable() -> Message:
    body: Any = bytearray(b"old")
    keys: Any = ["old"]
    return Message("t", body, "old", keys, {"colour": "old"})


def change(message: Message) -> None:
    """Change the values of a message, and then the message."""
    body: Any = message.body
    keys: Any = message.keys
    body[:] = b"new, and longer"
    keys.append("new")
    message.properties.update(colour="new", size="1")
    message.topic, message.body, message.tags, message.keys, message.properties = "other", b"", "new", (), {}
    message.flag, message.wait_stored, message.priority = 7, False, 1


@asynccontextmanager
async def producing(folder: Path, config: ProducerConfig) -> AsyncIterator[Producer]:
    """Run a producer; at the end, check that one message is stored, unchanged."""
    async with Cluster(folder) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            yield producer
        async with PullConsumer(name_servers=cluster.name_servers) as reader:
            reader.assign([QUEUE])
            [stored] = await reader.poll(timeout=60)
            assert (stored.body, stored.tags, stored.keys, stored.flag) == (b"old", "old", ("old",), 0)
            user_properties = {name: value for name, value in stored.user_properties.items() if name != "__SHARDINGKEY"}
            assert user_properties == {"colour": "old"}


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
@pytest.mark.parametrize("way", SENDS)
@pytest.mark.parametrize("intercepted", [False, True], ids=["", "intercepted"])
async def test_a_message_that_waits_for_the_limits(
    tmp_path: Path, auto_batch: bool, way: str, intercepted: bool
) -> None:
    interceptors = [ProducerInterceptor()] if intercepted else []
    config = ProducerConfig(
        auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=60.0, interceptors=interceptors
    )
    async with producing(tmp_path, config) as producer:
        producer._room.enter(1, 1)  # another producer of the client
        message = mutable()
        sending = asyncio.create_task(SENDS[way](producer, message))
        await eventually(lambda: len(producer._room.line) == 1)
        change(message)
        producer._room.leave(1, 1)
        await sending


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
@pytest.mark.parametrize("way", SENDS)
@pytest.mark.parametrize("intercepted", [False, True], ids=["", "intercepted"])
async def test_a_message_whose_send_has_not_begun_or_whose_batch_is_open(
    tmp_path: Path, auto_batch: bool, way: str, intercepted: bool
) -> None:
    interceptors = [ProducerInterceptor()] if intercepted else []
    config = ProducerConfig(
        auto_batch=auto_batch, batch_max_delay_ms=LONG_MS, send_timeout=60.0, interceptors=interceptors
    )
    async with producing(tmp_path, config) as producer:
        message = mutable()
        sending = SENDS[way](producer, message)
        change(message)
        await sending


async def answered(request: Coroutine[Any, Any, MessageExt], producer: Producer) -> None:
    asking = asyncio.create_task(request)
    async with PullConsumer(client_config=producer._client_config) as reader:
        reader.assign([QUEUE])
        [question] = await reader.poll(timeout=60)
    await producer.reply(question, b"", timeout=60)
    await asking


OTHER_SENDS: dict[str, Callable[[Producer, Message], Coroutine[Any, Any, object]]] = {
    "batch": lambda producer, message: producer.send_batch([message]),
    "batch of a generator": lambda producer, message: producer.send_batch(each for each in [message]),
    "batch with a key": lambda producer, message: producer.send_batch([message], key="k"),
    "oneway": lambda producer, message: producer.send_oneway(message),
    "request": lambda producer, message: answered(producer.request(message, timeout=60.0), producer),
}


@pytest.mark.parametrize("way", OTHER_SENDS)
@pytest.mark.parametrize("intercepted", [False, True], ids=["", "intercepted"])
async def test_a_message_of_another_call_that_has_not_begun(tmp_path: Path, way: str, intercepted: bool) -> None:
    config = ProducerConfig(send_timeout=60.0, interceptors=[ProducerInterceptor()] if intercepted else [])
    async with producing(tmp_path, config) as producer:
        message = mutable()
        sending = OTHER_SENDS[way](producer, message)
        change(message)
        await sending


async def test_a_list_that_has_not_begun(tmp_path: Path) -> None:
    async with producing(tmp_path, ProducerConfig(send_timeout=60.0)) as producer:
        messages = [mutable()]
        sending = producer.send_batch(messages)
        messages.clear()
        await sending


async def test_a_reply_that_has_not_begun(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            asking = asyncio.create_task(producer.request(Message("t", b"?"), timeout=60.0))
            async with PullConsumer(name_servers=cluster.name_servers) as reader:
                reader.assign([QUEUE])
                [question] = await reader.poll(timeout=60)
            body: Any = bytearray(b"old")
            properties = {"colour": "old"}
            replying = producer.reply(question, body, properties=properties)
            body[:] = b"new"
            properties["colour"] = "new"
            await replying
            answer = await asking
    assert (answer.body, answer.properties["colour"]) == (b"old", "old")


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (None, "must be a list"),
        ([None], "must contain only messages"),
        ((each for each in [None]), "must contain only messages"),
        ([Message("t", b"")] * 40_000, "at most 32767 messages"),
    ],
    ids=["none", "no message", "generator", "long"],
)
async def test_a_wrong_list_is_refused_when_it_is_awaited(messages: Any, reason: str) -> None:
    async with Producer("p") as producer:
        sending = producer.send_batch(messages)
        with pytest.raises(MessageError, match=reason):
            await sending
