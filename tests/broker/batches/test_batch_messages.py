"""Individual messages of inner batches: found, sent back and popped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import PROTOCOL_VERSION, RemotingCommand
from raptormq.protocol.inner_batch import unwrap
from raptormq.protocol.language import Language
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import decode_properties
from tests.broker.batches.batch_peer import TIMEOUT, create_topic, named, old_pull, send_batch
from tests.broker.harness import Peer, bodies, connected, messages, running

LEVELS = {"messageDelayLevel": "1s 1s 1s 1h", "maxHashSlotNum": "100", "maxIndexNum": "1000"}


async def query(peer: Peer, key: str, *, unique: bool = False, language: Language = Language.PYTHON) -> RemotingCommand:
    fields = {"topic": "b", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    text = {name: str(value) for name, value in fields.items()} | {"_UNIQUE_KEY_QUERY": str(unique).lower()}
    command = RemotingCommand(RequestCode.QUERY_MESSAGE, text, language=language, version=PROTOCOL_VERSION)
    return await peer.connection.request(command, TIMEOUT)


@pytest.mark.parametrize("restart", [False, True])
async def test_messages_are_found_by_their_own_keys_and_by_those_of_the_batch(tmp_path: Path, restart: bool) -> None:
    keyed = [(b"a", "UNIQ_KEY\x01A\x02KEYS\x01k1 k2\x02"), (b"b", "KEYS\x01k2\x02UNIQ_KEY\x01B\x02"), (b"c", "")]
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, keyed, "UNIQ_KEY\x01BATCH\x02KEYS\x01k1 k2 all\x02")
        await send_batch(peer, named("d"), "UNIQ_KEY\x01D2\x02")
        if not restart:
            await expect_found(peer)
    if restart:
        for path in (tmp_path / "index").iterdir():
            path.unlink()
        for path in (tmp_path / "batchconsumequeue" / "b" / "0").iterdir():
            path.unlink()
        async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
            await expect_found(peer)


async def expect_found(peer: Peer) -> None:
    assert bodies(await query(peer, "A", unique=True)) == [b"a"]
    assert bodies(await query(peer, "B", unique=True)) == [b"b"]
    assert bodies(await query(peer, "k1")) == [b"a"]
    assert bodies(await query(peer, "k2")) == [b"a", b"b"]
    assert bodies(await query(peer, "all")) == [b"a", b"b", b"c"]
    shared = messages(await query(peer, "BATCH", unique=True, language=Language.JAVA))
    assert [each.body for each in shared] == [b"a", b"b", b"c"]
    assert {decode_properties(each.properties)["UNIQ_KEY"] for each in shared} == {"BATCH"}
    (whole,) = messages(
        await query(peer, "BATCH", unique=True)
    )  # for clients that unpack batches: each message has its own id
    assert (unwrap(whole)[0].properties, whole.queue_offset) == ("UNIQ_KEY\x01A\x02KEYS\x01k1 k2\x02", 0)
    assert (await query(peer, "C", unique=True)).code == ResponseCode.QUERY_NOT_FOUND


async def test_ids_lead_to_messages_inside_a_batch(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await peer.send("b", b"before")
        sent = await send_batch(peer, named("a", "b", "c"))
        await peer.send("b", b"after")
        found = messages(await old_pull(peer, 0))
        assert len({each.physical_offset for each in found}) == 5
        for each in found:
            (viewed,) = messages(await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": each.physical_offset}))
            assert viewed == each
        wrapper = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
        (first,) = messages(await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": wrapper}))
        nothing = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": wrapper + 4})
    assert (first.body, first.queue_offset) == (b"a", 1)
    assert nothing.code == ResponseCode.SYSTEM_ERROR


async def send_back(peer: Peer, offset: int, **fields: object) -> RemotingCommand:
    return await peer.call(36, {"offset": offset, "group": "g", "delayLevel": 1, **fields})


async def test_one_failed_message_is_retried_without_its_neighbours(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        (wrapper,) = messages(await peer.pull("b", 0))
        by_key = await send_back(peer, wrapper.physical_offset, originMsgId="B")
        (again,) = messages(await peer.pull("%RETRY%g", 0, wait_ms=20_000))
        single = messages(await old_pull(peer, 2))[0]
        by_place = await send_back(peer, single.physical_offset, originMsgId="unknown")
        (third,) = messages(await peer.pull("%RETRY%g", 1, wait_ms=20_000))
        no_name = await send_back(peer, wrapper.physical_offset, originMsgId="X")
        nameless = await send_back(peer, wrapper.physical_offset)
    assert (by_key.code, by_place.code) == (0, 0)
    assert (again.body, again.reconsume_times, again.sys_flag) == (b"b", 1, 0)
    properties = decode_properties(again.properties)
    assert (properties["UNIQ_KEY"], properties["RETRY_TOPIC"]) == ("B", "b")
    assert (third.body, third.reconsume_times) == (b"c", 1)
    assert (no_name.code, nameless.code) == (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR)


async def pop(peer: Peer, **more: object) -> RemotingCommand:
    fields = {
        "consumerGroup": "g",
        "topic": "b",
        "queueId": 0,
        "maxMsgNums": 2,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": time.time_ns() // 1_000_000,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
    }
    return await peer.call(RequestCode.POP_MESSAGE, fields | more)


async def test_popping_takes_messages_one_by_one(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await send_batch(peer, named("d"), "UNIQ_KEY\x01B2\x02")
        popped = [bodies(await pop(peer)) for _ in range(2)]
        progress = await peer.call(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "b", "queueId": 0}
        )
    assert popped == [[b"a", b"b"], [b"c", b"d"]]
    assert progress.ext_fields["offset"] == "4"


async def test_searches_by_time_and_statistics_of_the_topic_count_messages(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await send_batch(peer, named("d"), "UNIQ_KEY\x01B2\x02")
        (first, second) = messages(await peer.pull("b", 0))

        async def at(time: int, boundary: str = "LOWER") -> str:
            fields = {"topic": "b", "queueId": 0, "timestamp": time, "boundaryType": boundary}
            answer = await peer.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            return answer.ext_fields["offset"]

        assert await at(first.store_timestamp) == "0"
        assert await at(second.store_timestamp + 1) == "4"
        stats = (await peer.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "b"})).body.decode()
    assert '"maxOffset":4' in stats.replace(" ", "")
    assert f'"lastUpdateTimestamp":{second.store_timestamp}' in stats.replace(" ", "")


async def test_items_of_the_queue_are_shown(tmp_path: Path) -> None:
    async with running(tmp_path, LEVELS) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        await peer.send("b", b"d")
        fields = {"topic": "b", "queueId": 0, "index": 1, "count": 5, "consumerGroup": "g"}
        answer = await peer.call(RequestCode.QUERY_CONSUME_QUEUE, fields)
        places = [each.physical_offset for each in messages(await peer.pull("b", 0))]
    text = answer.body.decode().replace(" ", "")
    assert (answer.code, '"maxQueueIndex":4' in text) == (0, True)
    assert [f'"physicOffset":{place}' in text for place in places] == [True, True]
