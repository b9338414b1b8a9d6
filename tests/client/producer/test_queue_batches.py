"""Requests for several queues of a broker: when they are sent, the results of their parts, and brokers that do not
support them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import raptormq.client.producer.producer
from raptormq.client import ClientConfig, Message, MessageQueue, Producer, ProducerConfig, SendResult, SendStatus
from raptormq.client.message.send_request import SendRequest
from raptormq.errors import BodyError, ClientClosed, ConnectionClosed, NoRoute, RequestTimeout, ServerError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.frame import MAX_FRAME_BYTES
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.queue_batches import Part, PartKind, PartResponse, decode_parts, encode_part_responses
from raptormq.transport.connection import Connection
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence, stored

SHIPPED, LISTED, SINGLE = (
    RequestCode.SEND_QUEUE_BATCHES,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
)
QUEUES = [MessageQueue("t", "broker-0", number) for number in range(8)]
Judge = Callable[[Part], PartResponse | None]


def parts_of(request: RemotingCommand) -> list[Part]:
    return decode_parts(request.body, len(request.ext_fields["b"].split(";")))


def count_of(part: Part) -> int:
    return len(decode_batch(part.body)) if part.kind == PartKind.LIST else 1


def shipped(judge: Judge = lambda _part: None) -> Reply:
    """Respond like a broker. What `judge` does not decide is stored at offset 100 of its queue."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        answers = [
            judge(part)
            or PartResponse(0, False, part.queue_id, 100, ",".join(f"id-{number}" for number in range(count_of(part))))
            for part in parts_of(request)
        ]
        connection.send(response_to(request, body=encode_part_responses(answers)))

    return reply


def refused(queue_id: int, code: int) -> Judge:
    return lambda part: PartResponse(code, text="as the script says") if part.queue_id == queue_id else None


@asynccontextmanager
async def producing(peer: ScriptedPeer, **settings: object) -> AsyncIterator[Producer]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(8, peer))
    values = {"auto_batch": True, "batch_max_delay_ms": 5, "retries": 0, **settings}
    config = ProducerConfig(**values)  # type: ignore[arg-type]
    async with Producer("g", config=config, client_config=ClientConfig(peer.address)) as producer:
        yield producer


def submit(producer: Producer, *queue_ids: int, topic: str = "t") -> list[asyncio.Future[SendResult]]:
    queues = [MessageQueue(topic, "broker-0", number) for number in queue_ids]
    return [producer.submit(Message(topic, b"to %d" % queue.queue_id, "A"), queue=queue) for queue in queues]


async def test_batches_for_queues_of_a_broker_leave_as_one_request() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, shipped())
        results = await asyncio.gather(*submit(producer, 0, 3, 3, 5), *submit(producer, 3, topic="u"))
        [request] = peer.received[SHIPPED]
    assert not peer.received[LISTED] + peer.received[SINGLE]
    assert request.ext_fields["b"].split(";") == ["t", "u"]
    assert (request.ext_fields["a"], request.ext_fields["n"]) == ("g", "broker-0")
    parts = parts_of(request)
    assert [(part.kind, part.topic_index, part.queue_id) for part in parts] == [
        (PartKind.MESSAGE, 0, 0),
        (PartKind.MESSAGE, 0, 5),
        (PartKind.MESSAGE, 1, 3),
        (PartKind.LIST, 0, 3),
    ]
    assert [record.body for record in decode_batch(parts[-1].body)] == [b"to 3", b"to 3"]
    assert parts[0].body == b"to 0"
    own = decode_properties(parts[0].properties)
    assert (own["TAGS"], own["WAIT"], own["UNIQ_KEY"]) == ("A", "true", results[0].message_id)
    assert [(each.queue.topic, each.queue.queue_id, each.queue_offset, each.offset_message_id) for each in results] == [
        ("t", 0, 100, "id-0"),
        ("t", 3, 100, "id-0"),
        ("t", 3, 101, "id-1"),
        ("t", 5, 100, "id-0"),
        ("u", 3, 100, "id-0"),
    ]
    assert len({each.message_id for each in results}) == 5
    assert {each.status for each in results} == {SendStatus.SEND_OK}


async def test_messages_without_a_queue_stay_together_and_one_queue_needs_no_such_request() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(LISTED, stored())
        free = [producer.submit(Message("t", b"x")) for _ in range(10)]
        results = await asyncio.gather(*free, *submit(producer, 3, 3, 3))
    assert sorted(len(decode_batch(request.body)) for request in peer.received[LISTED]) == [3, 10]
    assert not peer.received[SHIPPED]
    assert len({each.queue for each in results[:10]}) == 1  # selected randomly, possibly the third one as well
    assert {each.queue.queue_id for each in results[10:]} == {3}


