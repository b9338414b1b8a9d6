"""A broker and clients with IPv6 addresses: hosts in records and ids have 16 bytes and a flag."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.protocol.message_id import decode_host, parse_offset_id
from raptormq.protocol.record import StoredMessage, SysFlag
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import Peer, messages, running

V6 = {"bindAddress": "::1", "brokerIP1": "::1"}
BOTH = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


@asynccontextmanager
async def connected_v6(broker: Broker) -> AsyncIterator[Peer]:
    peer = Peer.__new__(Peer)
    pool = ConnectionPool(peer)
    Peer.__init__(peer, await pool.connection(f"[::1]:{broker.port}"))
    try:
        yield peer
    finally:
        await pool.close()


async def stored(peer: Peer, properties: str = "") -> tuple[StoredMessage, str, int]:
    """Send a message and query it by its id. Return the record, the id and the client's port."""
    sent = await peer.send("t", b"x", 0, properties)
    assert sent.code == 0
    offset_id = sent.ext_fields["msgId"]
    (message,) = messages(await peer.call(33, {"offset": parse_offset_id(offset_id).physical_offset}))
    return message, offset_id, int(peer.connection._transport.get_extra_info("sockname")[1])


async def test_both_hosts_are_v6(tmp_path: Path) -> None:
    async with running(tmp_path, V6) as broker, connected_v6(broker) as peer:
        message, offset_id, port = await stored(peer)
        assert message.sys_flag & BOTH == BOTH
        assert (decode_host(message.born_host), decode_host(message.store_host)) == (
            ("::1", port),
            ("::1", broker.port),
        )
        found = parse_offset_id(offset_id)
        assert (len(offset_id), found.host, found.port) == (56, "::1", broker.port)


async def test_only_the_client_is_v6(tmp_path: Path) -> None:
    async with running(tmp_path, {"bindAddress": "::1"}) as broker, connected_v6(broker) as peer:
        message, offset_id, port = await stored(peer)
        assert message.sys_flag & BOTH == int(SysFlag.BORN_HOST_V6)
        assert (decode_host(message.born_host), decode_host(message.store_host)) == (
            ("::1", port),
            ("127.0.0.1", broker.port),
        )
        assert len(offset_id) == 32


async def test_a_half_and_its_commit_keep_the_v6_host(tmp_path: Path) -> None:
    async with running(tmp_path, V6) as broker, connected_v6(broker) as peer:
        half, offset_id, port = await stored(peer, "TRAN_MSG\x01true\x02PGROUP\x01producers\x02")
        fields = {
            "producerGroup": "producers",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": parse_offset_id(offset_id).physical_offset,
            "commitOrRollback": 8,
        }
        assert (await peer.call(37, fields)).code == 0
        (message,) = messages(await peer.pull("t", 0))
        assert (decode_host(message.born_host), message.sys_flag & BOTH) == (("::1", port), BOTH)
