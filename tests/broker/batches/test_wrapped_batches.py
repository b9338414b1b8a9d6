"""Batches that arrive in their stored form, which brokers cannot count: compressed or encrypted."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.message_id import ids_from
from raptormq.protocol.record import SysFlag
from tests.broker.batches.batch_peer import create_topic, old_pull
from tests.broker.batches.test_batch_messages import query
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import Peer, bodies, connected, held, messages, running, send_fields

COMPRESSED = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
PLAIN = encode_batch([(0, name.encode(), f"UNIQ_KEY\x01{name}\x02".encode()) for name in ("a", "b", "c")])
SEALED = encrypt_body(PLAIN, 0, "k1", b"k" * 16, b"n" * 12)
PROPERTIES = "UNIQ_KEY\x01BATCH\x02INNER_NUM\x013\x02"
MARK = "__ENCRYPTION_KEY\x01k1\x02"


async def send_wrapped(
    peer: Peer, body: bytes, sys_flag: int, properties: str = PROPERTIES, topic: str = "b"
) -> RemotingCommand:
    fields = send_fields(topic, 0, properties) | {"f": sys_flag}
    return await peer.call(RequestCode.SEND_MESSAGE_V2, fields, body)


async def test_a_compressed_batch_stays_as_it_is_and_counts_its_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        first = await send_wrapped(peer, zlib.compress(PLAIN), COMPRESSED)
        plain = await send_wrapped(peer, PLAIN, INNER_BATCH)
        stored = messages(await peer.pull("b", 0))
        old = messages(await old_pull(peer, 0))
        middle = messages(await peer.pull("b", 1))
    assert [first.ext_fields["queueOffset"], plain.ext_fields["queueOffset"]] == ["0", "3"]
    assert first.ext_fields["batchUniqId"] == "BATCH"
    assert [each.sys_flag for each in stored] == [COMPRESSED, INNER_BATCH]
    assert stored[0].body == zlib.compress(PLAIN)
    assert [each.body for wrapper in stored for each in unwrap(wrapper)] == [b"a", b"b", b"c"] * 2
    assert [each.body for each in old] == [b"a", b"b", b"c"] * 2
    assert middle[0].queue_offset == 1


@pytest.mark.parametrize(
    ("body", "sys_flag", "properties"),
    [
        (PLAIN, int(SysFlag.INNER_BATCH), PROPERTIES),
        (PLAIN, INNER_BATCH | int(SysFlag.TRANSACTION_PREPARED), PROPERTIES),
        (PLAIN, INNER_BATCH, "INNER_NUM\x013\x02"),
        (PLAIN, INNER_BATCH, "UNIQ_KEY\x01BATCH\x02INNER_NUM\x012\x02"),
        (PLAIN[:-1], INNER_BATCH, PROPERTIES),
        (zlib.compress(PLAIN), COMPRESSED, "UNIQ_KEY\x01BATCH\x02"),
        (zlib.compress(PLAIN), COMPRESSED, "UNIQ_KEY\x01BATCH\x02INNER_NUM\x0132768\x02"),
        (SEALED, INNER_BATCH, "UNIQ_KEY\x01BATCH\x02" + MARK),
    ],
    ids=["one flag", "transaction", "no key", "count", "cut", "no count", "too many", "encrypted, no count"],
)
async def test_what_lies_about_itself_is_refused(tmp_path: Path, body: bytes, sys_flag: int, properties: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        assert (await send_wrapped(peer, body, sys_flag, properties)).code == ResponseCode.MESSAGE_ILLEGAL
        assert not bodies(await peer.pull("b", 0))


@pytest.mark.parametrize("restart", [False, True])
async def test_messages_are_found_by_the_ids_that_a_batch_says(tmp_path: Path, restart: bool) -> None:
    ids = ids_from("0A" * 16, 3)
    body = encode_batch([(0, each.encode(), f"UNIQ_KEY\x01{each}\x02".encode()) for each in ids])
    said = f"{PROPERTIES}__INNER_IDS\x01{ids[0]}*3\x02"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, zlib.compress(body), COMPRESSED, said)
        await send_wrapped(peer, zlib.compress(PLAIN), COMPRESSED, said)  # this count is wrong
        found = [bodies(await query(peer, each, unique=True)) for each in ids]
    if restart:
        for folder in ("index", "batchconsumequeue/b/0"):
            for path in (tmp_path / folder).iterdir():
                path.unlink()
        async with running(tmp_path) as broker, connected(broker) as peer:
            found = [bodies(await query(peer, each, unique=True)) for each in ids]
    assert found == [[each.encode()] for each in ids]


async def test_other_topics_refuse_them(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer, "s", "")
        answer = await send_wrapped(peer, zlib.compress(PLAIN), COMPRESSED, topic="s")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "BatchCQ" in str(answer.remark)


async def test_an_encrypted_batch_is_handed_out_whole_or_not_at_all(tmp_path: Path) -> None:
    async with running(tmp_path, {"enablePropertyFilter": "true"}) as broker, connected(broker) as peer:
        await create_topic(peer)
        await peer.send("b", b"before")
        assert (await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK)).code == 0
        await peer.send("b", b"after")
        for offset in (0, 1, 2, 3):
            stored = messages(await peer.pull("b", offset))
            assert [each.body for each in stored] == [b"before", SEALED, b"after"][min(offset, 1) :]
        before = await old_pull(peer, 0)
        refused = [
            await old_pull(peer, 1),
            await old_pull(peer, 2),
            await peer.pull("b", 1, subscription="price > 2", expressionType="SQL92"),
        ]
        after = await old_pull(peer, 4)
    assert (bodies(before), before.ext_fields["nextBeginOffset"]) == ([b"before"], "1")
    assert [answer.code for answer in refused] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
    assert all("messages 1 to 3 of the queue are encrypted" in str(answer.remark) for answer in refused)
    assert bodies(after) == [b"after"]


async def test_a_held_pull_of_an_old_client_is_answered_when_an_encrypted_batch_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        waiting = asyncio.create_task(old_pull(peer, 0, sysFlag=6, suspendTimeoutMillis=8000))
        await held(peer, 2)
        await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK)
        answer = await waiting
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_an_encrypted_batch_keeps_nobody_from_popping_the_other_queues(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK)
        await peer.send("b", b"one", 1)
        await peer.send("b", b"two", 1)
        found: list[bytes] = []
        while len(found) < 2:
            popped = await pop(peer, topic="b", queueId=-1, maxMsgNums=1)
            assert (popped.code, popped.ext_fields["restNum"]) == (0, str(4 - len(found)))
            found += bodies(popped)
        refused = await pop(peer, topic="b", queueId=-1)
    assert found == [b"one", b"two"]
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "messages 0 to 2 of the queue are encrypted" in str(refused.remark)
