"""Whom a broker asks about a transaction."""

from __future__ import annotations

from pathlib import Path

from raptormq.protocol.record import decode_record
from tests.broker.harness import assembly_of, connected, running
from tests.broker.transaction.producer import NEVER, announce, prepare, question
from tests.clock import Clock


async def test_the_producers_of_a_group_are_asked_in_turn(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, NEVER, clock=clock) as broker, connected(broker) as one, connected(broker) as other:
        for client_id, peer in (("p1", one), ("p2", other)):
            await announce(peer, client_id)
        for body in (b"0", b"1", b"2", b"3"):
            await prepare(one, body)
        clock.move(60_000)
        await assembly_of(broker).transactions._check_all()
        asked = [{decode_record((await question(peer)).body).body for _ in range(2)} for peer in (one, other)]
    assert asked in ([{b"0", b"2"}, {b"1", b"3"}], [{b"1", b"3"}, {b"0", b"2"}])
