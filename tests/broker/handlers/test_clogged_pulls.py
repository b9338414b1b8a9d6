"""Pulls of clients that do not read their responses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.errors import StorageError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, decode, encode
from raptormq.protocol.frame import FrameDecoder
from raptormq.storage import MessageStore
from raptormq.storage.read.options import GetResult, ReadOptions
from tests.broker.harness import bodies, connected, pull_fields, running

LONG = 20_000


async def test_a_reader_that_does_not_read_does_not_disturb_others(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"x" * 30_000] * 100)
        lazy = await _lazy_reader(broker.port, pulls=400)
        assert bodies(await peer.pull("t", 99)) == [b"x" * 30_000]
        assert (await peer.send("t", b"y")).code == 0
        lazy.abort()
        assert (await peer.send("t", b"z")).code == 0


async def _woken_while_clogged(tmp_path: Path) -> RemotingCommand:
    """The response to a held pull when a message arrives while other responses fill the connection."""
    async with running(tmp_path) as broker, connected(broker) as producer:
        await producer.send_list("t", [b"x" * 30_000] * 100)
        held = _pull_frame(1, queue_id=1, wait_ms=LONG)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 16)
        writer.write(held + b"".join(_pull_frame(opaque) for opaque in range(2, 60)))
        server = broker._server
        assert server is not None
        while not any(connection.is_clogged for connection in server._connections):
            await asyncio.sleep(0)
        assert (await producer.send("t", b"woken", 1)).code == 0
        answers: dict[int, RemotingCommand] = {}
        decoder = FrameDecoder()
        while len(answers) < 59:
            assert not reader.at_eof()
            for frame in decoder.feed(await reader.read(65_536)):
                answer = decode(frame)
                answers[answer.opaque] = answer
        writer.close()
    return answers[1]


async def test_a_held_pull_of_a_clogged_connection_is_answered_when_there_is_room(tmp_path: Path) -> None:
    assert bodies(await _woken_while_clogged(tmp_path)) == [b"woken"]


async def test_so_it_is_when_it_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = MessageStore.get_messages

    def fails(store: MessageStore, topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
        if queue_id == 1 and store.queue_end(topic, 1):
            raise StorageError("the disk failed")
        return served(store, topic, queue_id, offset, options)

    monkeypatch.setattr(MessageStore, "get_messages", fails)
    answer = await _woken_while_clogged(tmp_path)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "the disk failed")


def _pull_frame(opaque: int, queue_id: int = 0, wait_ms: int = 0) -> bytes:
    fields = pull_fields("t", 0, queue_id, wait_ms) | {"maxMsgBytes": 1 << 20}
    return encode(RemotingCommand(RequestCode.PULL_MESSAGE, {k: str(v) for k, v in fields.items()}, opaque=opaque))


async def _lazy_reader(port: int, pulls: int) -> asyncio.Transport:
    """Request much more than socket buffers can hold, and never read it."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    transport.pause_reading()
    for opaque in range(pulls):
        transport.write(_pull_frame(opaque))
    return transport
