"""Invalid messages: their sender gets an error immediately, and other messages are not affected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.client import Message, MessageQueue, Producer, ProducerConfig, PullConsumer
from raptormq.client.message.validation import as_bytes, check_destination, check_optional_fields
from raptormq.errors import ClientError, MessageError
from tests.client.embedded_cluster import Cluster

QUEUE = MessageQueue("t", "broker-0", 0)
WRONG: dict[str, dict[str, Any]] = {
    "text body": {"body": "text"},
    "long text body": {"body": "text" * 10_000},
    "no body": {"body": None},
    "body of numbers": {"body": [1, 2]},
    "no topic": {"topic": None},
    "text flag": {"flag": "1"},
    "large flag": {"flag": 2**31},
    "no flag": {"flag": None},
    "keys in one text": {"keys": "abc"},
    "keys of numbers": {"keys": (1, 2)},
    "number of keys": {"keys": 5},
    "key with a space": {"keys": ("a b",)},
    "empty key beside another": {"keys": ("a", "")},
    "tags of a filter": {"tags": "a || b"},
    "tags of a filter beside a key": {"tags": "a||b", "keys": ("k",)},
    "tag of a number": {"tags": 5},
    "half a character in a long tag": {"tags": "\ud800" + "x" * 10_000},
    "list of properties": {"properties": ["a"]},
    "no properties beside a key": {"properties": None, "keys": ("k",)},
    "delay of a number": {"delay": 5},
    "priority below 0": {"priority": -1},
    "property of a number": {"properties": {"a": 1}},
    "list of topics": {"topic": ["t"]},
    "list of tags": {"tags": ["a"]},
    "list of tags beside a key": {"tags": ["a"], "keys": ("k",)},
    "text as wait flag": {"wait_stored": "false"},
    "list as wait flag": {"wait_stored": []},
    "text as wait flag beside a property": {"wait_stored": "false", "properties": {"a": "b"}},
}


def wrong(name: str) -> Message:
    return Message(**({"topic": "t", "body": b"x"} | WRONG[name]))


@pytest.mark.parametrize("body", [b"12345678", bytearray(b"12345678"), memoryview(b"12345678").cast("i")])
def test_all_that_has_bytes_is_a_body(body: object) -> None:
    assert as_bytes(body) == b"12345678"


def test_flags_and_keys_at_the_edge() -> None:
    for flag in (-(2**31), 2**31 - 1):
        check_optional_fields(Message("t", b"", keys=("a", "b"), flag=flag))
    with pytest.raises(MessageError, match="32-bit"):
        check_optional_fields(Message("t", b"", flag=-(2**31) - 1))


def test_priorities_at_the_edge() -> None:
    for priority in (0, 2**31 - 1):
        check_optional_fields(Message("t", b"", priority=priority))
    for wrong_one in (-1, 2**31, True, "3", 1.0):
        with pytest.raises(MessageError, match="a whole number from 0 to 2147483647"):
            check_optional_fields(Message("t", b"", priority=cast("int", wrong_one)))


NO_QUEUES = [
    "t",
    5,
    MessageQueue("u", "broker-0", 0),
    MessageQueue("t", "broker-0", 2**31),
    MessageQueue("t", "broker-0", -1),
    MessageQueue("t", "broker-0", cast("int", "0")),
    [],
]


@pytest.mark.parametrize("queue", NO_QUEUES)
def test_a_queue_of_the_topic_is_wanted(queue: object) -> None:
    check_destination(QUEUE, "t")
    check_destination(None, "t")
    with pytest.raises(MessageError, match=r"MessageQueue|cannot go to u@broker-0:0|number from 0 to 2147483647"):
        check_destination(queue, "t")


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_who_sends_what_is_no_message_disturbs_nobody(tmp_path: Path, auto_batch: bool) -> None:
    config = ProducerConfig(auto_batch=auto_batch, batch_max_delay_ms=20)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            right = []
            for name in WRONG:
                right.append(asyncio.ensure_future(producer.send(Message("t", name.encode()))))
                await asyncio.sleep(0)  # it is already in its batch
                with pytest.raises(MessageError):
                    await producer.send(wrong(name))
                with pytest.raises(MessageError):
                    await producer.send_batch([Message("t", b"fine"), wrong(name)])
            right.append(asyncio.ensure_future(producer.send(Message("t", b"with a queue"), queue=QUEUE)))
            await asyncio.sleep(0)
            for queue in NO_QUEUES:
                with pytest.raises(MessageError):
                    await producer.send(Message("t", b"x"), queue=cast("MessageQueue", queue))
            buffer = bytearray(b"buffer")
            right.append(asyncio.ensure_future(producer.send(Message("t", cast("bytes", buffer)))))
            right.append(
                asyncio.ensure_future(producer.send(Message("t", cast("bytes", memoryview(b"8bytes..").cast("i")))))
            )
            await asyncio.sleep(0)
            buffer[:] = b"later."  # does not change the sent message
            await asyncio.gather(*right)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            pulled = await consumer.pull(QUEUE, 0, max_count=100)
        assert sorted(message.body for message in pulled.messages()) == sorted(
            [*map(str.encode, WRONG), b"with a queue", b"buffer", b"8bytes.."]
        )


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_what_is_no_message_is_refused_with_what_to_do(tmp_path: Path, auto_batch: bool) -> None:
    config = ProducerConfig(auto_batch=auto_batch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            fine = Message("t", b"x")
            none: Any
            for none, says in (
                ([fine], "send_batch sends a list"),
                (b"x", "expected a Message, not bytes"),
                (None, "NoneType"),
            ):
                with pytest.raises(MessageError, match=says):
                    await producer.send(none)
                with pytest.raises(MessageError, match=says):
                    producer.submit(none)
                with pytest.raises(MessageError, match=says):
                    producer.send_with_callback(none, lambda _: None)
                with pytest.raises(MessageError, match=says):
                    await producer.send_oneway(none)
            with pytest.raises(MessageError, match="'t', None, None"):
                await producer.send(Message("t", b"x", wait_stored=cast("bool", None)))
            for none in (fine, [fine, b"x"], None):
                with pytest.raises(MessageError, match=r"a batch must (be a list of messages|contain only messages)"):
                    await producer.send_batch(none)
            for none in (None, 5):
                with pytest.raises(ClientError, match="the callback must be a function"):
                    producer.send_with_callback(fine, none)
            sent = await producer.send_batch(message for message in (fine, fine))
            assert sent.queue_offset == 0
