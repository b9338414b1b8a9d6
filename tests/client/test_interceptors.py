"""Interceptors of every kind of send and consumption: called once before and once after, in every case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    ConsumeResult,
    ConsumerInterceptor,
    ConsumeStatus,
    DeadLetterContext,
    Described,
    Message,
    MessageBatch,
    MessageExt,
    Order,
    Producer,
    ProducerInterceptor,
    PullConsumer,
    PushConsumer,
    QueueChange,
    RebalanceContext,
    SendContext,
    SendResult,
    TransactionProducer,
    TransactionState,
)
from raptormq.errors import ClientClosed, ConfigError, MessageError, NoRoute
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5, retry_pause=0.05
)


class Tracing(ProducerInterceptor, ConsumerInterceptor):
    """Adds a property to messages, and records its calls."""

    def __init__(self, name: str = "trace", calls: list[str] | None = None) -> None:
        self.name = name
        self.calls: list[str] = [] if calls is None else calls
        self.sent: list[SendContext] = []
        self.consumed: list[ConsumeContext] = []

    def before_send(self, context: SendContext) -> None:
        assert context.result is None
        context.message.properties[self.name] = "x"
        context.state[self] = self.name
        self.calls.append(f"before {self.name}")

    def after_send(self, context: SendContext) -> None:
        assert context.state.pop(self) == self.name
        assert context.duration >= 0
        self.calls.append(f"after {self.name}")
        self.sent.append(context)

    def before_consume(self, context: ConsumeContext) -> None:
        assert context.status is None
        self.calls.append(f"before {self.name}")

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.duration >= 0
        self.calls.append(f"after {self.name}")
        self.consumed.append(context)


class Watching(ProducerInterceptor, ConsumerInterceptor):
    """Records calls without their counterpart."""

    def __init__(self) -> None:
        self.clients: list[tuple[str, bool]] = []
        self.letters: list[DeadLetterContext] = []
        self.changes: list[RebalanceContext] = []

    def on_start(self, client: Described) -> None:
        self.clients.append((f"{client.describe().group} starts", client.describe().is_started))

    def on_close(self, client: Described) -> None:
        self.clients.append((f"{client.describe().group} ends", client.describe().is_started))

    def on_dead_letter(self, context: DeadLetterContext) -> None:
        self.letters.append(context)

    def on_rebalance(self, context: RebalanceContext) -> None:
        self.changes.append(context)


class Failing(ProducerInterceptor, ConsumerInterceptor):
    """Raises in every call."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def before_send(self, context: SendContext) -> None:
        raise self.error("before_send")

    def after_send(self, context: SendContext) -> None:
        raise self.error("after_send")

    def before_consume(self, context: ConsumeContext) -> None:
        raise self.error("before_consume")

    def after_consume(self, context: ConsumeContext) -> None:
        raise self.error("after_consume")

    def on_start(self, client: Described) -> None:
        raise self.error("on_start")

    def on_rebalance(self, context: RebalanceContext) -> None:
        raise self.error("on_rebalance")


async def by_callback(producer: Producer, message: Message) -> object:
    outcome: asyncio.Future[SendResult | BaseException] = asyncio.get_running_loop().create_future()
    producer.send_with_callback(message, outcome.set_result)
    return await outcome


async def in_a_list(producer: Producer, message: Message) -> object:
    return await producer.send_batch([message])


async def oneway(producer: Producer, message: Message) -> None:
    await producer.send_oneway(message)


async def by_key(producer: Producer, message: Message) -> object:
    return await producer.send(message, key="k")


async def submitted(producer: Producer, message: Message) -> object:
    return await producer.submit(message)


SENDS: list[Callable[[Producer, Message], Awaitable[object]]] = [
    Producer.send,
    by_key,
    submitted,
    by_callback,
    in_a_list,
    oneway,
]


