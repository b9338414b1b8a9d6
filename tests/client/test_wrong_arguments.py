"""Arguments of the wrong type: one clear error, before a request is sent or a message is read."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    AdminClient,
    BlockingProducer,
    BlockingPullConsumer,
    Delay,
    EnvironmentKeys,
    KeyFile,
    KeyFolder,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    Sql,
    TransactionProducer,
    TransactionState,
    split_messages,
)
from raptormq.errors import ClientError, ConfigError, MessageError
from tests.client.embedded_cluster import Cluster

QUEUE = MessageQueue("t", "broker-0", 0)
NO_TIMEOUTS = ["x", 0, -1, math.nan, math.inf, True]


async def consume(_: list[MessageExt]) -> None:
    """A listener."""


@asynccontextmanager
async def sending(tmp_path: Path) -> AsyncIterator[Producer]:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            yield producer


@pytest.mark.parametrize("wrong", [5, b"group", ["g"]])
def test_a_group_is_text(wrong: Any) -> None:
    makes: list[Callable[[Any], object]] = [Producer, PushConsumer, BlockingProducer, lambda g: PullConsumer(group=g)]
    for make in makes:
        with pytest.raises(MessageError, match="the group must be a string, not"):
            make(wrong)


@pytest.mark.parametrize("make", [Producer, BlockingProducer])
def test_an_argument_that_producers_do_not_have_is_named(make: Any) -> None:
    with pytest.raises(TypeError, match="a producer has no argument foo; settings are send_timeout, retries, "):
        make("g", name_servers="127.0.0.1:1", foo=None)


def test_none_is_no_group() -> None:
    wrong: Any = None
    for make in (Producer, PushConsumer, BlockingProducer):
        with pytest.raises(MessageError, match="the group must be a string, not None"):
            make(wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delay.by("x"),  # type: ignore[arg-type]
        lambda: Delay.by(math.inf),
        lambda: Delay.by(math.nan),
        lambda: Delay.by(1e300),
        lambda: Delay.by_level("3"),  # type: ignore[arg-type]
        lambda: Delay.by_level(1.5),  # type: ignore[arg-type]
        lambda: Delay.until(None),  # type: ignore[arg-type]
        lambda: Delay.until(2**63),
        lambda: Delay("x", 5),
        lambda: Delay("DELAY", "y"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_delay_is_refused(make: Callable[[], Delay]) -> None:
    with pytest.raises(MessageError, match="dela"):
        make()


def test_delays_at_their_limits() -> None:
    assert Delay.until(2**63 - 1).value == 2**63 - 1
    assert Delay.by(-0.001).value == -1


@pytest.mark.parametrize("wrong", [None, 5, b"a", ["a"]])
def test_an_expression_is_text_or_sql(wrong: Any) -> None:
    with pytest.raises(MessageError, match="the filter must be text"):
        Sql(wrong)
    with pytest.raises(MessageError, match="a subscription must be text or Sql"):
        PullConsumer(expression=wrong)
    for subscribe in (PushConsumer("g").subscribe, PushConsumer("g").subscribe_batches):
        with pytest.raises(MessageError, match="a subscription must be text or Sql"):
            subscribe("t", wrong, consume)  # type: ignore[arg-type]
        with pytest.raises(MessageError, match="the topic must be a string"):
            subscribe(wrong, "*", consume)  # type: ignore[arg-type]


async def test_a_topic_is_text(tmp_path: Path) -> None:
    async with sending(tmp_path) as producer:
        wrong: Any = None
        async with AdminClient(client_config=producer._client_config) as admin:
            with pytest.raises(MessageError, match="the topic must be a string, not None"):
                await admin.create_topic(wrong)


@pytest.mark.parametrize("wrong", NO_TIMEOUTS)
async def test_a_timeout_is_a_number_above_0(tmp_path: Path, wrong: Any) -> None:
    async with sending(tmp_path) as producer:
        message = Message("t", b"x")
        for call in (producer.send, producer.request):
            with pytest.raises(ConfigError, match="timeout must be a number above 0"):
                await call(message, timeout=wrong)
        with pytest.raises(ConfigError, match="timeout must be a number above 0"):
            await producer.send_batch([message], timeout=wrong)
        async with PullConsumer(client_config=producer._client_config) as consumer:
            with pytest.raises(ConfigError, match="timeout must be a number above 0"):
                await consumer.pull(QUEUE, 0, timeout=wrong)
        assert (await producer.send(message, timeout=5)).queue_offset == 0


@pytest.mark.parametrize("wrong", [*NO_TIMEOUTS, None])
def test_a_timeout_of_calls_without_await_is_a_number_too(wrong: Any, free_port: int) -> None:
    with BlockingProducer("p", name_servers=f"127.0.0.1:{free_port}") as producer:
        if wrong is not None:
            with pytest.raises(ConfigError, match="timeout must be a number"):
                producer.send(Message("t", b"x"), timeout=wrong)
    with BlockingPullConsumer(name_servers=f"127.0.0.1:{free_port}") as consumer:
        if wrong != 0:
            with pytest.raises(ConfigError, match="timeout must be a number from 0"):
                consumer.poll(wrong)
        assert consumer.poll(0) == []


@pytest.mark.parametrize("key", [5, b"k"])
async def test_a_key_that_chooses_a_queue_is_text(tmp_path: Path, key: Any) -> None:
    async with sending(tmp_path) as producer:
        message = Message("t", b"x")
        for send in (producer.send, producer.send_oneway, producer.request):
            for queue in (None, QUEUE):
                with pytest.raises(MessageError, match="the key that selects a queue must be text"):
                    await send(message, key=key, queue=queue)
        with pytest.raises(MessageError, match="the key that selects a queue must be text"):
            await producer.send_batch([message], key=key)


async def test_only_messages_are_replied_to(tmp_path: Path) -> None:
    async with sending(tmp_path) as producer:
        wrong: Any = None
        with pytest.raises(MessageError, match="a reply needs a MessageExt as its request, not NoneType"):
            await producer.reply(wrong, b"x")


async def test_what_is_read_are_queues_at_offsets(tmp_path: Path) -> None:
    async with sending(tmp_path) as producer:
        wrong: Any
        async with PullConsumer(client_config=producer._client_config) as consumer:
            for wrong in ("x", None, QUEUE, [QUEUE, "x"], [[]]):
                with pytest.raises(ClientError, match="expected a list of MessageQueue"):
                    consumer.assign(wrong)
            assert consumer.assignment == []
            consumer.assign([QUEUE])
            for wrong in ("x", None, 1.5, -1, 10**30, True):
                with pytest.raises(ClientError, match="the offset must be a 64-bit integer of at least 0"):
                    consumer.seek(QUEUE, wrong)
            for wrong in ("1", None, 1.5, -1, True, 1 << 63):
                with pytest.raises(ConfigError, match="timestamp_ms must be a whole number from 0"):
                    await consumer.offset_by_time(QUEUE, wrong)
            for wrong in ("x", None, math.nan, -1):
                with pytest.raises(ConfigError, match="timeout must be a number from 0"):
                    await consumer.poll(wrong)
            assert await consumer.poll(0) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"read_queues": 0, "write_queues": 0}, "read_queues must be a whole number above 0, at most 65536"),
        ({"read_queues": -1}, "read_queues must be"),
        ({"write_queues": 70_000}, "write_queues must be"),
        ({"read_queues": "8", "write_queues": "8"}, "read_queues must be"),
        ({"perm": 8}, "perm must be"),
        ({"order": 1}, "order must be True or False"),
        ({"attributes": "queue.type=BatchCQ"}, "attributes must be Mapping or None, not str"),
        ({"attributes": {"queue.type": 5}}, "names and values of attributes must be text, not 5"),
        ({"brokers": "127.0.0.1:1"}, "brokers must be a list of addresses, not '127.0.0.1:1'"),
    ],
)
async def test_a_topic_is_created_with_settings_of_their_kinds(wrong: Any, named: str) -> None:
    async with AdminClient(name_servers="127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match=named):
            await admin.create_topic("t", **wrong)


async def test_what_is_no_group_has_no_progress() -> None:
    async with AdminClient(name_servers="127.0.0.1:1") as admin:
        wrong: Any = 5
        with pytest.raises(MessageError, match="the group must be a string, not 5"):
            await admin.group_progress(wrong)


async def test_times_between_which_nothing_can_be() -> None:
    async with AdminClient(name_servers="127.0.0.1:1") as admin:
        with pytest.raises(ConfigError, match="begin_ms must not be after end_ms: 5 and 1"):
            await admin.find_messages("t", "k", begin_ms=5, end_ms=1)


async def check(_: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


@pytest.mark.parametrize(
    ("wrong", "error"), [(5, ConfigError), ("abc", ConfigError), ([5], MessageError), ([""], MessageError)]
)
def test_the_topics_of_transactions_are_a_list(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        TransactionProducer("g", check, topics=wrong)


def test_what_is_split_is_a_list() -> None:
    wrong: Any = None
    with pytest.raises(MessageError, match="a batch must be a list of messages, not NoneType"):
        list(split_messages(wrong))


@pytest.mark.parametrize("wrong", [5, None, b"keys"])
def test_keys_have_a_path_or_the_name_of_a_variable(wrong: Any) -> None:
    for make, name in ((KeyFile, "path"), (KeyFolder, "path"), (EnvironmentKeys, "variable")):
        with pytest.raises(ConfigError, match=f"{name} must be text"):
            make(wrong)


@pytest.mark.parametrize(
    "condition", ["price > 100", "a && b", "a | b", "region = 'north'", "a or b", "x IS NOT NULL", "a || (b)"]
)
def test_a_condition_is_no_tag_expression(condition: str) -> None:
    consumer = PushConsumer("g", name_servers="127.0.0.1:1")
    for subscribe in (consumer.subscribe, consumer.subscribe_batches):
        with pytest.raises(MessageError, match=r"is not a tag: .* Sql\(\.\.\.\)"):
            subscribe("t", condition, consume)  # type: ignore[arg-type]
    with pytest.raises(MessageError, match=r"is not a tag: .* Sql\(\.\.\.\)"):
        PullConsumer(expression=condition)


@pytest.mark.parametrize("expression", ["*", "", "paid || refunded", "new order", "a-b.c:d/e", "100", "order", "andor"])
def test_every_tag_can_be_subscribed_to(expression: str) -> None:
    PushConsumer("g", name_servers="127.0.0.1:1").subscribe("t", expression, consume)
