"""Requests for a message by its position in the log: the topic of the stored message is checked, whatever the request
names.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.required_permissions import to_view
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.language import Language
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, encode_record, iter_records
from raptormq.protocol.signing import Credentials, sign
from tests.broker.batches.batch_peer import create_topic, named, send_batch
from tests.broker.batches.test_wrapped_batches import MARK, PROPERTIES, SEALED, send_wrapped
from tests.broker.harness import TIMEOUT, Peer, bodies, connected, messages, pull_fields, running
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, allow, ask, create_alice
from tests.broker.transaction.producer import COMMIT, PREPARED

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
BODY_AT = 88
"""Position of the body in a record."""
DELAYED = "DELAY\x0118\x02"
TIMED = "TIMER_DELAY_SEC\x013600\x02"
SENDS = {
    "plain": "",
    "delayed": DELAYED,
    "timed": TIMED,
    "half": PREPARED,
    "forged": "REAL_TOPIC\x01orders\x02",
}


def place_of(sent: RemotingCommand) -> int:
    return parse_offset_id(sent.ext_fields["msgId"].split(",")[0]).physical_offset


def nothing_at(offset: int) -> tuple[int, str]:
    return ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"


async def test_a_message_is_seen_by_who_may_see_its_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        places = {
            (topic, kind): place_of(await peer.send(topic, kind.encode(), properties=properties))
            for kind, properties in SENDS.items()
            for topic in ("orders", "secret", "%RETRY%g", "%RETRY%boss")
        }
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Get"])
        await allow(peer, "Group:g", ["Get"])
        for (topic, kind), place in places.items():
            fields: dict[str, object] = {"topic": "orders", "offset": place}
            seen = await ask(peer, ALICE, VIEW, fields)
            if topic in ("orders", "%RETRY%g"):
                assert bodies(seen) == [kind.encode()], (topic, kind)
            else:
                assert (seen.code, seen.remark, seen.body) == (*nothing_at(place), b""), (topic, kind)
            assert bodies(await ask(peer, ROOT, VIEW, fields)) == [kind.encode()]
        inside = place + 1
        none = await ask(peer, ALICE, VIEW, {"topic": "orders", "offset": inside})
        assert (none.code, none.remark) == nothing_at(inside)


async def test_a_message_of_a_batch_is_seen_by_who_may_see_the_topic_of_the_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        places = {}
        for topic in ("orders", "secret"):
            await create_topic(peer, topic)
            places[topic] = place_of(await send_batch(peer, named("a", "b"), topic=topic))
        sealed = place_of(await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK, topic="secret"))
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Get"])
        for inside, body in ((0, b"a"), (1, b"a"), (2, b"b")):
            for topic, place in places.items():
                seen = await ask(peer, ALICE, VIEW, {"topic": "orders", "offset": place + inside})
                if topic == "orders":
                    assert bodies(seen) == [body]
                else:
                    assert (seen.code, seen.remark) == nothing_at(place + inside)
        for place in (sealed, sealed + 1):  # not even whether it is encrypted, and with which key
            seen = await _view_by_go(peer, ALICE, place)
            assert (seen.code, seen.remark) == nothing_at(place)
            assert (await _view_by_go(peer, ROOT, place)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def _view_by_go(peer: Peer, who: Credentials, place: int) -> RemotingCommand:
    """Pull like a client that does not unpack batches."""
    fields = {"topic": "orders", "offset": str(place)}
    command = RemotingCommand(VIEW, fields, language=Language.GO, version=317)
    sign(command, who)
    return await peer.connection.request(command, TIMEOUT)


@pytest.mark.parametrize("may_everything", [False, True])
async def test_a_damaged_record_belongs_to_nobody(may_everything: bool) -> None:
    class Store:
        async def message_at(self, *_: object, **__: object) -> bytes:
            return b"\0\0\0\4"

    asked: list[str] = []

    def authorizer(_: object, __: object, demands: list[object]) -> bool:
        asked.extend(demand.resource.key for demand in demands)  # type: ignore[attr-defined]
        return may_everything

    records = AuthorizedRecords(Store(), authorizer)  # type: ignore[arg-type]  # all that is asked of it
    found = await records.message_at(None, RemotingCommand(VIEW), to_view, 0)  # type: ignore[arg-type]
    assert (asked, found is not None) == (["*"], may_everything)


async def _reader(peer: Peer) -> None:
    """Permit alice to consume orders as g."""
    await create_alice(peer)
    await allow(peer, "Topic:orders", ["Sub"])
    await allow(peer, "Group:g", ["Sub"])


@pytest.mark.parametrize("topic", ["orders", "secret", "%RETRY%g", "%RETRY%boss", "%RETRY%g_orders", "%DLQ%g"])
async def test_a_group_takes_back_what_it_may_read(tmp_path: Path, topic: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.heartbeat("c", "g", "orders")
        place = place_of(await peer.send(topic, b"body"))
    async with running(tmp_path, SECURED | {"messageDelayLevel": "1s 1s 1s"}) as broker, connected(broker) as peer:
        await _reader(peer)
        fields: dict[str, object] = {"group": "g", "delayLevel": 0, "originTopic": "orders", "offset": place}
        answer = await ask(peer, ALICE, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        if topic not in ("orders", "%RETRY%g", "%RETRY%g_orders"):
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {place}")
            return
        assert (answer.code, answer.remark) == (0, None)
        pull = pull_fields("%RETRY%g", int(topic == "%RETRY%g"), wait_ms=20_000) | {"consumerGroup": "g"}
        (again,) = messages(await ask(peer, ALICE, RequestCode.PULL_MESSAGE, pull))
        assert (again.body, decode_properties(again.properties)["RETRY_TOPIC"]) == (b"body", topic)


@pytest.mark.parametrize("topic", ["orders", "secret", "%RETRY%g", "%RETRY%boss"])
async def test_a_member_consumes_what_its_group_may_read(tmp_path: Path, topic: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        message_id = (await peer.send(topic, b"body")).ext_fields["msgId"]
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer, connected(broker) as admin:
        await _reader(admin)
        await _heartbeat(peer)
        fields: dict[str, object] = {"consumerGroup": "g", "clientId": "c", "msgId": message_id, "topic": "orders"}
        asking = asyncio.ensure_future(ask(admin, ALICE, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields))
        if topic in ("secret", "%RETRY%boss"):
            answer = await asking
            assert (answer.code, answer.remark) == (1, f"message {message_id} does not exist")
            return
        while (asked := await peer.notices.get()).code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
            pass
        peer.connection.send(response_to(asked, body=b"{}"))
        assert (await asking).code == ResponseCode.SUCCESS
        assert [record.body for record in iter_records(asked.body)] == [b"body"]


async def _heartbeat(peer: Peer) -> None:
    data = HeartbeatData("c", consumers=[ConsumerData("g", subscriptions=[Subscription.parse("orders", "*", 1)])])
    answer = await ask(peer, ALICE, RequestCode.HEART_BEAT, body=data.to_json())
    assert answer.code == ResponseCode.SUCCESS


async def test_a_transaction_is_decided_by_who_may_send_its_message(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        halves = {topic: await peer.send(topic, b"x", properties=PREPARED) for topic in ("orders", "secret")}
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Pub"])
        for topic, named_topic in (("secret", None), ("secret", "orders"), ("orders", None)):
            half = halves[topic]
            fields: dict[str, object] = {
                "producerGroup": "producers", "tranStateTableOffset": half.ext_fields["queueOffset"],
                "commitLogOffset": place_of(half), "commitOrRollback": COMMIT, "msgId": "K1",
            }  # fmt: skip
            answer = await ask(
                peer, ALICE, RequestCode.END_TRANSACTION, fields | ({"topic": named_topic} if named_topic else {})
            )
            refused = (1, "Find prepared transaction message failed")
            assert (answer.code, answer.remark) == ((0, None) if topic == "orders" else refused)
            pulled = await ask(peer, ROOT, RequestCode.PULL_MESSAGE, pull_fields(topic, 0))
            assert bodies(pulled) == ([b"x"] if topic == "orders" else [])


async def test_a_transaction_is_asked_about_again_for_who_may_change_its_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        ids = {
            topic: (await peer.send(topic, b"x", properties=PREPARED)).ext_fields["msgId"]
            for topic in ("orders", "secret")
        }
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Update"])
        for topic, code in (("secret", ResponseCode.SYSTEM_ERROR), ("orders", ResponseCode.SUCCESS)):
            fields: dict[str, object] = {"topic": "orders", "msgId": ids[topic]}
            answer = await ask(peer, ALICE, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
            assert answer.code == code, answer.remark


@pytest.mark.parametrize("in_batch", [False, True])
async def test_a_body_that_looks_like_a_record_does_not_bring_other_messages_along(
    tmp_path: Path, in_batch: bool
) -> None:
    text = b"between the two"
    async with running(tmp_path) as broker, connected(broker) as peer:
        first, second = [place_of(await peer.send("orders", bytes(200))) for _ in range(2)]
        begin, end = second + (second - first), second + 3 * (second - first) - 200 + len(text)
        looks_like = replace(messages(await peer.pull("orders", 0))[0], physical_offset=begin + BODY_AT)
        record = _record(looks_like, end - begin - BODY_AT, in_batch=in_batch)
        assert place_of(await peer.send("orders", record[: BODY_AT + 20].ljust(200, b"-"))) == begin
        await peer.send("secret", text)
        assert place_of(await peer.send("orders", record[end - begin :])) == end
        assert text in (await peer.call(VIEW, {"offset": begin + BODY_AT})).body  # all users may read here
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Get"])
        seen = await ask(peer, ALICE, VIEW, {"topic": "orders", "offset": begin + BODY_AT})
        assert (seen.code, seen.remark, seen.body) == (*nothing_at(begin + BODY_AT), b"")


def _record(message: StoredMessage, length: int, *, in_batch: bool) -> bytes:
    """Return a record with this number of bytes before the end of its body, or of the body of the message in its
    batch.
    """
    if not in_batch:
        return encode_record(replace(message, body=bytes(length)))
    body = encode_batch([(0, bytes(length - 20), b"")])
    return encode_record(replace(message, body=body, sys_flag=INNER_BATCH, properties="INNER_NUM\x011\x02"))
