"""The error of a failed send: every attempt, and whether a retry is safe. Also slow brokers."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.client import ClientConfig, Message, MessageQueue, Producer, ProducerConfig
from raptormq.client.producer import queue_selector
from raptormq.client.producer.queue_selector import BrokerHealth, avoided_for
from raptormq.errors import ConnectError, NoRoute, RaptorMQError, RequestTimeout, SendAttempt, ServerError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import Reply, ScriptedPeer, hang_up, refuse, route, silence, stored, stored_whole

SEND = RequestCode.SEND_MESSAGE_V2
HELLO = Message("t", b"hello")


@asynccontextmanager
async def two_brokers(
    config: ProducerConfig, **replies: Reply
) -> AsyncIterator[tuple[Producer, ScriptedPeer, ScriptedPeer]]:
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        first.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(2, first, second))
        for peer, name in ((first, "first"), (second, "second")):
            if name in replies:
                peer.on(SEND, replies[name])
        async with Producer("p", config=config, client_config=ClientConfig(first.address)) as producer:
            yield producer, first, second


async def failure_of(producer: Producer) -> RaptorMQError:
    with pytest.raises(RaptorMQError) as caught:
        await producer.send(HELLO)
    return caught.value


async def test_refusals_by_both_brokers_are_safe() -> None:
    config = ProducerConfig(retries=1)
    async with two_brokers(config, first=refuse(2), second=refuse(2)) as (producer, first, second):
        error = await failure_of(producer)
        assert isinstance(error, ServerError)
        assert (error.code, error.remark) == (2, "as the script says")
        assert {(each.broker, each.address) for each in error.attempts} == {
            ("broker-0", first.address),
            ("broker-1", second.address),
        }
        assert not error.may_be_stored
        text = str(error)
        assert "as the script says; 2 attempts: broker-" in text
        assert f"broker-0 {first.address} (code 2, " in text
        assert text.endswith("; it was not stored, so a retry is safe")


async def test_a_silent_broker_may_have_stored_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request, quiet = Connection.request, set[str]()

    def limited(self: Connection, message: RemotingCommand, timeout: float) -> asyncio.Future[RemotingCommand]:
        return request(self, message, 0.1 if message.code == SEND and self.peer_name in quiet else timeout)

    # Only the request without a response has a short limit. All others end also on a machine that stalls.
    monkeypatch.setattr(Connection, "request", limited)
    config = ProducerConfig(retries=1, send_timeout=60)
    async with two_brokers(config, first=silence, second=refuse(2)) as (producer, first, _):
        quiet.add(first.address)
        error = await failure_of(producer)
        assert sorted(each.error for each in error.attempts) == ["code 2", "no response in time"]
        assert error.may_be_stored
        assert str(error).endswith("so a retry may store it twice")


async def test_a_lost_connection_may_have_stored_it() -> None:
    async with two_brokers(ProducerConfig(retries=0), first=hang_up, second=hang_up) as (producer, _, _):
        error = await failure_of(producer)
        assert "1 attempt: broker-" in str(error)
        assert "(the connection was lost, " in str(error)
        assert error.may_be_stored


async def test_an_answer_that_cannot_be_read_may_have_stored_it() -> None:
    def nothing(connection: Connection, request: RemotingCommand) -> None:
        connection.send(RemotingCommand(0, opaque=request.opaque, flag=1))

    async with two_brokers(ProducerConfig(retries=0), first=nothing, second=nothing) as (producer, _, _):
        assert (await failure_of(producer)).may_be_stored


async def test_without_a_broker_a_retry_is_safe(free_port: int) -> None:
    async with ScriptedPeer() as names:
        names.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, unreachable=f"127.0.0.1:{free_port}"))
        config = ProducerConfig(retries=0, send_timeout=60)
        async with Producer("p", config=config, client_config=ClientConfig(names.address)) as producer:
            error = await failure_of(producer)
            assert isinstance(error, ConnectError)
            assert not error.may_be_stored
            assert f"127.0.0.1:{free_port} (no connection, " in str(error)
            assert "a retry is safe" in str(error)


async def test_a_topic_without_a_route() -> None:
    async with ScriptedPeer() as names:
        names.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, refuse(17))
        async with Producer("p", client_config=ClientConfig(names.address)) as producer:
            error = await failure_of(producer)
            assert isinstance(error, NoRoute)
            assert not error.may_be_stored
            assert "no broker (no route, " in str(error)


async def test_messages_of_a_merged_batch_say_it_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = ProducerConfig(auto_batch=True, retries=0, send_timeout=60)
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            await producer.send(HELLO)
            address = cluster.broker().address
            await cluster.stop_broker(0)
            queues = [None, MessageQueue("t", "broker-0", 0), MessageQueue("t", "broker-0", 0), None]
            outcomes = await asyncio.gather(
                *(producer.submit(HELLO, queue=queue) for queue in queues), return_exceptions=True
            )
            for outcome in outcomes:
                assert isinstance(outcome, RaptorMQError)
                assert str(outcome).count("1 attempt: broker-0 ") == 1
                assert address in str(outcome)
                assert len(outcome.attempts) == 1


UNSUPPORTED, ILLEGAL, NO_SUCH_QUEUE, FORBIDDEN = (
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.INVALID_PARAMETER,
    ResponseCode.NO_PERMISSION,
)
FORMS: dict[str, tuple[dict[RequestCode, list[Reply]], Callable[[Producer], Iterable[Awaitable[object]]]]] = {
    "batches of several queues, then messages": (
        {
            RequestCode.SEND_QUEUE_BATCHES: [hang_up, refuse(UNSUPPORTED)],
            SEND: [refuse(FORBIDDEN)],
        },
        lambda producer: [producer.send(HELLO, queue=MessageQueue("t", "broker-0", number)) for number in (0, 1)],
    ),
    "a batch, then messages": (
        {RequestCode.SEND_BATCH_MESSAGE: [hang_up, refuse(UNSUPPORTED)], SEND: [refuse(FORBIDDEN)]},
        lambda producer: [producer.send(HELLO) for _ in range(2)],
    ),
    "the queue of a key, then another one": (
        {SEND: [hang_up, refuse(NO_SUCH_QUEUE), refuse(FORBIDDEN)]},
        lambda producer: [producer.send(HELLO, key="k")],
    ),
    "a compressed batch, then a plain one": (
        {RequestCode.SEND_BATCH_MESSAGE: [stored_whole(), refuse(FORBIDDEN)], SEND: [hang_up, refuse(ILLEGAL)]},
        lambda producer: [_second_of(producer, [Message("t", b"again and again " * 30)] * 10)],
    ),
}


async def _second_of(producer: Producer, messages: list[Message]) -> None:
    """Send a list twice: from the first response the producer knows that the topic stores batches whole."""
    await producer.send_batch(messages)
    await producer.send_batch(messages)


@pytest.mark.parametrize("form", FORMS)
async def test_an_error_has_the_attempts_of_every_form_in_which_the_message_was_sent(form: str) -> None:
    replies, sends = FORMS[form]
    config = ProducerConfig(retries=1, auto_batch=True, batch_max_delay_ms=5, compress_batches=True)
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(2, peer))
        for code, script in replies.items():
            peer.on(code, *script)
        async with Producer("p", config=config, client_config=ClientConfig(peer.address)) as producer:
            outcomes = await asyncio.gather(*sends(producer), return_exceptions=True)
    for error in outcomes:
        assert isinstance(error, ServerError)
        assert error.code == FORBIDDEN
        assert error.attempts[0].error == "the connection was lost"
        assert error.attempts[-1].error == f"code {FORBIDDEN}"
        assert error.may_be_stored


def test_many_attempts_are_shortened() -> None:
    attempts = [SendAttempt(f"b{number}", "a", 0.1, "no response in time", True) for number in range(9)]
    error = RequestTimeout("late").with_attempts(attempts)
    assert str(error).startswith("late; 9 attempts: the last ones b6 a (no response in time, 0.1 s), b7 ")
    assert len(error.attempts) == 9


def test_sends_that_share_an_error_have_their_own_attempts() -> None:
    shared = ServerError(2, "busy", "a")
    shared.__cause__ = cause = OSError("why")
    sent, refused = (
        shared.with_attempts([SendAttempt("b", "a", 0.1, "code 2", may_be_stored)]) for may_be_stored in (True, False)
    )
    assert (sent.may_be_stored, refused.may_be_stored, shared.attempts) == (True, False, ())
    assert (sent.code, sent.remark, sent.__cause__) == (2, "busy", cause)
    assert str(shared) == "code 2 from a: busy"
    assert str(pickle.loads(pickle.dumps(RequestTimeout("late").with_attempts(sent.attempts)))).startswith("late; 1 ")


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [(0.0, 0), (0.549, 0), (0.55, 2), (1.799, 2), (1.8, 5), (3.0, 6), (5.0, 10), (14.9, 10), (15.0, 30), (99.0, 30)],
)
def test_slow_brokers_are_avoided_as_long_as_in_java(latency: float, seconds: float) -> None:
    assert avoided_for(latency) == seconds
    health = BrokerHealth(30.0)
    health.responded("a", latency, now=100.0)
    assert health.avoided_seconds("a", 100.0) == seconds
    assert health.latency("a") == latency
    health.responded("a", 0.01, now=100.0)
    assert not health.any_avoided


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
async def test_a_slow_broker_is_avoided(monkeypatch: pytest.MonkeyPatch, auto_batch: bool) -> None:
    monkeypatch.setattr(queue_selector, "LATENCIES_S", (0.5, 60.0))  # delays of a busy machine do not count
    monkeypatch.setattr(queue_selector, "AVOIDED_S", (60.0, 60.0))
    loop = asyncio.get_running_loop()

    def slow(connection: Connection, request: RemotingCommand) -> None:
        loop.call_later(0.6, stored(), connection, request)

    for is_enabled in (False, True):
        config = ProducerConfig(
            auto_batch=auto_batch, avoid_slow_brokers=is_enabled, batch_max_delay_ms=1, send_timeout=30
        )
        async with two_brokers(config, first=slow, second=stored()) as (producer, _, _):
            for _ in range(4):  # each queue once
                await producer.send(HELLO)
            brokers = {(await producer.send(HELLO)).queue.broker_name for _ in range(4)}
            assert brokers == ({"broker-1"} if is_enabled else {"broker-0", "broker-1"})
            described = {each.name: each for each in producer.describe().brokers}
            assert (described["broker-0"].avoided_seconds > 0) is is_enabled
            assert ((described["broker-0"].latency or 0) > 0.5) is is_enabled
