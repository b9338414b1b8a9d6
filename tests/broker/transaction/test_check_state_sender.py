"""Selection of the producer that a broker sends a check to."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.record import decode_record
from raptormq.protocol.signing import Credentials
from raptormq.storage.store import now_ms
from tests.broker.harness import Peer, assembly_of, connected, running, send_fields
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, allow, ask, create_alice
from tests.broker.transaction.producer import NEVER, PREPARED, announce, prepare, question
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


async def announced(peer: Peer, who: Credentials, client_id: str) -> None:
    body = HeartbeatData(client_id, ["producers"]).to_json()
    assert (await ask(peer, who, RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS


def asked_about(peer: Peer) -> list[bytes]:
    """Return the messages of the received checks, and ignore notifications."""
    notices = [peer.notices.get_nowait() for _ in range(peer.notices.qsize())]
    return [decode_record(each.body).body for each in notices if each.code == RequestCode.CHECK_TRANSACTION_STATE]


async def test_who_may_not_send_to_a_topic_is_not_asked_about_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, mallory = Clock(), Credentials("mallory", "mallory-secret")
    async with (
        running(tmp_path, NEVER | SECURED, clock=clock) as broker,
        connected(broker) as own,
        connected(broker) as other,
    ):
        await create_alice(own)
        await allow(own, "Topic:t", ["Pub"])
        created = await ask(own, ROOT, 3001, {"username": "mallory"}, b'{"password":"mallory-secret"}')
        assert created.code == ResponseCode.SUCCESS
        await announced(own, ALICE, "p1")
        await announced(other, mallory, "p2")
        for body in (b"0", b"1", b"2"):
            fields = send_fields("t", 2, PREPARED) | {"f": 4, "g": now_ms()}
            assert (await ask(own, ALICE, RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.SUCCESS
        transactions = assembly_of(broker).transactions
        for _ in range(2):
            clock.move(60_000)
            await transactions._check_all()
            for peer, who in ((own, ALICE), (other, mallory)):
                await announced(peer, who, "p1" if who is ALICE else "p2")  # the response arrives after the checks
            assert asked_about(other) == []
            assert sorted(asked_about(own)) == [b"0", b"1", b"2"]
        await ask(own, ROOT, RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userStatus":"disable"}')
        clock.move(60_000)
        await transactions._check_all()
        await announced(other, mallory, "p2")
        await ask(own, ROOT, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert asked_about(own) == asked_about(other) == []
        assert transactions.open_count == 3
        assert caplog.text.count("cannot check transactions of group producers: none of its 2 connected producers") == 1