async def stored(cluster: Cluster, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with PullConsumer(name_servers=cluster.name_servers) as reader:
        reader.assign(await reader.queues("t"))
        while len(messages) < count:
            messages += await reader.poll(timeout=5)
    return messages


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
@pytest.mark.parametrize("send", SENDS, ids=[send.__name__ for send in SENDS])
async def test_every_send_is_between_its_interceptors(
    tmp_path: Path, send: Callable[[Producer, Message], Awaitable[object]], auto_batch: bool
) -> None:
    calls: list[str] = []
    first, second = Tracing("a", calls), Tracing("b", calls)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        message = Message("t", b"x", properties={"mine": "1"})
        async with Producer(
            "p", name_servers=cluster.name_servers, auto_batch=auto_batch, interceptors=[first, second]
        ) as producer:
            result = await send(producer, message)
        assert message.properties == {"mine": "1"}
        [found] = await stored(cluster, 1)
        assert found.user_properties == {"mine": "1", "a": "x", "b": "x"}
    assert calls == ["before a", "before b", "after b", "after a"]
    [context] = first.sent
    assert (context.result, context.error, context.group, context.message.body) == (result, None, "p", b"x")


@pytest.mark.parametrize("send", SENDS, ids=[send.__name__ for send in SENDS])
async def test_a_failed_send_has_its_error(
    tmp_path: Path, send: Callable[[Producer, Message], Awaitable[object]]
) -> None:
    tracing = Tracing()
    async with (
        Cluster(tmp_path, autoCreateTopicEnable="false") as cluster,
        Producer("p", name_servers=cluster.name_servers, interceptors=[tracing]) as producer,
    ):
        try:
            outcome: object = await send(producer, Message("missing", b"x"))
        except NoRoute as error:
            outcome = error
        assert [context.error for context in tracing.sent] == [outcome]
        with pytest.raises(MessageError):
            await send(producer, Message("no topic", b"x"))
        assert isinstance(tracing.sent[1].error, MessageError)
        with pytest.raises(MessageError):
            await send(producer, "no message")  # type: ignore[arg-type]
        assert len(tracing.sent) == 2


async def test_a_closed_producer_calls_no_interceptor(tmp_path: Path) -> None:
    tracing = Tracing()
    async with Cluster(tmp_path) as cluster:
        producer = Producer("p", name_servers=cluster.name_servers, interceptors=[tracing])
        await producer.start()
        await producer.close()
        with pytest.raises(ClientClosed):
            producer.send_with_callback(Message("t", b"x"), lambda _: None)
        with pytest.raises(ClientClosed):
            producer.submit(Message("t", b"x"))
    assert tracing.calls == []


async def test_requests_replies_and_transactions(tmp_path: Path) -> None:
    tracing, replying, deciding = Tracing(), Tracing("reply"), Tracing("half")
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        servers = cluster.name_servers
        async with (
            Producer("p", name_servers=servers, interceptors=[tracing]) as asking,
            Producer("q", name_servers=servers, interceptors=[replying]) as answering,
        ):

            async def reply(messages: list[MessageExt]) -> None:
                for message in messages:
                    await answering.reply(message, b"42")

            async with PushConsumer("g", name_servers=servers, config=FAST) as consumer:
                consumer.subscribe("t", "*", reply)
                answer = await asking.request(Message("t", b"?"), timeout=20)
                assert (answer.body, answer.properties["reply"]) == (b"42", "x")
        assert [context.result is not None for context in tracing.sent + replying.sent] == [True, True]

        async def check(_: MessageExt) -> TransactionState:
            return TransactionState.COMMIT

        async def execute(message: Message) -> None:
            assert message.properties["half"] == "x"

        async with TransactionProducer("r", check, name_servers=servers, interceptors=[deciding]) as producer:
            await producer.send_in_transaction(Message("t", b"!"), execute)
        assert [context.result is not None for context in deciding.sent] == [True]


FAILED_CALLS = {
    "p": ["on_start", "before_send", "after_send"],
    "g": ["on_start", "on_rebalance", "before_consume", "after_consume"],
}


@pytest.mark.parametrize("error", [ValueError, BaseException])
async def test_a_failing_interceptor_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, interceptors=[Failing(error)]) as producer:
            for _ in range(3):
                await producer.send(Message("t", b"x"))
        config = replace(FAST, interceptors=[Failing(error)])
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            for _ in range(3):
                assert await (await anext(consumer)).ack()
    logged = [record.getMessage() for record in caplog.records if "interceptor" in record.getMessage()]
    assert sorted(logged) == sorted(
        f"interceptor Failing.{name} of group {group} failed; sends and consumption are not affected"
        for group, names in FAILED_CALLS.items()
        for name in names
    )


