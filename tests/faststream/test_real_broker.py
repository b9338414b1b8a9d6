"""`raptormq.faststream` with a real broker."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, FastStream, TestApp
from faststream.exceptions import NackMessage, RejectMessage, SetupError, StopConsume
from faststream.message import AckStatus
from pydantic import BaseModel

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    OnFailure,
    Order,
    Producer,
    PullConsumer,
    ReceivedBatch,
)
from raptormq.errors import ClientClosed, NoRoute
from raptormq.faststream import RaptorBatch, RaptorBroker, RaptorMessage, RaptorResponse, RaptorRouter
from raptormq.testing import EmbeddedCluster
from tests.client.eventually import eventually
from tests.client.start_limits import count_from_first_round
from tests.names import unique

TIMEOUT_S = 60.0
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, retry_pause=0.1, longest_retry_pause=0.2)


class Purchase(BaseModel):
    """A type of the application."""

    number: int
    customer: str = "nobody"


class Invoice(BaseModel):
    """Another type of the application."""

    order: int


@asynccontextmanager
async def started(broker: RaptorBroker) -> AsyncIterator[RaptorBroker]:
    """Run the broker with its subscribers during the block."""
    async with asyncio.timeout(TIMEOUT_S), broker:
        await broker.start()
        yield broker


async def dead_letters(cluster: EmbeddedCluster, group: str, count: int) -> list[MessageExt]:
    """Return the dead letters of a group when there are this many."""
    async with PullConsumer(name_servers=cluster.name_servers) as consumer:
        topic, found = f"%DLQ%{group}", list[MessageExt]()
        async with AdminClient(name_servers=cluster.name_servers) as admin:
            while topic not in await admin.topics():
                await asyncio.sleep(0.01)
        consumer.assign(await consumer.queues(topic))
        while len(found) < count:
            found += await consumer.poll(1.0)
    return found


async def test_values_go_through_handlers_to_topics(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    invoices = f"{raptormq_topic}-invoices"
    raptormq_cluster.create_topic(invoices)
    broker = RaptorBroker(raptormq_cluster.name_servers)
    received: asyncio.Queue[tuple[Invoice, RaptorMessage]] = asyncio.Queue()

    @broker.subscriber(raptormq_topic, group=unique("billing"), expression="paid", config=FIRST)
    @broker.publisher(invoices, headers={"source": "billing"})
    async def bill(order: Purchase) -> Invoice:
        return Invoice(order=order.number)

    @broker.subscriber(invoices, group=unique("archive"), config=FIRST)
    async def archive(invoice: Invoice, message: RaptorMessage) -> None:
        received.put_nowait((invoice, message))

    async with started(broker):
        await broker.publish(Purchase(number=1), raptormq_topic, tag="cancelled")
        sent = await broker.publish(
            Purchase(number=17), raptormq_topic, tag="paid", keys=["k17"], correlation_id="flow"
        )
        invoice, message = await received.get()
    assert invoice == Invoice(order=17)
    assert (message.correlation_id, message.headers["source"], message.content_type) == (
        "flow",
        "billing",
        "application/json",
    )
    stored = {each.message_id: each for each in raptormq_cluster.messages(raptormq_topic)}
    assert (stored[sent.message_id].tags, stored[sent.message_id].keys) == ("paid", ("k17",))
    assert json.loads(stored[sent.message_id].body) == {"number": 17, "customer": "nobody"}
    assert len(raptormq_cluster.messages(invoices)) == 1


async def settle_by_exception(message: RaptorMessage, error: Exception) -> None:
    raise error


async def settle_by_call(message: RaptorMessage, error: Exception) -> None:
    if isinstance(error, NackMessage):
        await message.nack()
    else:
        await message.reject("not mine")


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("settle", [settle_by_exception, settle_by_call])
async def test_nack_retries_and_reject_makes_a_dead_letter(
    raptormq_cluster: EmbeddedCluster,
    raptormq_topic: str,
    order: Order,
    settle: Callable[[RaptorMessage, Exception], Awaitable[None]],
) -> None:
    group = unique("settling")
    broker = RaptorBroker(raptormq_cluster.name_servers, logger=None)
    seen: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    handled: dict[str, RaptorMessage] = {}

    @broker.subscriber(raptormq_topic, group=group, order=order, config=FIRST)
    async def handle(body: str, message: RaptorMessage) -> None:
        times = message.raw_message.reconsume_times
        seen.put_nowait((body, times))
        handled.setdefault(body, message)
        if body == "retry" and times == 0:
            await settle(message, NackMessage())
        if body == "reject":
            await settle(message, RejectMessage())

    async with started(broker):
        for body in ("retry", "reject", "ack"):
            await broker.publish(body, raptormq_topic, key="same")
        if order is Order.NONE:
            first = {await seen.get() for _ in range(3)}
            await eventually(lambda: handled["retry"].committed is AckStatus.NACKED)
            raptormq_cluster.advance(11)  # the first retry delay of brokers is 10 s
            calls = [*sorted(first), await seen.get()]
            assert calls == [("ack", 0), ("reject", 0), ("retry", 0), ("retry", 1)]
        else:
            calls = [await seen.get() for _ in range(4)]
            assert calls == [("retry", 0), ("retry", 1), ("reject", 0), ("ack", 0)]
        [letter] = await dead_letters(raptormq_cluster, group, 1)
    assert letter.body == b"reject"
    if order is Order.NONE and settle is settle_by_call:
        assert letter.properties["DLQ_REASON"] == "not mine"
    assert raptormq_cluster.lag(group, raptormq_topic) == 0


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, "retried"),
        (AckPolicy.NACK_ON_ERROR, "retried"),
        (AckPolicy.REJECT_ON_ERROR, "dead letter"),
        (AckPolicy.ACK, "consumed"),
        (AckPolicy.ACK_FIRST, "consumed"),
        (AckPolicy.MANUAL, "open"),
    ],
)
async def test_the_policy_decides_after_an_error(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str, policy: AckPolicy | None, expected: str
) -> None:
    group = unique("failing")
    options: dict[str, Any] = {} if policy is None else {"ack_policy": policy}
    broker = RaptorBroker(raptormq_cluster.name_servers, logger=None)
    calls: asyncio.Queue[RaptorMessage] = asyncio.Queue()

    @broker.subscriber(raptormq_topic, group=group, config=FIRST, **options)
    async def fail(body: str, message: RaptorMessage) -> None:
        calls.put_nowait(message)
        raise ValueError(body)

    async with started(broker):
        await broker.publish("bad", raptormq_topic)
        message = await calls.get()
        if expected == "retried":
            await eventually(lambda: message.committed is AckStatus.NACKED)
            raptormq_cluster.advance(11)
            assert (await calls.get()).raw_message.reconsume_times == 1
        if expected == "dead letter":
            assert len(await dead_letters(raptormq_cluster, group, 1)) == 1
    assert raptormq_cluster.lag(group, raptormq_topic) == (1 if expected == "open" else 0)


async def awaits_what_was_cancelled() -> None:
    """Raise a cancellation that nobody has asked for."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def raises_a_base_exception() -> None:
    """Raise an error that is no `Exception`, like `pytest.fail`."""
    raise BaseExceptionGroup("as planned", [BaseException()])


