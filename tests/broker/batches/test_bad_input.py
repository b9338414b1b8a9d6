"""Invalid batches and damaged queue items, on the wire: only the affected batch is lost."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import SysFlag
from tests.broker.batches.batch_peer import create_topic, named, old_pull, send_batch
from tests.broker.batches.test_encrypted_batches import java_pull
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import Peer, bodies, connected, held, messages, pull_fields, running, send_fields
from tests.storage.memory_filesystem import MemoryFileSystem

COMPRESSED = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
GOOD = encode_batch([(0, b"a", b"UNIQ_KEY\x01A\x02"), (0, b"b", b"UNIQ_KEY\x01B\x02")])
LARGE = zlib.compress(encode_batch([(0, bytes(5 << 20), b"TAGS\x01A\x02")] * 3))


async def send_compressed(peer: Peer, body: bytes, count: int) -> RemotingCommand:
    """Send a batch in the form that brokers do not decode."""
    fields = send_fields("b", 0, f"UNIQ_KEY\x01BAD\x02INNER_NUM\x01{count}\x02") | {"f": COMPRESSED}
    return await peer.call(RequestCode.SEND_MESSAGE_V2, fields, body)


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        pytest.param(b"garbage", 2, "the compressed body is damaged", id="not compressed"),
        pytest.param(zlib.compress(GOOD)[:-9], 2, "the compressed body is truncated", id="compressed body cut"),
        pytest.param(zlib.compress(GOOD), 3, "holds 2 messages, a different number than INNER_NUM", id="count lies"),
        pytest.param(zlib.compress(GOOD[:-1]), 2, "is truncated or has a wrong size", id="record cut"),
        pytest.param(zlib.compress(GOOD[:11] + b"\1" + GOOD[12:]), 2, "has a wrong CRC", id="wrong CRC"),
        pytest.param(zlib.compress(encode_batch([(0, b"x", b"INNER_NUM\x012\x02")])), 1, "another one", id="nested"),
    ],
)
async def test_a_compressed_batch_that_cannot_be_taken_apart_leaves_its_neighbours_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes, count: int, reason: str
) -> None:
    async with running(tmp_path, {"enablePropertyFilter": "true"}) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("before"), "UNIQ_KEY\x01ONE\x02")
        assert (await send_compressed(peer, body, count)).code == 0
        await send_batch(peer, [(b"y", "UNIQ_KEY\x01Y\x02KEYS\x01k\x02"), (b"z", "")], "UNIQ_KEY\x01TWO\x02")
        whole = messages(await peer.pull("b", 0))
        begin = await old_pull(peer, 0)
        inside = await old_pull(peer, 1)
        java = await java_pull(peer, count, subscription="A || B")  # this requires its messages
        by_property = await peer.pull("b", 1, subscription="KEYS = 'k'", expressionType="SQL92")
        fields = {"topic": "b", "key": "Y", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        by_key = await peer.call(RequestCode.QUERY_MESSAGE, fields | {"_UNIQUE_KEY_QUERY": "true"})
        sent_back = await peer.call(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": whole[1].physical_offset, "group": "g", "delayLevel": 1, "originMsgId": "A"},
        )
    assert len(whole) == 3
    assert bodies(begin)[:1] == [b"before"]
    assert bodies(inside) == [b"y", b"z"]
    assert messages(java) == []
    assert [each.queue_offset for each in messages(inside)] == [1 + count, 2 + count]
    assert (bodies(by_property), bodies(by_key)) == ([b"y"], [b"y"])
    assert sent_back.code == ResponseCode.SYSTEM_ERROR
    assert reason in caplog.text


async def until_found(peer: Peer, offset: int, **fields: str) -> tuple[list[bytes], list[int]]:
    """Pull from the offsets in the responses until messages arrive. Return them, and the codes of the responses."""
    codes: list[int] = []
    while not codes or codes[-1] == ResponseCode.PULL_RETRY_IMMEDIATELY:
        answer = await peer.call(RequestCode.PULL_MESSAGE, pull_fields("b", offset) | fields)
        codes.append(answer.code)
        offset = int(answer.ext_fields["nextBeginOffset"])
    return bodies(answer), codes


async def test_a_batch_that_is_too_large_to_be_taken_apart_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that unpacks batches receives the batch whole. For all other clients it is skipped and counted."""
    async with running(tmp_path, {"enablePropertyFilter": "true"}) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("before"), "UNIQ_KEY\x01ONE\x02")
        assert (await send_compressed(peer, LARGE, 3)).code == 0
        waiting = asyncio.create_task(old_pull(peer, 4, sysFlag=6, suspendTimeoutMillis=8000))
        await held(peer, 2)
        await send_compressed(peer, LARGE, 3)
        behind = [(b"y", "UNIQ_KEY\x01Y\x02KEYS\x01k\x02"), (b"z", "UNIQ_KEY\x01Z\x02KEYS\x01k\x02")]
        await send_batch(peer, behind, "UNIQ_KEY\x01TWO\x02KEYS\x01k\x02")
        old = [await old_pull(peer, 0)]
        while int(old[-1].ext_fields["nextBeginOffset"]) < 9:
            old.append(await old_pull(peer, int(old[-1].ext_fields["nextBeginOffset"])))
        by_property = await until_found(peer, 1, subscription="KEYS = 'k'", expressionType="SQL92")
        popped = await pop(peer, topic="b", queueId=-1, maxMsgNums=4)
        more = await pop(peer, topic="b", queueId=-1, maxMsgNums=4, pollTime=20_000)
        held_up = await waiting
        whole = [
            messages(answer)[0]
            for answer in (
                await java_pull(peer, 2),
                await java_pull(peer, 1, subscription="A"),
                await peer.pull("b", 3),
                await peer.pull("b", 1, subscription="A"),
            )
        ]
        assert broker._store is not None
        counted = broker._store.stats().skipped_records
    assert [body for answer in old for body in bodies(answer)] == [b"before", b"y", b"z"]
    assert {answer.code for answer in old} <= {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
    assert by_property[0] == [b"y", b"z"]
    assert (bodies(popped), bodies(more)) == ([b"before"], [b"y", b"z"])
    assert (held_up.code, bodies(held_up)) == (0, [b"y", b"z"])
    assert [(each.queue_offset, each.body) for each in whole] == [(1, LARGE)] * 4
    assert counted > 0
    assert "of b/0 from offset 1 on are skipped for a reader that wants messages" in caplog.text


async def test_a_wrong_crc_is_refused_on_topics_of_both_types(tmp_path: Path) -> None:
    right = GOOD[:8] + (zlib.crc32(b"a") & 0x7FFFFFFF).to_bytes(4, "big") + GOOD[12:]
    wrong = GOOD[:8] + b"\0\0\0\1" + GOOD[12:]
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for topic in ("b", "simple"):
            refused = await send_batch(peer, [], topic=topic, body=wrong)
            taken = await send_batch(peer, [], topic=topic, body=right)
            assert (refused.code, "CRC" in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
            assert (taken.code, taken.ext_fields["queueOffset"]) == (0, "0")


async def test_properties_that_are_not_utf8_are_replaced_on_topics_of_both_types(tmp_path: Path) -> None:
    """If these records were stored unchanged, no recovery would accept them, and consumers could not continue."""
    texts = [b"k\x01\xc3\xa4\x02UNIQ_KEY\x01X\x02", b"KEYS\x01\xff k\x02UNIQ_KEY\x01Y\x02"]
    body = encode_batch([(0, b"a", texts[0]), (0, b"b", texts[1])])
    long = encode_batch([(0, b"", b"k\x01" + b"\xff" * 20_000)])
    volume = MemoryFileSystem()
    async with running(tmp_path, filesystem=volume) as broker, connected(broker) as peer:
        await create_topic(peer)
        for topic in ("simple", "b"):
            assert (await send_batch(peer, [], topic=topic, body=body)).code == 0
        refused = await send_batch(peer, [], topic="simple", body=long)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        survivor = volume.after_kill()
    async with running(tmp_path, filesystem=survivor) as broker, connected(broker) as peer:
        for topic in ("simple", "b"):
            found = messages(await old_pull(peer, 0, topic=topic))
            assert [(each.queue_offset, each.body) for each in found] == [(0, b"a"), (1, b"b")]
            properties = [decode_properties(each.properties) for each in found]
            assert (properties[0]["k"], properties[1]["KEYS"]) == ("ä", "\ufffd k")
            fields = {"topic": topic, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
            assert bodies(await peer.call(RequestCode.QUERY_MESSAGE, fields)) == [b"b"]


@pytest.mark.parametrize("tag", [b"\xff", b"A\xff\xfe", b"\xed\xa0\x80"])
@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01BATCH\x02", "UNIQ_KEY\x01BATCH\x02KEYS\x01k\x02"])
async def test_a_common_tag_that_is_not_utf8_harms_nobody(tmp_path: Path, tag: bytes, properties: str) -> None:
    """The broker adds the common tag of the messages to the batch record, which must remain decodable."""
    fields = send_fields("b", 0, properties) | {"m": "true"}
    bad = encode_batch((0, body, b"TAGS\x01%b\x02" % tag) for body in (b"1", b"2"))
    volume = MemoryFileSystem()
    async with running(tmp_path, filesystem=volume) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("before"), "UNIQ_KEY\x01ONE\x02")
        assert (await peer.call(RequestCode.SEND_BATCH_MESSAGE, fields, bad)).code == 0
        await send_batch(peer, named("after"), "UNIQ_KEY\x01TWO\x02")
        survivor = volume.after_kill()
    async with running(tmp_path, filesystem=survivor) as broker, connected(broker) as peer:
        whole = messages(await peer.pull("b", 0))
        one_by_one = bodies(await old_pull(peer, 0))
    assert [each.body for record in whole for each in unwrap(record)] == [b"before", b"1", b"2", b"after"]
    assert "TAGS" not in decode_properties(whole[1].properties)
    assert one_by_one == [b"before", b"1", b"2", b"after"]


async def test_what_a_producer_says_of_the_length_of_hosts_is_not_stored(tmp_path: Path) -> None:
    """Bits 0x30 determine the position of the body in a record. With wrong bits the record cannot be decoded."""
    hosts = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for topic in ("b", "simple"):
            assert (await peer.send(topic, b"single", f=hosts)).code == 0
            assert (await send_batch(peer, named("x", "y"), topic=topic, f=hosts)).code == 0
        stored = messages(await peer.pull("simple", 0))
        whole = messages(await peer.pull("b", 0))
        assert bodies(await old_pull(peer, 0)) == [b"single", b"x", b"y"]
    assert [each.body for each in stored] == [b"single", b"x", b"y"]
    assert [each.sys_flag for each in (*stored, *whole)] == [0, 0, 0, 0, INNER_BATCH]


@pytest.mark.parametrize("topic", ["b", "simple"])
@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01BATCH\x02", ""], ids=["key", "no key"])
async def test_a_list_nests_nothing_on_topics_of_both_types(tmp_path: Path, topic: str, properties: str) -> None:
    nested = [(GOOD, "INNER_NUM\x012\x02UNIQ_KEY\x01N\x02"), (b"plain", "")]
    alike = [(b"INNER_NUM\x013\x02", "OUTER_INNER_NUM\x012\x02"), (b"x", "INNER_NUM\x01\x02")]
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        for messages_of_it in (nested, nested[::-1]):
            refused = await send_batch(peer, messages_of_it, properties, topic=topic)
            remark = "a message of the batch is a batch itself"
            assert (refused.code, refused.remark) == (ResponseCode.MESSAGE_ILLEGAL, remark)
        taken = await send_batch(peer, alike, properties, topic=topic)
        found = bodies(await old_pull(peer, 0, topic=topic))
    assert (taken.code, taken.ext_fields["queueOffset"]) == (0, "0")
    assert found == [body for body, _ in alike]


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"\x7f"], ids=["zeros", "ones", "far away"])
@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_around_a_damaged_item_of_the_index_all_is_served(tmp_path: Path, queue_type: str, damage: bytes) -> None:
    folder, size = ("batchconsumequeue", 46) if queue_type == "BatchCQ" else ("consumequeue", 20)
    file = tmp_path / folder / "b" / "0" / f"{0:020}"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer, attributes=f"+queue.type={queue_type}")
        for number in range(5):
            await send_batch(peer, named(f"{number}a", f"{number}b"), f"UNIQ_KEY\x01B{number}\x02")
        items = 5 if queue_type == "BatchCQ" else 10
        while not (file.exists() and any(file.read_bytes()[(items - 1) * size : items * size])):
            await asyncio.sleep(0.02)
        with file.open("r+b") as written:
            written.seek(2 * size)
            written.write(damage * size)
        found = await read_all(peer)
        later = await send_batch(peer, named("later"), "UNIQ_KEY\x01LATER\x02")
    lost = set() if queue_type == "BatchCQ" else {b"1a"}
    sent = [f"{number}{each}".encode() for number in range(5) for each in "ab"]
    assert found == [body for body in sent if body not in lost]
    assert later.ext_fields["queueOffset"] == "10"
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert await read_all(peer) == [*sent, b"later"], "the start rebuilds the queues"


async def read_all(peer: Peer) -> list[bytes]:
    """Pull to the end of the queue like a client, from the offset in each response."""
    found: list[bytes] = []
    offset = 0
    while True:
        answer = await old_pull(peer, offset)
        if answer.code == 0:
            found += bodies(answer)
        following = int(answer.ext_fields["nextBeginOffset"])
        if following <= offset:
            return found
        offset = following
