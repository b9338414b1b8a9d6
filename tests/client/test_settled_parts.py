"""Each part of a request for several queues is settled as soon as it is certain what became of it."""

from __future__ import annotations

import pytest

from raptormq.errors import ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.queue_batches import Part, PartAnswer
from raptormq.transport.connection import Connection
from tests.client.scripted_peer import ScriptedPeer, stored
from tests.client.test_shipping import SHIPPED, SINGLE, producing, shipped, submit


async def test_nobody_waits_for_the_further_attempts_of_others() -> None:
    """A topic that is read-only for a while is refused again and again; the others of its broker are not."""

    def first_verdict(part: Part) -> PartAnswer | None:
        codes = {1: ResponseCode.NO_PERMISSION, 2: ResponseCode.MESSAGE_ILLEGAL, 3: ResponseCode.INVALID_PARAMETER}
        return PartAnswer(codes[part.queue_id]) if part.queue_id in codes else None

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
        assert producer._lane is not None
        assert 0 < producer._lane._shared.held_bytes < 200  # those of one message, the others count no more
        shipped()(*unanswered[0])
        assert (await again).queue_offset == 100
