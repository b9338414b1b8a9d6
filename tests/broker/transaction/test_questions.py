"""Whom a broker asks about a transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.storage.store import now_ms
from tests.broker.harness import Peer, connected, running
from tests.clock import Clock

PREPARED = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01K1\x02"


async def asked(peer: Peer) -> StoredMessage:
    while (notice := await peer.notices.get()).code != RequestCode.CHECK_TRANSACTION_STATE:
        pass
    return decode_record(notice.body)


async def test_the_producers_of_a_group_are_asked_in_turn(tmp_path: Path) -> None:
    clock = Clock()
    never = {"transactionCheckInterval": "86400000"}
    async with running(tmp_path, never, clock=clock) as broker, connected(broker) as one, connected(broker) as other:
        for client_id, peer in (("p1", one), ("p2", other)):
            await peer.call(RequestCode.HEART_BEAT, None, HeartbeatData(client_id, ["producers"], []).to_json())
        for body in (b"0", b"1", b"2", b"3"):
            assert (await one.send("t", body, 0, PREPARED, f=4, g=now_ms())).code == 0
        clock.move(60_000)
        assert broker._assembly is not None
        await broker._assembly.transactions._check_all()
        bodies = await asyncio.gather(*(asked(peer) for peer in (one, other, one, other)))
    halves = [{half.body for half in bodies[::2]}, {half.body for half in bodies[1::2]}]
    assert {b"0", b"2"} in halves
    assert {b"1", b"3"} in halves
