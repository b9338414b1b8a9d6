"""Batches that are delivered as a whole: their messages equal those that a broker unpacks."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from raptormq.client import AdminClient, MessageExt, PullConsumer
from raptormq.client.message.decoding import decode_messages
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.message_id import ids_from
from raptormq.protocol.record import SysFlag
from tests.broker.harness import Peer, connected, pull_fields, send_fields
from tests.client.embedded_cluster import Cluster
from tests.client.test_batch_topics import QUEUE, client, create_topic

OWN_IDS = ids_from("0A" * 16, 3)
MESSAGES = [
    *((0, b"has an id of its own", f"UNIQ_KEY\x01{own}\x02KEYS\x01all\x02".encode()) for own in OWN_IDS),
    *((0, b"has none", b"KEYS\x01all\x02") for _ in range(3)),
]
ENCODED = encode_batch(MESSAGES)
COUNT = len(MESSAGES)
Name = tuple[int, str, str, int, str | None]
MORE = 500
"""Compressible, so that batches have more messages than bytes."""
WAYS = {
    "plain": (0, ENCODED, COUNT),
    "compressed": (int(SysFlag.COMPRESSED), zlib.compress(ENCODED), COUNT),
    "shorter than its number of messages": (
        int(SysFlag.COMPRESSED),
        zlib.compress(encode_batch([*MESSAGES, *[MESSAGES[-1]] * (MORE - COUNT)])),
        MORE,
    ),
    "encrypted": (0, encrypt_body(ENCODED, 0, "k1", bytes(32), bytes(12)), COUNT),
}


async def store(peer: Peer, way: str) -> None:
    """Store a message and then the batch."""
    sys_flag, body, count = WAYS[way]
    properties = f"UNIQ_KEY\x01BATCH\x02KEYS\x01all\x02INNER_NUM\x01{count}\x02"
    if way == "encrypted":
        properties += "__ENCRYPTION_KEY\x01k1\x02"
    assert (await peer.send("t", b"before")).code == 0
    fields = send_fields("t", 0, properties) | {"f": INNER_BATCH | sys_flag}
    assert (await peer.call(RequestCode.SEND_MESSAGE_V2, fields, body)).code == 0


async def unpacked_by_the_broker(peer: Peer, end: int) -> list[MessageExt]:
    """Return the messages that a client without support for inner batches receives."""
    found: list[MessageExt] = []
    while len(found) < end:
        fields = {name: str(value) for name, value in pull_fields("t", len(found)).items()}
        answer = await peer.connection.request(RemotingCommand(RequestCode.PULL_MESSAGE, fields, version=0), 10)
        found += decode_messages(answer.body, QUEUE)
    return found[1:]


def names(messages: list[MessageExt]) -> list[Name]:
    """Return all ids and keys of a message."""
    return [
        (m.queue_offset, m.message_id, m.offset_message_id, m.physical_offset, m.properties.get("UNIQ_KEY"))
        for m in messages
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_ids_do_not_depend_on_who_took_the_batch_apart(tmp_path: Path, way: str) -> None:
    end = 1 + WAYS[way][2]
    async with Cluster(tmp_path) as cluster, connected(cluster.broker()) as peer:
        await create_topic(cluster)
        await store(peer, way)
        async with PullConsumer(client_config=client(cluster)) as reader:
            whole = await reader.pull(QUEUE, 1, MORE)
            inside = await reader.pull(QUEUE, 3, MORE)
        expected = names(whole.messages())
        assert [offset for offset, *_ in expected] == list(range(1, end))
        assert [own for *_, own in expected[:4]] == [*OWN_IDS, None]
        assert names([message for batch in whole.batches() for message in batch]) == expected
        behind = names(inside.messages())
        assert behind == expected[2 : 2 + len(behind)]
        if way != "encrypted":
            assert names(await unpacked_by_the_broker(peer, end)) == expected
        async with AdminClient(client_config=client(cluster)) as admin:
            await check_searches(admin, expected, way)


async def check_searches(admin: AdminClient, expected: list[Name], way: str) -> None:
    """Query the messages by all their ids and keys."""
    for key in ("all", "BATCH"):
        found = names(await admin.find_messages("t", key))
        assert len(found) >= COUNT
        assert set(found) <= set(expected)
    if way == "plain":
        for own, name in zip(OWN_IDS, expected, strict=False):
            assert names(await admin.find_messages("t", own)) == [name]
    by_id: dict[str, Name] = {}
    for name in expected:
        by_id.setdefault(name[2], name)
    if len(by_id) < len(
        expected
    ):  # those beyond the bytes of the batch have its offset, which returns the first message
        by_id[expected[-1][2]] = expected[0]
    for offset_id, name in by_id.items():
        there = await admin.message(offset_id)
        assert there is not None
        assert names([there]) == [name]
