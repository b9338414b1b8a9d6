"""Each part of a request for several queues is completed as soon as its result is known."""

from __future__ import annotations

import pytest

from raptormq.client import Message
from raptormq.errors import ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.queue_batches import Part, PartResponse
from raptormq.transport.connection import Connection
from tests.client.eventually import eventually
from tests.client.producer.test_queue_batches import QUEUES, SHIPPED, SINGLE, parts_of, producing, shipped, submit
from tests.client.scripted_peer import ScriptedPeer, refuse, stored


async def test_nobody_waits_for_the_further_attempts_of_others() -> None:
    """A read-only topic is refused repeatedly; other topics of its broker are not."""

    def first_verdict(part: Part) -> PartResponse | None:
        codes = {1: ResponseCode.NO_PERMISSION, 2: ResponseCode.MESSAGE_ILLEGAL, 3: ResponseCode.INVALID_PARAMETER}
        return PartResponse(codes[part.queue_id]) if part.queue_id in codes else None

    unanswered: list[tuple[Connection, RemotingCommand]] = []
    async with ScriptedPeer() as peer, producing(peer, retries=2, send_timeout=60) as producer:
        peer.on(SHIPPED, shipped(first_verdict), lambda *sent: unanswered.append(sent))
        peer.on(SINGLE, stored(7))
        at_once, again, alone, wrong = submit(producer, 0, 1, 2, 3)
        assert (await at_once).queue_offset == 100
        assert (await alone).queue_offset == 7
        with pytest.raises(ServerError):
            await wrong
        await peer.wait_for(SHIPPED, 2)
        assert not again.done()
        assert producer._batch_queue is not None
        assert 0 < producer._batch_queue._shared.held_bytes < 200  # bytes of one message; the others are complete
        shipped()(*unanswered[0])
        assert (await again).queue_offset == 100


async def test_there_is_no_further_attempt_for_those_who_gave_up() -> None:
    """A part is sent again for a caller that waits, also with a callback. Without a caller it is not sent again."""
    unanswered: list[tuple[Connection, RemotingCommand]] = []
    told: list[object] = []
    async with ScriptedPeer() as peer, producing(peer, retries=3, send_timeout=60) as producer:
        peer.on(SHIPPED, lambda *sent: unanswered.append(sent))
        early, gone, gone_too, half_gone, stays = submit(producer, 0, 0, 0, 1, 1)
        early.cancel()
        producer.send_with_callback(Message("t", b"to 2"), told.append, queue=QUEUES[2])
        await peer.wait_for(SHIPPED)
        for future in (gone, gone_too, half_gone):
            future.cancel()
        shipped(lambda _: PartResponse(ResponseCode.SYSTEM_BUSY))(*unanswered[0])
        await peer.wait_for(SHIPPED, 2)
        assert sorted(part.queue_id for part in parts_of(peer.received[SHIPPED][1])) == [1, 2]
        shipped()(*unanswered[1])
        assert (await stays).queue_offset == 101

        both = submit(producer, 0, 1)
        await peer.wait_for(SHIPPED, 3)
        for future in both:
            future.cancel()
        refuse(ResponseCode.SYSTEM_BUSY)(*unanswered[2])
        batch_queue = producer._batch_queue
        assert batch_queue is not None
        await eventually(lambda: not batch_queue._sends)
        assert batch_queue._shared.held_bytes == 0
    assert len(told) == 1
    assert len(peer.received[SHIPPED]) == 3
