"""Requests for encrypted batches by clients that cannot decrypt them: they get an error, neither the batch nor an empty
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import PROTOCOL_VERSION, RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.language import Language
from raptormq.protocol.message_id import ids_from, parse_offset_id
from tests.broker.batches.batch_peer import TIMEOUT, create_topic, named, send_batch
from tests.broker.batches.test_batch_messages import query, send_back
from tests.broker.batches.test_wrapped_batches import MARK, PROPERTIES, SEALED, send_wrapped
from tests.broker.harness import Peer, bodies, connected, messages, pull_fields, running

KEYED = PROPERTIES + "KEYS\x01k1 k2\x02" + MARK
REMARK = "messages 0 to 2 of the queue are encrypted as one with the key 'k1'"


async def java_call(peer: Peer, code: int, fields: Mapping[str, object]) -> RemotingCommand:
    """Pull like the official Java client, which unpacks batches."""
    text = {name: str(value) for name, value in fields.items()}
    command = RemotingCommand(code, text, language=Language.JAVA, version=PROTOCOL_VERSION)
    return await peer.connection.request(command, TIMEOUT)


async def java_pull(peer: Peer, offset: int, **more: object) -> RemotingCommand:
    return await java_call(peer, RequestCode.PULL_MESSAGE, pull_fields("b", offset) | more)


async def java_query(peer: Peer, key: str, *, unique: bool = False) -> RemotingCommand:
    return await query(peer, key, unique=unique, language=Language.JAVA)


async def java_view(peer: Peer, offset: int) -> RemotingCommand:
    return await java_call(peer, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})


async def test_who_looks_for_a_message_in_one_is_told_of_the_key(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        sent = await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
        place = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
        refused = [
            await java_query(peer, "k2"),
            await java_query(peer, "BATCH", unique=True),
            *[await java_view(peer, place + inside) for inside in (0, 1, 3)],
            await send_back(peer, place, originMsgId="A"),
        ]
        unknown = await java_query(peer, "k3")
    assert [answer.code for answer in refused] == [ResponseCode.SERVICE_NOT_AVAILABLE] * len(refused)
    assert [REMARK in str(answer.remark) for answer in refused] == [True] * len(refused)
    assert unknown.code == ResponseCode.QUERY_NOT_FOUND


async def test_who_asks_by_the_id_of_a_message_inside_is_told_too(tmp_path: Path) -> None:
    ids = ids_from("0A" * 16, 4)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, SEALED, INNER_BATCH, f"{KEYED}__INNER_IDS\x01{ids[0]}*3\x02")
        answers = [await java_query(peer, each, unique=True) for each in ids]
    told, unknown = ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.QUERY_NOT_FOUND
    assert [answer.code for answer in answers] == [told, told, told, unknown]


async def test_who_takes_them_apart_gets_them_as_they_are(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        sent = await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
        await peer.send("b", b"readable", 0, "KEYS\x01k1\x02UNIQ_KEY\x01X\x02")
        place = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
        found = [
            await query(peer, "k2"),
            await query(peer, "BATCH", unique=True),
            await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place}),
        ]
        both = await query(peer, "k1")
        unknown = await query(peer, "k3")
    assert [bodies(answer) for answer in found] == [[SEALED]] * 3
    assert sorted(bodies(both)) == sorted([SEALED, b"readable"])
    assert unknown.code == ResponseCode.QUERY_NOT_FOUND


async def test_messages_that_can_be_read_are_found_beside_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for number in range(20):  # more than one read returns
            await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
            if number == 1:
                await peer.send("b", b"readable", 0, "KEYS\x01k1\x02UNIQ_KEY\x01X\x02")
        assert bodies(await java_query(peer, "k1")) == [b"readable"]


async def test_no_place_behind_its_messages_is_one_of_them(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        sent = await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
        place = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
        answer = await java_view(peer, place + 4)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_body_that_is_cut_before_its_key_is_encrypted_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, SEALED[:6], INNER_BATCH, KEYED)
        answers = [await java_pull(peer, 0), await java_query(peer, "k1")]
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert all("are encrypted as one:" in str(answer.remark) for answer in answers)


async def test_the_age_of_a_log_that_begins_with_one_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
        (stored,) = messages(await peer.pull("b", 0))
        answer = await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert json.loads(answer.body)["table"]["earliestMessageTimeStamp"] == str(stored.store_timestamp)


async def test_clients_of_other_languages_never_get_the_bytes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, SEALED, INNER_BATCH, KEYED + "TAGS\x01A\x02")
        await send_batch(peer, named("a", "b"))
        await send_wrapped(peer, SEALED, INNER_BATCH, KEYED)
        refused = [
            *[await java_pull(peer, offset) for offset in range(3)],
            await java_pull(peer, 0, subscription="A"),
            await java_pull(peer, 5),
            await java_pull(peer, 0, subscription="B"),  # the batch with another tag is followed by one without a tag
        ]
        between = await java_pull(peer, 3)
        ours = messages(await peer.pull("b", 0))
    assert [answer.code for answer in refused] == [ResponseCode.SERVICE_NOT_AVAILABLE] * len(refused)
    assert [REMARK in str(answer.remark) for answer in refused] == [True] * 4 + [False] * 2
    assert (between.code, between.ext_fields["nextBeginOffset"]) == (0, "5")
    assert [each.body for each in messages(between)] == [each.body for each in ours[1:2]]
    assert [each.body == SEALED for each in ours] == [True, False, True]


async def test_clients_of_other_languages_get_what_only_looks_encrypted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await peer.send("b", SEALED)
        await send_wrapped(peer, encode_batch([(0, SEALED, b"")]), INNER_BATCH, "UNIQ_KEY\x01B\x02INNER_NUM\x011\x02")
        found = messages(await java_pull(peer, 0))
    assert found[0].body == SEALED
    assert len(found) == 2
