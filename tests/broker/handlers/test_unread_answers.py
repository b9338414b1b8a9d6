"""Consumers that do not read their responses: memory stays within its limit, and other clients are served."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, encode
from raptormq.transport.memory import send_budget as answer_budget
from raptormq.transport.server import Server
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import Peer, bodies, connected, pull_fields, running
from tests.client.eventually import eventually

BUDGET = 48 << 20
COUNT = 200
BODY = bytes(60_000)
MUCH = {"maxMsgBytes": 8 << 20, "count": COUNT}
STALLED = 30
NEVER = "86400000"
LONG = 60_000


@asynccontextmanager
async def opened(tmp_path: Path, patience: str = NEVER) -> AsyncIterator[Broker]:
    """Run a broker with 12 MB of messages from before its start, which are copied for each reader."""
    async with running(tmp_path) as broker, connected(broker) as peer:
        for _ in range(COUNT // 20):
            assert (await peer.send_list("t", [BODY] * 20)).code == 0
    settings = {
        "maxUnreadAnswerBytes": str(BUDGET),
        "unreadAnswerPatience": patience,
        "maxTransferBytesOnMessageInMemory": "1M",  # pops may be large
    }
    async with running(tmp_path, settings) as broker:
        yield broker


@asynccontextmanager
async def stalled(broker: Broker, count: int = STALLED) -> AsyncIterator[list[asyncio.Transport]]:
    """Connect this number of consumers that pull 8 MiB each and do not read it, until memory is short."""
    loop = asyncio.get_running_loop()
    fields = pull_fields("t", 0, wait_ms=LONG, count=COUNT) | {"maxMsgBytes": 8 << 20}
    frame = encode(RemotingCommand(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()}))
    transports: list[asyncio.Transport] = []
    for _ in range(count):
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        own.setblocking(False)
        await loop.sock_connect(own, ("127.0.0.1", broker.port))
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=own)
        transport.pause_reading()
        transport.write(frame)
        transports.append(transport)
    try:
        await eventually(lambda: server_of(broker).answer_budget.waiting_count > 0)
        yield transports
    finally:
        for transport in transports:
            transport.abort()


def server_of(broker: Broker) -> Server:
    assert broker._server is not None
    return broker._server


def unread(broker: Broker) -> int:
    """Return the size of the transports' buffers, independently of the budget."""
    return sum(each._transport.get_write_buffer_size() for each in server_of(broker)._connections)


async def test_memory_is_bounded_and_others_are_served(tmp_path: Path) -> None:
    async with opened(tmp_path, "200") as broker, connected(broker) as peer:
        async with stalled(broker):
            large = asyncio.ensure_future(peer.pull("t", 0, wait_ms=LONG, **MUCH))
            number = 0
            while not large.done():
                assert bodies(await peer.pull("t", number % COUNT, count=1)) == [BODY]
                assert unread(broker) <= BUDGET
                assert server_of(broker).answer_budget.held_bytes <= BUDGET
                number += 1
            assert len(bodies(await large)) > COUNT // 2
            assert server_of(broker).answer_budget.closed_count > 0
        await eventually(lambda: not server_of(broker).answer_budget.is_short)
        await eventually(lambda: server_of(broker).answer_budget.held_bytes == 0)


async def test_what_is_in_the_mapped_log_does_not_wait(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker, connected(broker) as peer, stalled(broker):
        assert (await peer.send_list("t", [BODY] * 20)).code == 0
        waiting = server_of(broker).answer_budget.waiting_count
        assert bodies(await peer.pull("t", COUNT, **MUCH)) == [BODY] * 20
        assert server_of(broker).answer_budget.waiting_count == waiting


async def test_a_pull_that_waits_for_too_long_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_budget, "PATIENCE_S", 0.01)
    async with opened(tmp_path) as broker, connected(broker) as peer, stalled(broker):
        answer = await peer.pull("t", 7, **MUCH)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert answer.ext_fields["nextBeginOffset"] == "7"
        assert answer.ext_fields["maxOffset"] == str(COUNT)


async def test_over_an_encrypted_connection_the_mapped_log_needs_room_for_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_budget, "PATIENCE_S", 0.01)
    async with opened(tmp_path) as broker, connected(broker) as peer, stalled(broker):
        assert (await peer.send_list("t", [BODY] * 20, 1)).code == 0
        for each in server_of(broker)._connections:
            each.is_encrypted = True
        assert bodies(await peer.pull("t", 0, 1, **MUCH)) == [BODY] * 20
        assert bodies(await pop(peer, queueId=1)) == [BODY] * 17
        server_of(broker).answer_budget.reserve(BUDGET)
        assert (await peer.pull("t", 0, 1, **MUCH)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (await pop(peer, queueId=1)).code == ResponseCode.POLLING_TIMEOUT


async def test_metrics_tell_what_is_owed(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker, stalled(broker):
        _, page = await broker._pages.by_path()["/metrics"]()
        found = dict(re.findall(r"^raptormq_broker_(\w+){.*} (\S+)$", page.decode(), re.MULTILINE))
        assert BUDGET // 2 < float(found["unread_bytes"]) <= BUDGET
        assert float(found["waiting_reads"]) > 0
        assert float(found["unread_connections_closed_total"]) == 0


async def test_a_pull_whose_client_is_gone_waits_no_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        async with stalled(broker):
            pass
        await eventually(lambda: server_of(broker).answer_budget.waiting_count == 0)
        await eventually(lambda: server_of(broker).answer_budget.held_bytes == 0)


async def test_pops_and_look_ups_wait_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "PATIENCE_S", 0.01)
    async with opened(tmp_path) as broker, connected(broker) as peer:
        place = (await peer.pull("t", 0, count=1)).body[28:36]  # PHYSICALOFFSET of the record
        async with stalled(broker):
            assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
            assert bodies(await pop(peer, maxMsgNums=1)) == [BODY]
            looked_up = await view(peer, place)
            assert (looked_up.code, looked_up.body) == (ResponseCode.SYSTEM_BUSY, b"")
        await eventually(lambda: not server_of(broker).answer_budget.is_short)
        assert len(bodies(await pop(peer))) > 4
        assert bodies(await view(peer, place)) == [BODY]


async def test_a_pop_is_served_when_there_is_room(tmp_path: Path) -> None:
    async with opened(tmp_path, "200") as broker, connected(broker) as peer, stalled(broker):
        assert len(bodies(await pop(peer, pollTime=LONG))) > 4


async def view(peer: Peer, place: bytes) -> RemotingCommand:
    return await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": int.from_bytes(place, "big")})