async def cancels_its_task() -> None:
    if (task := asyncio.current_task()) is not None:
        task.cancel()


async def cancels_its_task_and_waits() -> None:
    await cancels_its_task()
    await asyncio.Event().wait()


async def cancels_its_task_twice() -> None:
    try:
        await cancels_its_task_and_waits()
    finally:
        await cancels_its_task()


@pytest.mark.parametrize(
    "fail",
    [
        awaits_what_was_cancelled,
        raises_a_base_exception,
        cancels_its_task,
        cancels_its_task_and_waits,
        cancels_its_task_twice,
    ],
)
async def test_an_error_that_is_no_exception_is_logged_and_the_next_message_is_handled(
    raptormq_cluster: EmbeddedCluster,
    raptormq_topic: str,
    fail: Callable[[], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers, logger=None)
    group, handled = unique("surviving"), asyncio.Event()

    @broker.subscriber(raptormq_topic, group=group, config=FIRST, max_workers=1)
    async def handle(body: str) -> None:
        if body == "bad":
            await fail()
        else:
            handled.set()

    async with started(broker):
        await broker.publish("bad", raptormq_topic)
        await eventually(lambda: f"a handler of group {group}" in caplog.text)
        await broker.publish("good", raptormq_topic)
        await handled.wait()
    assert raptormq_cluster.lag(group, raptormq_topic) == 0  # both are settled


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("decision", [NackMessage(after=0), RejectMessage(reason="not mine")])
async def test_a_decision_is_repeated_until_a_broker_accepts_it(
    tmp_path: Path, decision: Exception, batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    group, calls, go_on = unique("stubborn"), asyncio.Queue[RaptorMessage](), asyncio.Event()
    with EmbeddedCluster(tmp_path) as cluster:
        cluster.create_topic("t")
        broker = RaptorBroker(cluster.name_servers, logger=None)

        @broker.subscriber("t", group=group, config=FIRST, max_workers=1, batch=batch)
        async def fail(body: Any, message: RaptorMessage) -> None:
            calls.put_nowait(message)
            await go_on.wait()
            raise decision

        async with started(broker):
            await broker.publish("bad", "t")
            message = await calls.get()
            await asyncio.to_thread(cluster.stop_broker)
            go_on.set()
            await eventually(lambda: f"group {group} settles a message" in caplog.text)
            await asyncio.to_thread(cluster.start_broker)
            if isinstance(decision, NackMessage):
                await calls.get()
                assert message.committed is AckStatus.NACKED
            else:
                [letter] = await dead_letters(cluster, group, 1)
                assert letter.properties["DLQ_REASON"] == "not mine"


async def test_a_stop_does_not_wait_for_a_decision_that_no_broker_accepts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group, called, go_on = unique("stopped"), asyncio.Event(), asyncio.Event()
    with EmbeddedCluster(tmp_path) as cluster:
        cluster.create_topic("t")
        broker = RaptorBroker(client_config=ClientConfig(cluster.name_servers, close_timeout=50.0), logger=None)

        @broker.subscriber("t", group=group, config=FIRST, max_workers=1)
        async def fail(_: str) -> None:
            called.set()
            await go_on.wait()
            raise RejectMessage

        async with started(broker):
            await broker.publish("bad", "t")
            await called.wait()
            await asyncio.to_thread(cluster.stop_broker)
            go_on.set()
            await eventually(lambda: f"group {group} settles a message" in caplog.text)
            async with asyncio.timeout(20):
                await broker.stop()


async def test_a_message_that_no_broker_will_ever_store_does_not_occupy_a_worker(tmp_path: Path) -> None:
    group, handled, go_on = unique("refused"), asyncio.Queue[str](), asyncio.Event()
    with EmbeddedCluster(tmp_path) as cluster:
        cluster.create_topic("t", 1)
        broker = RaptorBroker(cluster.name_servers, logger=None)

        @broker.subscriber("t", group=group, config=FIRST, max_workers=1)
        async def handle(body: str) -> None:
            handled.put_nowait(body[:4])
            await go_on.wait()
            if body.startswith("long"):
                raise NackMessage(after=0)

        async with started(broker):
            await broker.publish(f"long{secrets.token_hex(10_000)}", "t")
            await broker.publish("next", "t")
            assert await handled.get() == "long"
            async with AdminClient(name_servers=cluster.name_servers) as admin:
                [address] = await admin.masters()
                await admin.update_broker_settings(address, {"maxMessageSize": "5000"})
            go_on.set()
            assert await handled.get() == "next"


async def test_batches(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    broker, group = RaptorBroker(raptormq_cluster.name_servers), unique("batches")
    calls: asyncio.Queue[tuple[list[Purchase], RaptorBatch]] = asyncio.Queue()

    @broker.subscriber(
        raptormq_topic, group=group, batch=True, max_records=3, batch_timeout_ms=20_000, max_workers=1, config=FIRST
    )
    async def handle(purchases: list[Purchase], batch: RaptorBatch) -> None:
        calls.put_nowait((purchases, batch))
        if len(purchases) == len({purchase.number for purchase in purchases}) == 3 and purchases[0].number < 3:
            assert isinstance(batch.raw_message, ReceivedBatch)
            await batch.raw_message[0].dead_letter("alone")
            return
        raise NackMessage(after=0)

    async with started(broker):
        for number in range(6):
            await broker.publish(Purchase(number=number), raptormq_topic, headers={"n": str(number)}, key="one")
        first, batch = await calls.get()
        assert [purchase.number for purchase in first] == [0, 1, 2]
        assert [headers["n"] for headers in batch.batch_headers] == ["0", "1", "2"]
        await eventually(lambda: batch.committed is AckStatus.ACKED)
        second, batch = await calls.get()
        assert [purchase.number for purchase in second] == [3, 4, 5]
        again, batch = await calls.get()
        assert {purchase.number for purchase in again} == {3, 4, 5}
        assert {message.reconsume_times for message in batch.raw_message} == {1}
    [letter] = await dead_letters(raptormq_cluster, group, 1)
    assert letter.properties["DLQ_REASON"] == "alone"


@pytest.mark.parametrize("error", [RejectMessage(), ValueError("no")])
async def test_batches_in_order(raptormq_cluster: EmbeddedCluster, raptormq_topic: str, error: Exception) -> None:
    broker, group = RaptorBroker(raptormq_cluster.name_servers), unique("ordered-batches")
    handled: list[int] = []
    failed: list[list[int]] = []
    done = asyncio.Event()

    async def handle(numbers: list[int]) -> None:
        if 5 in numbers and (isinstance(error, RejectMessage) or len(failed) < 2):
            failed.append(numbers)
            raise error
        assert len(numbers) <= 4
        handled.extend(numbers)
        if 9 in numbers:
            done.set()

    for number in range(10):
        async with RaptorBroker(raptormq_cluster.name_servers) as producer:
            await producer.publish(number, raptormq_topic, key="one")
    broker.subscriber(raptormq_topic, group=group, batch=True, max_records=4, order=Order.BY_KEY, config=FIRST)(handle)
    async with started(broker):
        await done.wait()
    if isinstance(error, RejectMessage):
        [letter] = await dead_letters(raptormq_cluster, group, 1)
        assert json.loads(letter.body) == 5
    assert handled == [number for number in range(10) if number != 5 or not isinstance(error, RejectMessage)]
    assert 5 in failed[0]
    assert len(failed[0]) > 1
    assert failed[1:] == [[5]]


async def test_messages_of_a_key_are_handled_in_order_and_others_at_the_same_time(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str
) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers)
    handled: list[tuple[str, int]] = []
    together = asyncio.Barrier(3)
    done = asyncio.Event()

    @broker.subscriber(raptormq_topic, group=unique("ordered"), order=Order.BY_KEY, max_workers=3, config=FIRST)
    async def handle(number: int, key: Annotated[str, Context("message.headers.customer")]) -> None:
        await together.wait()  # only handlers of three customers can pass it at the same time
        handled.append((key, number))
        if len(handled) == 30:
            done.set()

    async with started(broker):
        for number in range(10):
            for customer in ("a", "b", "c"):
                await broker.publish(number, raptormq_topic, key=customer, headers={"customer": customer})
        await done.wait()
    for customer in ("a", "b", "c"):
        assert [number for key, number in handled if key == customer] == list(range(10))


async def test_a_request_is_answered(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers)

    @broker.subscriber(raptormq_topic, group=unique("answering"))
    async def double(number: int) -> int:
        return 2 * number

    async with started(broker):
        reply = await broker.request(21, raptormq_topic, timeout=30.0)
        assert await reply.decode() == 42


async def test_a_request_of_a_caller_that_has_gone_is_consumed(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers)
    handled: asyncio.Queue[RaptorMessage] = asyncio.Queue()
    go_on = asyncio.Event()

    @broker.subscriber(raptormq_topic, group=unique("doubles"), config=FIRST)
    async def double(number: int, message: RaptorMessage) -> int:
        handled.put_nowait(message)
        await go_on.wait()
        return number * 2

    async with started(broker):
        async with Producer("askers", client_config=ClientConfig(raptormq_cluster.name_servers)) as asker:
            asking = asyncio.create_task(asker.request(Message(raptormq_topic, b"21"), timeout=30.0))
            message = await handled.get()
        with pytest.raises(ClientClosed):
            await asking
        go_on.set()
        await eventually(lambda: message.committed is not None)
        assert message.committed is AckStatus.ACKED
    assert f"request {message.message_id} gets no reply: code 1 " in caplog.text


async def test_routers_have_prefixes_middlewares_and_responses_keys(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str
) -> None:
    steps: list[str] = []

    class Noting(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            steps.append("consume")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            steps.append(f"publish to {cmd.destination}")
            return await call_next(cmd)

    prefix, rest = raptormq_topic[:5], raptormq_topic[5:]
    raptormq_cluster.create_topic(f"{raptormq_topic}-out")
    router = RaptorRouter(prefix, middlewares=[Noting])
    done: asyncio.Queue[str] = asyncio.Queue()

    @router.subscriber(rest, group=unique("routed"), config=FIRST)
    @router.publisher(f"{rest}-out", tag="copied")
    async def copy(body: str) -> RaptorResponse:
        return RaptorResponse(body, key="k")

    @router.subscriber(f"{rest}-out", group=unique("routed"), expression="copied", config=FIRST)
    async def end(body: str) -> None:
        done.put_nowait(body)

    broker = RaptorBroker(raptormq_cluster.name_servers, routers=[router])
    async with started(broker):
        await broker.publish("x", raptormq_topic)
        assert await done.get() == "x"
    assert steps == ["consume", f"publish to {raptormq_topic}-out", "consume"]
    [copied] = raptormq_cluster.messages(f"{raptormq_topic}-out")
    assert (copied.tags, copied.properties["__SHARDINGKEY"]) == ("copied", "k")


async def test_an_application_has_a_lifespan_and_waits_for_handlers(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str
) -> None:
    group = unique("stopping")
    broker = RaptorBroker(raptormq_cluster.name_servers)
    events: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        events.append("before")
        yield
        events.append("after")

    @broker.subscriber(raptormq_topic, group=group, config=FIRST)
    async def slow(body: str) -> None:
        begun.set()
        await go_on.wait()
        events.append("handled")

    async with asyncio.timeout(TIMEOUT_S), TestApp(FastStream(broker, lifespan=lifespan)):
        await broker.publish("x", raptormq_topic)
        await begun.wait()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    assert events == ["before", "handled", "after"]
    assert raptormq_cluster.lag(group, raptormq_topic) == 0


@pytest.mark.parametrize("order", [Order.NONE, Order.BY_QUEUE])
async def test_a_handler_may_stop_its_subscriber(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str, order: Order
) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers, logger=None)
    group, calls = unique("once"), list[str]()
    subscriber = broker.subscriber(
        raptormq_topic, group=group, order=order, config=FIRST, max_workers=1, ack_policy=AckPolicy.ACK
    )

    @subscriber
    async def once(body: str) -> None:
        calls.append(body)
        raise StopConsume

    async with started(broker):
        for body in ("1", "2"):
            await broker.publish(body, raptormq_topic, key="same")
        await eventually(lambda: not subscriber.running)
    assert calls == ["1"]
    assert raptormq_cluster.lag(group, raptormq_topic) == 1


async def test_messages_are_taken_without_a_handler(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers)
    group = unique("taking")
    subscriber = broker.subscriber(raptormq_topic, group=group, config=FIRST)
    async with started(broker):
        for number in range(3):
            await broker.publish(number, raptormq_topic)
        first = await subscriber.get_one(timeout=30.0)
        assert first is not None
        await first.ack()
        taken = [await first.decode()]
        async for message in subscriber:
            await message.ack()
            taken.append(await message.decode())
            if len(taken) == 3:
                break
        assert set(taken) == {0, 1, 2}
        assert await subscriber.get_one(timeout=0.1) is None
    assert raptormq_cluster.lag(group, raptormq_topic) == 0


async def test_mistakes_are_errors_where_they_are_made(
    raptormq_cluster: EmbeddedCluster, raptormq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_from_first_round(monkeypatch)
    broker = RaptorBroker(raptormq_cluster.name_servers)
    for topic in (raptormq_topic, "another"):

        @broker.subscriber(topic, group="same")
        async def handle(body: str) -> None: ...

    with pytest.raises(SetupError, match="2 subscribers have the group same"):
        await broker.start()
    missing = RaptorBroker(raptormq_cluster.name_servers)

    @missing.subscriber("never-created", group="g", config=ConsumerConfig(start_timeout=0.2))
    async def never(body: str) -> None: ...

    async with missing:
        with pytest.raises(NoRoute, match=re.escape("never-created")):
            await missing.start()
        assert await missing.ping(timeout=30.0)
    assert not await RaptorBroker("127.0.0.1:1").ping(timeout=1.0)


async def test_a_policy_may_stop_at_a_rejected_message(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    broker = RaptorBroker(raptormq_cluster.name_servers, logger=None)
    group, calls = unique("strict"), asyncio.Queue[str]()
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, on_failure=OnFailure.SKIP)

    @broker.subscriber(raptormq_topic, group=group, order=Order.BY_QUEUE, config=config)
    async def handle(body: str) -> None:
        calls.put_nowait(body)
        raise RejectMessage

    async with started(broker):
        for body in ("1", "2"):
            await broker.publish(body, raptormq_topic, key="same")
        assert [await calls.get(), await calls.get()] == ["1", "2"]  # skipped immediately, without a retry
    assert raptormq_cluster.lag(group, raptormq_topic) == 0
