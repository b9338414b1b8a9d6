"""Topics of queue.type=BatchCQ: batches are stored whole, delivered whole or by message, and counted by message."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import decode_properties
from tests.broker.batches.batch_peer import create_topic, named, old_pull, send_batch
from tests.broker.harness import Peer, bodies, connected, held, messages, running


async def bounds(peer: Peer, queue_id: int = 0) -> tuple[int, int]:
    found = [
        await peer.call(code, {"topic": "b", "queueId": queue_id})
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    ]
    return int(found[0].ext_fields["offset"]), int(found[1].ext_fields["offset"])


async def test_a_batch_is_stored_whole_and_answered_as_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await create_topic(peer)).code == 0
        first = await send_batch(peer, named("a", "b", "c"), "UNIQ_KEY\x01B1\x02KEYS\x01k1 k2\x02WAIT\x01true\x02")
        second = await send_batch(peer, named("d", "e"), "UNIQ_KEY\x01B2\x02")
        stored = messages(await peer.pull("b", 0))
        assert await bounds(peer) == (0, 5)
    assert (first.code, first.ext_fields["queueOffset"], second.ext_fields["queueOffset"]) == (0, "0", "3")
    assert (first.ext_fields["batchUniqId"], first.ext_fields["transactionId"]) == ("B1", "B1")
    assert parse_offset_id(first.ext_fields["msgId"]).physical_offset == stored[0].physical_offset
    assert [each.sys_flag for each in stored] == [INNER_BATCH, INNER_BATCH]
    assert [each.body for wrapper in stored for each in unwrap(wrapper)] == [b"a", b"b", b"c", b"d", b"e"]
    assert decode_properties(stored[0].properties) == {
        "UNIQ_KEY": "B1",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "INNER_NUM": "3",
        "INNER_BASE": "0",
    }


@pytest.mark.parametrize("binary", [False, True])
async def test_the_answer_names_the_batch_in_both_header_encodings(tmp_path: Path, binary: bool) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        fields = {"a": "p", "b": "b", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1, "h": 0, "m": "true"}
        fields["i"] = 'UNIQ_KEY\x01odd "key"\x02' if binary else "UNIQ_KEY\x01B\x02"
        answer = await peer.call(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch([(0, b"x", b"")]), binary=binary)
    assert answer.code == 0
    assert answer.ext_fields["batchUniqId"] == ('odd "key"' if binary else "B")


async def test_old_clients_get_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await peer.send("b", b"d")
        found = messages(await old_pull(peer, 0))
        later = await old_pull(peer, 2, maxMsgNums=1)
    assert [each.body for each in found] == [b"a", b"b", b"c", b"d"]
    assert [(each.queue_offset, each.sys_flag) for each in found] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert [decode_properties(each.properties)["UNIQ_KEY"] for each in found[:3]] == ["A", "B", "C"]
    assert (bodies(later), later.ext_fields["nextBeginOffset"]) == ([b"c"], "3")


async def test_a_pull_begins_with_exactly_the_message_it_asks_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await send_batch(peer, named("d", "e"))
        found = messages(await peer.pull("b", 1))
    assert [(each.queue_offset, each.body) for each in found[:2]] == [(1, b"b"), (2, b"c")]
    assert [each.body for each in unwrap(found[2])] == [b"d", b"e"]


async def test_single_messages_and_lists_without_an_id_are_batches_of_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await peer.send("b", b"single")
        sent = await send_batch(peer, named("a", "b"), "")
        found = messages(await peer.pull("b", 0))
        assert await bounds(peer) == (0, 3)
    assert [each.body for each in found] == [b"single", b"a", b"b"]
    assert {each.sys_flag for each in found} == {0}
    assert len(sent.ext_fields["msgId"].split(",")) == 2
    assert "batchUniqId" not in sent.ext_fields


async def test_a_list_with_one_common_tag_is_seen_by_subscribers_to_it(tmp_path: Path) -> None:
    tagged = [(b"a", "TAGS\x01red\x02"), (b"b", "TAGS\x01red\x02")]
    mixed = [(b"c", "TAGS\x01red\x02"), (b"d", "TAGS\x01blue\x02"), (b"e", "")]
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, tagged)
        await send_batch(peer, mixed)
        await send_batch(peer, named("f"), "UNIQ_KEY\x01B\x02TAGS\x01blue\x02")
        red = messages(await peer.pull("b", 0, subscription="red"))
        blue = messages(await peer.pull("b", 0, subscription="blue"))
        none = await peer.pull("b", 0, subscription="green")
    assert decode_properties(red[0].properties)["TAGS"] == "red"
    assert [each.body for each in unwrap(red[0])] == [b"a", b"b"]
    assert [(each.queue_offset, each.body) for each in red[1:]] == [(2, b"c")]
    assert [(each.queue_offset, each.body) for each in blue[:1]] == [(3, b"d")]
    assert [each.body for each in unwrap(blue[1])] == [b"f"]
    assert (none.code, none.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "6")


async def test_filters_by_property_judge_the_messages(tmp_path: Path) -> None:
    priced = [(str(price).encode(), f"price\x01{price}\x02") for price in range(5)]
    async with running(tmp_path, {"enablePropertyFilter": "true"}) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, priced)
        found = await peer.pull("b", 0, subscription="price > 2", expressionType="SQL92")
    assert bodies(found) == [b"3", b"4"]


@pytest.mark.parametrize("subscription", ["*", "red", "blue"])
async def test_held_pulls_wake_up_for_what_they_want(tmp_path: Path, subscription: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("old"))
        waiting = asyncio.ensure_future(peer.pull("b", 1, wait_ms=9000, subscription=subscription))
        await held(peer, 1)
        if subscription != "*":
            await send_batch(peer, [(b"x", "TAGS\x01green\x02")])
            assert not waiting.done()
        await send_batch(peer, [(b"r", "TAGS\x01red\x02"), (b"b", "TAGS\x01blue\x02")])
        answer = await waiting
    assert answer.code == 0
    wanted = [inner.body for each in messages(answer) for inner in (unwrap(each) if each.sys_flag else [each])]
    assert wanted == {"*": [b"r", b"b"], "red": [b"r"], "blue": [b"b"]}[subscription]


async def test_a_compressed_batch_stays_compressed_for_those_who_can_and_is_inflated_for_others(tmp_path: Path) -> None:
    body = zlib.compress(encode_batch([(0, each, b"") for each in (b"a", b"b")]))
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        sent = await send_batch(peer, [], "UNIQ_KEY\x01B\x02INNER_NUM\x012\x02", body=body, f=0x301)
        (wrapper,) = messages(await peer.pull("b", 0))
        plain = messages(await old_pull(peer, 0))
        uncounted = await send_batch(peer, [], body=body, f=0x301)
    assert (sent.code, wrapper.body, wrapper.sys_flag) == (0, body, 0x301 | INNER_BATCH)
    assert [(each.body, each.sys_flag) for each in plain] == [(b"a", 0), (b"b", 0)]
    assert (uncounted.code, "INNER_NUM" in (uncounted.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


GOOD = encode_batch([(0, b"abc", b""), (0, b"d", b"")])


@pytest.mark.parametrize(
    ("body", "properties", "remark"),
    [
        (b"", "", "the batch is empty"),
        (GOOD[:-1], "", "truncated"),
        (GOOD + b"\0" * 19, "", "truncated"),
        (GOOD[:3] + b"\x09" + GOOD[4:], "", "size"),
        (b"\0" * 20 + b"\xff\xea", "", "size"),
        (GOOD[:19] + b"\x02" + GOOD[20:], "", "inconsistent lengths"),
        (GOOD[:8] + b"\0\0\0\x01" + GOOD[12:], "", "CRC"),
        (GOOD, "INNER_NUM\x013\x02", "declares 3 messages but contains 2"),
        (encode_batch([(0, b"", b"INNER_NUM\x012\x02")]), "", "is a batch"),
        (encode_batch([(0, b"", b"")] * 32_768), "", "the batch has more than 32767 messages"),
        (GOOD, "k\x01" + "v" * 32_650 + "\x02", "properties"),
        (GOOD, "DELAY\x013\x02", "delayed"),
    ],
)
async def test_bad_batches_are_refused_and_store_nothing(
    tmp_path: Path, body: bytes, properties: str, remark: str
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        answer = await send_batch(peer, [], f"UNIQ_KEY\x01B\x02{properties}", body=body)
        assert await bounds(peer) == (0, 0)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark in (answer.remark or "")


async def test_a_batch_that_asks_for_no_delay_may_say_how_many_it_holds(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        answer = await send_batch(peer, [], "UNIQ_KEY\x01B\x02INNER_NUM\x012\x02DELAY\x010\x02", body=GOOD)
        assert await bounds(peer) == (0, 2)
    assert (answer.code, answer.remark) == (0, None)


async def test_the_largest_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        answer = await send_batch(peer, [(b"", "")] * 32_767)
        last = messages(await old_pull(peer, 32_766))
        assert await bounds(peer) == (0, 32_767)
    assert (answer.code, [each.queue_offset for each in last]) == (0, [32_766])


async def test_inner_batches_come_from_batches_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        flagged = await peer.send("b", GOOD, f=INNER_BATCH)
        named_so = await peer.send("b", GOOD, 0, "INNER_NUM\x012\x02")
    assert (flagged.code, named_so.code) == (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL)


async def test_figures_count_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await peer.pull("b", 0)
        runtime = (await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()
    assert '"msgPutTotalTodayNow":"3"' in runtime
    assert '"msgGetTotalTodayNow":"3"' in runtime


async def test_a_restart_and_a_deletion(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send_batch(peer, named("d"))
        assert [each.body for each in messages(await old_pull(peer, 0))] == [b"a", b"b", b"c", b"d"]
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "b"})).code == 0
        assert not (tmp_path / "batchconsumequeue" / "b").exists()
        assert (await create_topic(peer, attributes="+queue.type=SimpleCQ")).code == 0
        await send_batch(peer, named("x", "y"))
        assert bodies(await peer.pull("b", 0)) == [b"x", b"y"]
    assert (tmp_path / "consumequeue" / "b").exists()


async def test_the_type_of_a_topic_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        change = await create_topic(peer, attributes="+queue.type=SimpleCQ")
        removal = await create_topic(peer, attributes="-queue.type")
        assert (await create_topic(peer, attributes="")).code == 0
        await send_batch(peer, named("a", "b"))
        assert len(messages(await peer.pull("b", 0))) == 1
    assert (change.code, removal.code) == (1, 1)
    assert "cannot be changed after creation" in (change.remark or "")


async def test_a_topic_that_nobody_remembers_keeps_its_type(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b"))
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    async with running(tmp_path) as broker, connected(broker) as peer:
        other = await create_topic(peer, attributes="+queue.type=SimpleCQ")
        assert (await create_topic(peer)).code == 0
        assert [each.body for each in messages(await old_pull(peer, 0))] == [b"a", b"b"]
    assert (other.code, "queue.type cannot be changed" in (other.remark or "")) == (1, True)
