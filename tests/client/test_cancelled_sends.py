"""A send that no caller waits for is not sent again or in another form. The current attempt continues."""

from __future__ import annotations

import pytest

from raptormq.client import Message
from raptormq.client.producer.producer import Producer
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.transport.connection import Connection
from tests.client.batch_queues import LONG_TEXT
from tests.client.eventually import eventually
from tests.client.producer.test_queue_batches import LISTED, QUEUES, SINGLE, producing, submit
from tests.client.scripted_peer import Reply, ScriptedPeer, hang_up, refuse, route, stored

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
Unanswered = list[tuple[Connection, RemotingCommand]]


async def ended(producer: Producer) -> None:
    """Wait until no request is in flight."""
    batch_queue = producer._batch_queue
    assert batch_queue is not None
    await eventually(lambda: not batch_queue._sends)
    assert (batch_queue._shared.held_bytes, batch_queue._shared.open_groups) == (0, 0)


@pytest.mark.parametrize("queue", [QUEUES[0], None], ids=["bound", "free"])
@pytest.mark.parametrize("failure", [refuse(ResponseCode.SYSTEM_BUSY), hang_up], ids=["refused", "broken"])
@pytest.mark.parametrize(("code", "count"), [(LISTED, 2), (SINGLE, 1)], ids=["batch", "message"])
async def test_a_lone_batch_is_not_sent_again_for_those_who_gave_up(
    queue: MessageQueue | None, failure: Reply, code: RequestCode, count: int
) -> None:
    unanswered: Unanswered = []
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=60) as producer:
        peer.on(code, lambda *sent: unanswered.append(sent))
        futures = [producer.submit(Message("t", b"x"), queue=queue) for _ in range(count)]
        await peer.wait_for(code)
        for future in futures:
            future.cancel()
        failure(*unanswered[0])
        await ended(producer)
    assert len(peer.received[code]) == 1


async def test_it_is_sent_again_as_long_as_anybody_waits() -> None:
    unanswered: Unanswered = []
    told: list[object] = []
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=60) as producer:
        peer.on(LISTED, lambda *sent: unanswered.append(sent))
        gone, stays = submit(producer, 0, 0)
        await peer.wait_for(LISTED)
        gone.cancel()
        refuse(ResponseCode.SYSTEM_BUSY)(*unanswered[0])
        await peer.wait_for(LISTED, 2)
        stored(100)(*unanswered[1])
        assert (await stays).queue_offset == 101

        [gone] = submit(producer, 0)
        producer.send_with_callback(Message("t", b"x", "A"), told.append, queue=QUEUES[0])
        await peer.wait_for(LISTED, 3)
        gone.cancel()
        refuse(ResponseCode.SYSTEM_BUSY)(*unanswered[2])
        await peer.wait_for(LISTED, 4)
        stored(100)(*unanswered[3])
        await ended(producer)
    assert len(told) == 1


async def test_who_gives_up_before_the_next_attempt_gets_none() -> None:
    unanswered: Unanswered = []
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=60) as producer:
        await producer.queues("t")
        peer.on(ROUTE, lambda *sent: unanswered.append(sent))  # the next attempt waits for it
        peer.on(LISTED, refuse(ResponseCode.SYSTEM_BUSY))
        futures = submit(producer, 0, 0)
        await peer.wait_for(ROUTE, 2)
        for future in futures:
            future.cancel()
        peer.on(ROUTE, route(8, peer))
        for each in unanswered:
            route(8, peer)(*each)
        await ended(producer)
    assert len(peer.received[LISTED]) == 1


async def test_nor_is_it_sent_in_another_form() -> None:
    """A topic that is no longer a BatchCQ topic refuses a batch in its stored form."""
    unanswered: Unanswered = []
    settings = {"compress_batches": True, "retries": 3, "send_timeout": 60}
    async with ScriptedPeer() as peer, producing(peer, **settings) as producer:
        peer.on(SINGLE, lambda *sent: unanswered.append(sent))
        producer._running().batch_support.note_answer("t", "broker-0", whole=True)
        futures = [producer.submit(Message("t", LONG_TEXT), queue=QUEUES[0]) for _ in range(2)]
        await peer.wait_for(SINGLE)
        for future in futures:
            future.cancel()
        refuse(ResponseCode.MESSAGE_ILLEGAL)(*unanswered[0])
        await ended(producer)
    assert not peer.received[LISTED]
    assert len(peer.received[SINGLE]) == 1


async def test_of_a_batch_that_goes_in_parts_only_those_go_that_somebody_waits_for() -> None:
    unanswered: Unanswered = []
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=60) as producer:
        peer.on(LISTED, lambda *sent: unanswered.append(sent))
        peer.on(SINGLE, lambda *sent: unanswered.append(sent))
        early, late, stays = (producer.submit(Message("t", body), queue=QUEUES[0]) for body in (b"1", b"2", b"3"))
        await peer.wait_for(LISTED)
        early.cancel()
        refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)(*unanswered[0])
        await peer.wait_for(SINGLE, 2)
        assert {request.body for request in peer.received[SINGLE]} == {b"2", b"3"}
        late.cancel()
        for each in unanswered[1:]:
            refuse(ResponseCode.SYSTEM_BUSY)(*each)
        await peer.wait_for(SINGLE, 3)
        stored(7)(*unanswered[3])
        assert (await stays).queue_offset == 7
        await ended(producer)
    assert [request.body for request in peer.received[SINGLE][2:]] == [b"3"]


@pytest.mark.parametrize("numbers", [(0,), (0, 1), (None,)], ids=["batch", "group", "free batch"])
async def test_who_gives_up_while_a_broker_is_waited_for_ends_the_wait(
    numbers: tuple[int | None, ...], free_port: int
) -> None:
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=600) as producer:
        peer.on(ROUTE, route(8, unreachable=f"127.0.0.1:{free_port}"))
        queues = [None if number is None else QUEUES[number] for number in numbers]
        futures = [producer.submit(Message("t", b"x"), queue=queue) for queue in queues for _ in range(2)]
        await peer.wait_for(ROUTE, 4)
        for future in futures:
            future.cancel()
        await ended(producer)