def test_what_is_no_interceptor_is_refused() -> None:
    class Async(ProducerInterceptor):
        async def before_send(self, context: SendContext) -> None:  # type: ignore[override]
            """A function that is not async."""

    with pytest.raises(ConfigError, match=r"Async\.before_send must be a plain def"):
        Producer("p", interceptors=[Async()])
    with pytest.raises(ConfigError, match="subclasses of ProducerInterceptor, not 'x'"):
        Producer("p", interceptors=["x"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="subclasses of ConsumerInterceptor"):
        ConsumerConfig(interceptors=[Async()])  # type: ignore[list-item]


async def consumed(cluster: Cluster, order: Order, listener: object, *, whole: bool = False) -> list[ConsumeContext]:
    calls: list[str] = []
    outer, inner = Tracing("a", calls), Tracing("b", calls)
    config = replace(FAST, order=order, max_reconsume_times=1, interceptors=[outer, inner])
    async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
        if whole:
            consumer.subscribe_batches("t", "*", listener)  # type: ignore[arg-type]
        else:
            consumer.subscribe("t", "*", listener)  # type: ignore[arg-type]
        await eventually(lambda: bool(outer.consumed))
    assert calls[:4] == ["before a", "before b", "after b", "after a"]
    return outer.consumed


@pytest.mark.parametrize("order", list(Order), ids=str)
async def test_listener_calls_are_between_their_interceptors(tmp_path: Path, order: Order) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"x"))

        async def raises(_: list[MessageExt]) -> None:
            raise KeyError("17")

        async def later(_: list[MessageExt]) -> ConsumeResult:
            await asyncio.sleep(0)
            return ConsumeResult.RECONSUME_LATER

        [context, *_] = await consumed(cluster, order, raises)
        assert (context.status, context.topic, [each.body for each in context.messages]) == (
            ConsumeStatus.RETRIED,
            "t",
            [b"x"],
        )
        assert isinstance(context.error, KeyError)
        assert list(context.failed) == list(context.messages)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"y"))
        [context, *_] = await consumed(cluster, order, later)
        assert (context.status, context.error) == (ConsumeStatus.RETRIED, None)


async def test_a_batch_listener_fails_for_some(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send_batch([Message("t", b"0"), Message("t", b"1")])

        async def second_fails(batch: MessageBatch) -> list[int]:
            return [len(batch) - 1]

        [context, *_] = await consumed(cluster, Order.NONE, second_fails, whole=True)
        assert context.status is ConsumeStatus.RETRIED
        assert [message.body for message in context.failed] == [b"1"]
        assert len(context.messages) == 2

        async def works(_: MessageBatch) -> None:
            """Consume the batch."""

        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"2"))
        [context, *_] = await consumed(cluster, Order.NONE, works, whole=True)
        assert (context.status, list(context.failed)) == (ConsumeStatus.CONSUMED, [])


async def test_messages_of_a_loop(tmp_path: Path) -> None:
    tracing = Tracing()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(4):
                await producer.send(Message("t", b"%d" % number))
        config = replace(FAST, interceptors=[tracing])
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            messages = [await anext(consumer) for _ in range(4)]
            assert tracing.calls == ["before trace"] * 4
            await messages[0].ack()
            await messages[1].retry(60)
            await messages[2].dead_letter("reason")
    assert [(context.messages[0].body, context.status) for context in tracing.consumed] == [
        (b"0", ConsumeStatus.CONSUMED),
        (b"1", ConsumeStatus.RETRIED),
        (b"2", ConsumeStatus.DEAD_LETTER),
        (b"3", ConsumeStatus.ABANDONED),
    ]


@pytest.mark.parametrize("order", list(Order), ids=str)
async def test_dead_letters_of_listeners(tmp_path: Path, order: Order) -> None:
    watching = Watching()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            sent = await producer.send(Message("t", b"x"))

        async def raises(_: list[MessageExt]) -> None:
            raise KeyError("17")

        config = replace(FAST, order=order, max_reconsume_times=0, interceptors=[watching])
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", raises)
            await eventually(lambda: bool(watching.letters))
    [letter] = watching.letters
    assert (letter.group, letter.dead_letter_topic, letter.reason) == ("g", "%DLQ%g", None)
    assert (letter.message.topic, letter.message.message_id) == ("t", sent.message_id)


async def test_dead_letters_of_a_loop(tmp_path: Path) -> None:
    watching = Watching()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send_batch([Message("t", b"0"), Message("t", b"1")])
        config = replace(FAST, max_reconsume_times=0, interceptors=[watching])
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            await (await anext(consumer)).retry()
            await (await anext(consumer)).dead_letter("no such account")
    assert [(letter.message.body, letter.reason) for letter in watching.letters] == [
        (b"0", None),
        (b"1", "no such account"),
    ]


async def test_clients_and_their_queues(tmp_path: Path) -> None:
    watching = Watching()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        async with Producer("p", name_servers=cluster.name_servers, interceptors=[watching]):
            pass
        config = replace(FAST, interceptors=[watching])
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            await eventually(lambda: len(consumer.assignment) == 3)  # with the queue of the retry topic
        assert watching.changes[0].change is QueueChange.ASSIGNED
        assert watching.changes[-1].change is QueueChange.REVOKED
        for change in (QueueChange.ASSIGNED, QueueChange.REVOKED):
            queues = [queue for each in watching.changes if each.change is change for queue in each.queues]
            assert sorted((queue.topic, queue.queue_id) for queue in queues) == [("t", 0), ("t", 1)]
    assert watching.clients == [("p starts", True), ("p ends", False), ("g starts", True), ("g ends", False)]