async def test_a_full_batch_leaves_by_itself_and_a_full_request_before_its_time() -> None:
    async with ScriptedPeer() as peer, producing(peer, batch_max_bytes=1000, batch_max_delay_ms=30_000) as producer:
        peer.on(SHIPPED, shipped())
        peer.on(LISTED, stored())
        waiting = submit(producer, 0, 1)
        full = [producer.submit(Message("t", b"x" * 450), queue=QUEUES[2]) for _ in range(2)]
        await asyncio.gather(*full)
        assert not any(future.done() for future in waiting)
        assert [len(decode_batch(request.body)) for request in peer.received[LISTED]] == [2]
        many = [MessageQueue("t", "broker-0", number) for number in range(3, 40)]
        waiting += [producer.submit(Message("t", b"x" * 450), queue=queue) for queue in many]
        await asyncio.gather(*waiting[:2])
        assert 15_000 < sum(len(part.body) + 90 for part in parts_of(peer.received[SHIPPED][0])) < 17_000


async def test_the_batches_of_a_request_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.producer.accumulator.MAX_GROUP_BATCHES", 3)
    async with ScriptedPeer() as peer, producing(peer, batch_max_delay_ms=30_000) as producer:
        peer.on(SHIPPED, shipped())
        futures = submit(producer, 0, 1, 2, 3)
        await asyncio.gather(*futures[:3])
        assert not futures[3].done()
    assert len(parts_of(peer.received[SHIPPED][0])) == 3


async def test_a_request_fits_a_frame_however_large_its_batches_are() -> None:
    async with ScriptedPeer() as peer, producing(peer, batch_max_bytes=2 << 20, send_timeout=60) as producer:
        peer.on(SHIPPED, shipped())
        queues = [MessageQueue("t", "broker-0", number) for number in range(20)]
        bodies = [os.urandom(1_000_000) for _ in queues]  # which cannot be split further
        pairs = zip(bodies, queues, strict=True)
        await asyncio.gather(*(producer.submit(Message("t", body), queue=queue) for body, queue in pairs))
        requests = peer.received[SHIPPED]
    assert sorted(part.body for request in requests for part in parts_of(request)) == sorted(bodies)
    assert max(len(request.body) for request in requests) < MAX_FRAME_BYTES


async def test_a_request_counts_as_one_open_batch() -> None:
    async with ScriptedPeer() as peer, producing(peer, max_open_batches=1) as producer:
        peer.on(SHIPPED, shipped())
        peer.on(SINGLE, stored())
        together = submit(producer, *range(8))
        alone = producer.submit(Message("t", b"no room for another batch"))
        await asyncio.gather(*together, alone)
    assert len(parts_of(peer.received[SHIPPED][0])) == 8
    assert [request.body for request in peer.received[SINGLE]] == [b"no room for another batch"]


async def test_who_does_not_wait_for_the_disk_is_not_held_up_by_those_who_do() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, shipped())
        patient = submit(producer, 0, 1)
        hasty = [producer.submit(Message("t", b"x", wait_stored=False), queue=queue) for queue in QUEUES[:2]]
        await asyncio.gather(*patient, *hasty)
    waits = [{"WAIT\x01false" in part.properties for part in parts_of(each)} for each in peer.received[SHIPPED]]
    assert sorted(waits, key=str) == [{False}, {True}]


async def test_a_part_that_is_refused_fails_its_senders_and_no_others() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, shipped(refused(1, ResponseCode.INVALID_PARAMETER)))
        outcomes = await asyncio.gather(*submit(producer, 0, 1, 1, 2), return_exceptions=True)
    assert [isinstance(outcome, SendResult) for outcome in outcomes] == [True, False, False, True]
    error = outcomes[1]
    assert isinstance(error, ServerError)
    assert (error.code, "as the script says" in str(error)) == (ResponseCode.INVALID_PARAMETER, True)
    assert len(peer.received[SHIPPED]) == 1


async def test_what_another_attempt_may_cure_is_sent_again_and_only_that() -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=2) as producer:
        peer.on(SHIPPED, shipped(refused(1, ResponseCode.SYSTEM_BUSY)), shipped())
        results = await asyncio.gather(*submit(producer, 0, 1, 2))
    assert [result.queue.queue_id for result in results] == [0, 1, 2]
    first, second = map(parts_of, peer.received[SHIPPED])
    assert [part.queue_id for part in second] == [1]
    assert second[0] == next(part for part in first if part.queue_id == 1)


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
async def test_what_was_stored_is_not_sent_again_when_another_attempt_is_refused_as_a_whole(
    code: ResponseCode,
) -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=2) as producer:
        peer.on(SHIPPED, shipped(refused(1, ResponseCode.SYSTEM_BUSY)), refuse(code))
        peer.on(SINGLE, stored(7))
        results = await asyncio.gather(*submit(producer, 0, 1))
    assert [result.queue_offset for result in results] == [100, 7]
    assert [request.ext_fields["e"] for request in peer.received[SINGLE]] == ["1"]


