"""Failed sends: another broker, the same queue, the time limit, and errors that are not retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from raptormq.client import ClientConfig, Message, MessageQueue, Producer, ProducerConfig, SendStatus
from raptormq.client.message.send_request import SendRequest, prepare_batch
from raptormq.client.producer.queue_selector import pick_by_key
from raptormq.client.producer.sender import MessageSender
from raptormq.errors import (
    ClientClosed,
    ConnectError,
    NoRoute,
    RaptorMQError,
    RequestTimeout,
    ServerError,
    TransportError,
)
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from tests.client.eventually import eventually
from tests.client.scripted_peer import ScriptedPeer, answer, hang_up, refuse, route, silence, stored

SEND = RequestCode.SEND_MESSAGE_V2
LISTED = RequestCode.SEND_BATCH_MESSAGE
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
HELLO = Message("t", b"hello")


@asynccontextmanager
async def two_brokers(
    config: ProducerConfig | None = None,
) -> AsyncIterator[tuple[Producer, ScriptedPeer, ScriptedPeer]]:
    """A producer whose topic has two queues on each of two brokers. The first broker is also the name server."""
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        first.on(ROUTE, route(2, first, second))
        client_config = ClientConfig(first.address)
        async with Producer("p", config=config, client_config=client_config) as producer:
            yield producer, first, second


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500], ids=lambda code: ResponseCode(code).name.lower())
async def test_a_retriable_code_leads_to_the_other_broker(code: int) -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, refuse(code))
        second.on(SEND, stored(7))
        results = [await producer.send(HELLO) for _ in range(8)]
        assert {result.queue.broker_name for result in results} == {"broker-1"}
        assert results[0].queue_offset == 7
        assert results[0].status is SendStatus.SEND_OK


@pytest.mark.parametrize("code", [13, 29, 3])
async def test_any_other_code_is_the_senders_problem(code: int) -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, refuse(code))
        second.on(SEND, refuse(code))
        with pytest.raises(ServerError, match="as the script says") as caught:
            await producer.send(HELLO)
        assert caught.value.code == code
        assert len(first.received[SEND]) + len(second.received[SEND]) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE), (12, SendStatus.FLUSH_SLAVE_TIMEOUT)],
)
async def test_stored_less_safely_than_wished_is_a_status_and_no_error(code: int, status: SendStatus) -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, stored(3, code))
        second.on(SEND, stored(3, code))
        result = await producer.send(HELLO)
        assert result.status is status
        assert result.queue_offset == 3


async def test_a_broker_that_hangs_up_is_avoided_from_then_on() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, hang_up)
        second.on(SEND, stored())
        for _ in range(12):
            result = await producer.send(HELLO)
            assert result.queue.broker_name == "broker-1"
        assert len(first.received[SEND]) == 1


async def test_a_silent_broker_leaves_time_for_the_other_one() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, silence)
        second.on(SEND, stored())
        results = await asyncio.gather(*(producer.send(HELLO) for _ in range(4)))
        assert {result.queue.broker_name for result in results} == {"broker-1"}


async def test_one_deadline_covers_all_attempts() -> None:
    async with two_brokers(ProducerConfig(retries=50)) as (producer, first, second):
        first.on(SEND, silence)
        second.on(SEND, silence)
        clock = asyncio.get_running_loop().time
        started = clock()
        with pytest.raises(RequestTimeout):
            await producer.send(HELLO, timeout=0.8)
        assert 0.7 < clock() - started < 20  # not 0.8 s for each of 51


async def test_a_message_that_is_tried_again_keeps_its_unique_id() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        second.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(ServerError):
            await producer.send(HELLO)
        attempts = first.received[SEND] + second.received[SEND]
        assert len(attempts) == 3
        assert len({request.ext_fields["i"] for request in attempts}) == 1


async def test_a_chosen_queue_is_tried_again_but_never_left() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, refuse(ResponseCode.SYSTEM_BUSY), hang_up, stored(9))
        result = await producer.send(HELLO, queue=MessageQueue("t", "broker-0", 1))
        assert result.queue == MessageQueue("t", "broker-0", 1)
        assert result.queue_offset == 9
        assert not second.received[SEND]


async def test_a_key_is_never_sent_to_another_queue() -> None:
    async with two_brokers() as (producer, first, second):
        for broker in (first, second):
            broker.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(ServerError):
            await producer.send(HELLO, key="order-1")
        attempts = first.received[SEND] + second.received[SEND]
        assert len({(request.ext_fields["n"], request.ext_fields["e"]) for request in attempts}) == 1


async def test_no_retries_means_one_attempt() -> None:
    async with two_brokers(ProducerConfig(retries=0)) as (producer, first, second):
        first.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        second.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(ServerError):
            await producer.send(HELLO)
        assert len(first.received[SEND]) + len(second.received[SEND]) == 1


async def test_a_broker_that_is_gone_costs_no_message(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(2, peer, unreachable=f"127.0.0.1:{free_port}"))
        peer.on(SEND, stored())
        async with Producer("p", name_servers=peer.address) as producer:
            results = await asyncio.gather(*(producer.send(HELLO) for _ in range(8)))
        assert {result.queue.broker_name for result in results} == {"broker-0"}


async def test_all_brokers_gone_is_an_error_in_time_after_one_attempt_each(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(2, unreachable=f"127.0.0.1:{free_port}"))
        async with Producer("p", name_servers=peer.address) as producer:
            clock = asyncio.get_running_loop().time
            started = clock()
            outcomes = await asyncio.gather(
                *(producer.send(HELLO, timeout=1.0) for _ in range(200)), return_exceptions=True
            )
            assert clock() - started >= 1.0
    for outcome in outcomes:
        assert isinstance(outcome, ConnectError)
        assert str(free_port) in str(outcome)
        assert [each.error for each in outcome.attempts] == ["no connection"]


async def test_a_connection_that_takes_too_long_is_an_attempt_that_stored_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SlowPool(ConnectionPool):
        async def _connect(self, address: str) -> Connection:
            if address == "broker.invalid:1":
                await asyncio.Event().wait()
            return await super()._connect(address)

    monkeypatch.setattr("raptormq.client.cluster.client_instance.ConnectionPool", SlowPool)
    async with ScriptedPeer() as peer, Producer("p", name_servers=peer.address) as producer:
        peer.on(ROUTE, route(1, unreachable="broker.invalid:1"))
        with pytest.raises(RequestTimeout, match=r"no connection to broker\.invalid") as caught:
            await producer.send(HELLO, timeout=0.5)
    assert caught.value.attempts
    assert not caught.value.may_be_stored


async def test_a_broker_that_comes_back_in_time_costs_no_attempt(free_port: int) -> None:
    async with ScriptedPeer() as names, ScriptedPeer(free_port) as broker:
        names.on(ROUTE, route(1, broker))
        broker.on(SEND, hang_up, hang_up, stored(5))
        async with Producer("p", name_servers=names.address) as producer:
            await producer.queues("t")
            await broker.stop()
            sending = asyncio.create_task(producer.send(HELLO, timeout=60))
            await names.wait_for(ROUTE, 6)  # checked again before each attempt
            await broker.start()
            assert (await sending).queue_offset == 5
        assert len(broker.received[SEND]) == 3


async def test_a_topic_whose_brokers_are_all_gone_is_waited_for(free_port: int) -> None:
    async with ScriptedPeer() as names, ScriptedPeer(free_port) as broker:
        names.on(ROUTE, route(1, broker), refuse(ResponseCode.TOPIC_NOT_EXIST))
        async with Producer("p", name_servers=names.address) as producer:
            await producer.queues("t")
            await broker.stop()
            sending = asyncio.ensure_future(producer.send(HELLO, timeout=60))
            await names.wait_for(ROUTE, 5)
            broker.on(SEND, stored(6))
            await broker.start()
            assert (await sending).queue_offset == 6


async def test_the_queue_of_a_key_may_move_to_another_broker_while_it_is_waited_for(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, peer, unreachable=f"127.0.0.1:{free_port}"))
        peer.on(SEND, stored(5))
        async with Producer("p", name_servers=peer.address) as producer:
            queues = await producer.queues("t")
            key = next(key for key in map(str, range(99)) if pick_by_key(queues, key).broker_name == "broker-1")
            sending = asyncio.create_task(producer.send(HELLO, timeout=60, key=key))
            await peer.wait_for(ROUTE, 4)
            assert not peer.received[SEND]
            peer.on(ROUTE, route(1, peer))
            assert (await sending).queue_offset == 5


async def test_sends_that_wait_go_to_the_broker_that_is_back_and_to_no_other(
    free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[MessageQueue | None] = []
    note_failure = MessageSender.note_failure

    def counted(self: MessageSender, topic: str, target: MessageQueue | None, error: RaptorMQError, now: float) -> None:
        failures.append(target)
        note_failure(self, topic, target, error, now)

    monkeypatch.setattr(MessageSender, "note_failure", counted)
    gone, back = free_ports(2)
    async with ScriptedPeer() as names, ScriptedPeer(back) as broker:
        names.on(ROUTE, route(4, broker, unreachable=f"127.0.0.1:{gone}"))
        broker.on(SEND, stored())
        async with Producer("p", name_servers=names.address) as producer:
            await producer.queues("t")
            await broker.stop()
            sending = [asyncio.create_task(producer.send(HELLO, timeout=60)) for _ in range(50)]
            await eventually(lambda: len(failures) == 100)  # each has tried both brokers
            await broker.start()
            assert {result.queue.broker_name for result in await asyncio.gather(*sending)} == {"broker-0"}
    assert len(failures) == 100


async def test_a_closed_producer_ends_a_send_that_waits_for_a_broker(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, unreachable=f"127.0.0.1:{free_port}"))
        async with Producer("p", client_config=ClientConfig(peer.address, close_timeout=0.01)) as producer:
            sending = asyncio.create_task(producer.send(HELLO, timeout=600))
            await peer.wait_for(ROUTE, 3)
        with pytest.raises(ClientClosed, match="1 attempt:"):
            await sending


async def test_without_retries_nobody_is_waited_for(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, unreachable=f"127.0.0.1:{free_port}"))
        async with Producer("p", config=ProducerConfig(retries=0), name_servers=peer.address) as producer:
            with pytest.raises(ConnectError, match=str(free_port)):
                await producer.send(HELLO, timeout=60)


@pytest.mark.parametrize("key", [None, "order-1"])
async def test_a_topic_that_was_made_again_with_fewer_queues_costs_no_message(key: str | None) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(8, peer), route(1, peer))

        def judge(connection: Connection, request: RemotingCommand) -> None:
            reply = stored(5) if request.ext_fields["e"] == "0" else refuse(ResponseCode.INVALID_PARAMETER)
            reply(connection, request)

        peer.on(SEND, judge)
        async with Producer("p", name_servers=peer.address) as producer:
            await producer.queues("t")
            results = [await producer.send(HELLO, key=key) for _ in range(8)]
        assert {result.queue.queue_id for result in results} == {0}


async def test_a_queue_that_was_asked_for_is_not_replaced_by_another() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(8, peer), route(1, peer))
        peer.on(SEND, refuse(ResponseCode.INVALID_PARAMETER))
        async with Producer("p", name_servers=peer.address) as producer:
            with pytest.raises(ServerError, match="as the script says"):
                await producer.send(HELLO, queue=MessageQueue("t", "broker-0", 7))
        assert len(peer.received[SEND]) == 1


async def test_a_broker_that_moved_is_found_again(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, route(1, unreachable=f"127.0.0.1:{free_port}"), route(1, peer))
        peer.on(SEND, stored(5))
        async with Producer("p", name_servers=peer.address) as producer:
            result = await producer.send(HELLO)
        assert result.queue_offset == 5


async def test_who_never_found_a_name_server_learns_it_soon(free_port: int) -> None:
    async with Producer("p", name_servers=f"127.0.0.1:{free_port}") as producer:
        with pytest.raises(TransportError, match=str(free_port)):
            await producer.send(HELLO, timeout=60)


async def test_a_silent_name_server_is_an_error_in_time() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, silence)
        async with Producer("p", name_servers=peer.address) as producer:
            with pytest.raises(RequestTimeout):
                await producer.send(HELLO, timeout=0.3)


async def test_a_topic_that_nobody_creates_has_no_route() -> None:
    async with ScriptedPeer() as peer:
        peer.on(ROUTE, refuse(ResponseCode.TOPIC_NOT_EXIST))
        async with Producer("p", name_servers=peer.address) as producer:
            with pytest.raises(NoRoute, match="no route for topic t: it does not exist"):
                await producer.send(HELLO)


async def test_an_answer_without_its_fields_is_an_error_and_no_hang() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, answer())
        second.on(SEND, answer())
        with pytest.raises(Exception, match="msgId"):
            await producer.send(HELLO)


async def test_a_cancelled_send_disturbs_nobody() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(SEND, silence, silence, stored())
        second.on(SEND, silence, silence, stored())
        doomed = [asyncio.ensure_future(producer.send(HELLO)) for _ in range(4)]
        await asyncio.gather(first.wait_for(SEND, 2), second.wait_for(SEND, 2))
        for send in doomed[:3]:
            send.cancel()
        results = await asyncio.gather(*doomed, *(producer.send(HELLO) for _ in range(8)), return_exceptions=True)
        assert [type(result).__name__ for result in results[:3]] == ["CancelledError"] * 3
        assert {type(result).__name__ for result in results[3:]} == {"SendResult"}


async def test_a_oneway_send_to_a_broker_that_does_not_read_fails_in_time_and_only_if_it_was_not_sent() -> None:
    config = ProducerConfig(send_timeout=0.5, compress_over_bytes=0)
    async with two_brokers(config) as (producer, _, second):
        second.on(SEND, stored())
        queue = MessageQueue("t", "broker-1", 0)
        await producer.send(HELLO, queue=queue, timeout=60)
        for connection in second.connections:
            connection.hold_reading(hold=True)
        sends = (producer.send_oneway(Message("t", bytes(1_000_000)), queue=queue) for _ in range(64))
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        failed = [outcome for outcome in outcomes if outcome is not None]
        for error in failed:
            with pytest.raises(RequestTimeout, match=r"a oneway message was not sent: .* not read .* within 0.5 s"):
                raise error
        assert 0 < len(failed) < len(outcomes)
        for connection in second.connections:
            connection.hold_reading(hold=False)
        await producer.send(HELLO, queue=queue, timeout=60)  # arrives after everything that was sent
        assert len(second.received[SEND]) == 2 + len(outcomes) - len(failed)


async def test_batches_go_to_the_brokers_that_know_them_while_another_one_does_not() -> None:
    config = ProducerConfig(auto_batch=True, batch_max_delay_ms=1.0)
    async with two_brokers(config) as (producer, first, second):
        first.on(LISTED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        second.on(LISTED, stored())
        for peer in (first, second):
            peer.on(SEND, stored())
        for topic in "tttttuuuu":  # with four queues each, so one of the first batches is sent to the first broker
            await asyncio.gather(*(producer.submit(Message(topic, b"x")) for _ in range(2)))
        assert (len(first.received[LISTED]), len(second.received[LISTED])) == (1, 8)
        singles = len(first.received[SEND])
        queue = MessageQueue("t", "broker-0", 0)
        await asyncio.gather(*(producer.submit(Message("t", b"x"), queue=queue) for _ in range(2)))
        assert (len(first.received[LISTED]), len(first.received[SEND])) == (1, singles + 2)


async def test_while_the_others_are_down_a_broker_that_knows_no_batches_gets_their_messages() -> None:
    config = ProducerConfig(auto_batch=True, batch_max_delay_ms=1.0)
    async with two_brokers(config) as (producer, first, second):
        first.on(LISTED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        first.on(SEND, stored())
        for code in (LISTED, SEND):
            second.on(code, hang_up)
        for _ in range(8):
            results = await asyncio.gather(*(producer.submit(Message("t", b"x")) for _ in range(2)))
            assert {result.queue.broker_name for result in results} == {"broker-0"}
        sender = producer._running()
        queues = await sender.find("t", 3.0)
        now = asyncio.get_running_loop().time()
        merged = replace(listed(), merged=True)
        picked = {sender._pick(queues, None, now, {"broker-1"}, merged).broker_name for _ in range(4)}
        assert picked == {"broker-0"}, "the random choice may also select it"


async def test_read_only_brokers_do_not_count_among_those_that_are_left_for_a_batch() -> None:
    async with two_brokers() as (producer, _, _):
        sender = producer._running()
        found = await sender.find("t", 3.0)
        read_only = {"broker-2": {0: "127.0.0.1:1"}}
        queues = replace(found, brokers={**found.brokers, **read_only})
        sender.batch_support.note_batches_refused("broker-0")
        now = asyncio.get_running_loop().time()
        merged = replace(listed(), merged=True)
        picked = {sender._pick(queues, None, now, {"broker-1"}, merged).broker_name for _ in range(4)}
        assert picked == {"broker-0"}
        sender._routes._routes["t"] = replace(queues, write_queues=found.write_queues[:1])
        assert not sender.batch_support.accepts_batches("t")


async def test_lists_go_to_the_brokers_that_know_batches_also_when_these_have_failed() -> None:
    async with two_brokers() as (producer, first, second):
        first.on(LISTED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        second.on(LISTED, stored())
        with pytest.raises(ServerError, match="as the script says"):
            await producer.send_batch([HELLO, HELLO], queue=MessageQueue("t", "broker-0", 0))
        for _ in range(8):
            result = await producer.send_batch([HELLO, HELLO])
            assert result.queue.broker_name == "broker-1"
        for _ in range(2):
            second.on(LISTED, hang_up, hang_up, stored())
            assert (await producer.send_batch([HELLO, HELLO])).queue.broker_name == "broker-1"
        assert len(first.received[LISTED]) == 1


async def test_a_list_that_no_broker_of_its_topic_knows_is_refused() -> None:
    async with two_brokers() as (producer, first, second):
        for peer in (first, second):
            peer.on(LISTED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        for _ in range(4):
            with pytest.raises(ServerError, match="as the script says"):
                await producer.send_batch([HELLO, HELLO])


def listed() -> SendRequest:
    """Return the request for a list of two messages."""
    return prepare_batch([HELLO, HELLO], UniqueIdFactory(bytes(4), 1, 1), 0, ProducerConfig())