async def test_a_broker_that_is_busy_gets_the_same_request_again_and_not_more_of_them() -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=2) as producer:
        peer.on(SHIPPED, refuse(ResponseCode.SYSTEM_BUSY), shipped(), refuse(ResponseCode.SYSTEM_BUSY))
        results = await asyncio.gather(*submit(producer, 0, 1, 1))
        assert [result.queue_offset for result in results] == [100, 100, 101]
        outcomes = await asyncio.gather(*submit(producer, 0, 1), return_exceptions=True)
    assert [isinstance(each, ServerError) and each.code for each in outcomes] == [ResponseCode.SYSTEM_BUSY] * 2
    assert len(peer.received[SHIPPED]) == 2 + 3
    assert not peer.received[LISTED] + peer.received[SINGLE]


async def test_what_may_have_been_stored_keeps_its_id_when_it_is_sent_by_itself() -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=1) as producer:
        peer.on(SHIPPED, hang_up, refuse(ResponseCode.NO_PERMISSION))
        peer.on(SINGLE, stored(7))
        peer.on(LISTED, stored(7))
        futures = submit(producer, 0, 1, 1, 1)
        await peer.wait_for(SHIPPED)
        futures[1].cancel()
        results = await asyncio.gather(*futures[:1], *futures[2:])
    alone, first, second = (result.message_id for result in results)
    for request in peer.received[SHIPPED]:
        single, listed = parts_of(request)
        assert decode_properties(single.properties)["UNIQ_KEY"] == alone
        ids = [decode_properties(record.properties.decode())["UNIQ_KEY"] for record in decode_batch(listed.body)]
        assert ids[1:] == [first, second]


async def test_a_part_of_the_wrong_form_is_sent_by_itself() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, shipped(refused(1, ResponseCode.MESSAGE_ILLEGAL)))
        peer.on(SINGLE, stored(7))
        results = await asyncio.gather(*submit(producer, 0, 1))
    assert [result.queue_offset for result in results] == [100, 7]
    assert [request.ext_fields["e"] for request in peer.received[SINGLE]] == ["1"]


async def test_a_broker_that_does_not_know_such_requests_is_asked_once() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        peer.on(SINGLE, stored(7))
        peer.on(LISTED, stored(9))
        results = await asyncio.gather(*submit(producer, 0, 1, 1))
        assert [result.queue_offset for result in results] == [7, 9, 10]
        results = await asyncio.gather(*submit(producer, 2, 3))
        assert [result.queue_offset for result in results] == [7, 7]
    assert len(peer.received[SHIPPED]) == 1


async def test_a_broker_that_was_replaced_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.producer.broker_features.REFUSAL_ASK_AGAIN_S", 0.0)
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), shipped())
        peer.on(SINGLE, stored(7))
        await asyncio.gather(*submit(producer, 0, 1))
        results = await asyncio.gather(*submit(producer, 2, 3))
    assert [result.queue_offset for result in results] == [100, 100]


async def test_a_request_that_is_refused_as_a_whole_goes_part_by_part() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, refuse(ResponseCode.NO_PERMISSION))
        peer.on(SINGLE, stored(7), refuse(ResponseCode.NO_PERMISSION))
        outcomes = await asyncio.gather(*submit(producer, 0, 1), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["SendResult", "ServerError"]


@pytest.mark.parametrize(
    ("reply", "error", "send_timeout"),
    [
        (silence, RequestTimeout, 0.5),
        (hang_up, ConnectionClosed, 20.0),
        (answer(body=b"\0"), BodyError, 20.0),
        (answer(), BodyError, 20.0),
    ],
)
async def test_what_is_not_answered_fails_all_in_time_and_is_not_sent_twice(
    reply: Reply, error: type[Exception], send_timeout: float
) -> None:
    async with ScriptedPeer() as peer, producing(peer, send_timeout=send_timeout) as producer:
        peer.on(SHIPPED, reply)
        outcomes = await asyncio.gather(*submit(producer, 0, 1, 1), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [error] * 3
    assert not peer.received[LISTED] + peer.received[SINGLE]


async def test_the_time_that_the_last_change_takes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(outgoing: SendRequest, _queue: MessageQueue) -> SendRequest:
        threading.Event().wait(0.4)  # no other task runs meanwhile
        return outgoing

    monkeypatch.setattr(raptormq.client.producer.producer, "_unchanged", slowly)
    async with ScriptedPeer() as peer, producing(peer, send_timeout=0.6) as producer:
        peer.on(SHIPPED, shipped())
        results = await asyncio.gather(*submit(producer, 0, 1))
    assert [result.queue_offset for result in results] == [100, 100]


async def test_a_connection_that_breaks_is_made_again() -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=2) as producer:
        peer.on(SHIPPED, hang_up, shipped())
        results = await asyncio.gather(*submit(producer, 0, 1))
    assert [result.queue_offset for result in results] == [100, 100]


async def test_a_broker_that_comes_back_in_time_costs_no_attempt(free_port: int) -> None:
    async with ScriptedPeer() as names, ScriptedPeer(free_port) as broker:
        config = ProducerConfig(auto_batch=True, retries=1, send_timeout=60)
        async with Producer("g", config=config, name_servers=names.address) as producer:
            names.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(8, broker))
            broker.on(SHIPPED, hang_up, shipped())
            await producer.queues("t")
            await broker.stop()
            results = submit(producer, 0, 1)
            await names.wait_for(RequestCode.GET_ROUTEINFO_BY_TOPIC, 6)  # checked again before each attempt
            await broker.start()
            assert [result.queue_offset for result in await asyncio.gather(*results)] == [100, 100]


async def test_a_broker_that_nobody_knows_has_no_route() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        lost = [producer.submit(Message("t", b"x"), queue=MessageQueue("t", "gone", number)) for number in range(2)]
        outcomes = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NoRoute] * 2


def route_of_t(peer: ScriptedPeer, otherwise: Reply) -> Reply:
    """Respond with a route for the topic `t`, and to requests for other topics with `otherwise`."""
    of_t = route(8, peer)

    def reply(connection: Connection, request: RemotingCommand) -> None:
        (of_t if request.ext_fields["topic"] == "t" else otherwise)(connection, request)

    return reply


async def test_a_topic_whose_route_nobody_tells_does_not_hold_up_those_that_are_known() -> None:
    async with ScriptedPeer() as peer, producing(peer, send_timeout=3.0) as producer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_of_t(peer, silence))
        peer.on(SHIPPED, shipped())
        await producer.queues("t")
        results = await asyncio.gather(*submit(producer, 0, topic="new"), *submit(producer, 0, 1))
        assert [result.queue_offset for result in results] == [100, 100, 100]
        assert [request.ext_fields["topic"] for request in peer.received[RequestCode.GET_ROUTEINFO_BY_TOPIC]] == ["t"]


async def test_each_topic_has_its_own_cause_when_nobody_knows_where_the_broker_is() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_of_t(peer, refuse(ResponseCode.TOPIC_NOT_EXIST)))
        lost = [producer.submit(Message(name, b"x"), queue=MessageQueue(name, "gone", 0)) for name in ("missing", "t")]
        outcomes = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NoRoute] * 2
    assert [name in str(outcome) for name, outcome in zip(("missing", "broker gone"), outcomes, strict=True)] == [
        True
    ] * 2


async def test_who_gave_up_is_left_out() -> None:
    async with ScriptedPeer() as peer, producing(peer) as producer:
        peer.on(SHIPPED, shipped())
        kept, dropped, other, gone = submit(producer, 0, 0, 1, 2)
        dropped.cancel()
        gone.cancel()
        await asyncio.gather(kept, other)
    parts = parts_of(peer.received[SHIPPED][0])
    assert sorted((part.queue_id, part.kind) for part in parts) == [(0, PartKind.MESSAGE), (1, PartKind.MESSAGE)]


async def test_close_lets_what_waits_leave_and_leaves_nothing_pending() -> None:
    async with ScriptedPeer() as peer:
        async with producing(peer, batch_max_delay_ms=30_000) as producer:
            peer.on(SHIPPED, shipped())
            futures = submit(producer, 0, 1)
        assert [future.result().queue_offset for future in futures] == [100, 100]
        client = ClientConfig(peer.address, close_timeout=0.1)
        config = ProducerConfig(auto_batch=True, batch_max_delay_ms=30_000)
        async with Producer("g", config=config, client_config=client) as producer:
            peer.on(SHIPPED, silence)
            futures = submit(producer, 0, 1)
        assert [type(future.exception()) for future in futures] == [ClientClosed] * 2
