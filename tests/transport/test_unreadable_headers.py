"""A command with text that is not UTF-8 fails alone; its connection stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.errors import CommandError
from raptormq.protocol import command
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand, SerializeType, request, response_to
from raptormq.protocol.frame import FrameDecoder, join_frame
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server

ECHO, ASK = 1, 2


def framed(header: bytes, serialize_type: int = SerializeType.JSON) -> bytes:
    return join_frame(serialize_type, header, 0)


@asynccontextmanager
async def serving(router: Router) -> AsyncIterator[Server]:
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    try:
        yield server
    finally:
        await router.stop()
        await server.stop()


async def answers(data: bytes, count: int) -> dict[int, RemotingCommand]:
    """Send bytes to a server that responds with code 1. Return this number of responses by opaque."""
    router, decoder = Router(), FrameDecoder()
    router.add(ECHO, None, lambda _, asked, __: response_to(asked))
    found: dict[int, RemotingCommand] = {}
    async with serving(router) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        while len(found) < count:
            received = await reader.read(65_536)
            assert received, f"the connection ended after {len(found)} responses"
            found |= {each.opaque: each for each in map(command.decode, decoder.feed(received))}
        writer.close()
        await writer.wait_closed()
    return found


def binary(value: bytes) -> bytes:
    entry = b"\0\1t" + len(value).to_bytes(4, "big") + value
    fixed = (ECHO).to_bytes(2, "big") + b"\0\0\0" + (7).to_bytes(4, "big") + bytes(8)
    return framed(fixed + len(entry).to_bytes(4, "big") + entry, SerializeType.ROCKETMQ)


def of_json(rest: bytes) -> bytes:
    return framed(b'{"code":1,"opaque":7,"flag":0,%b}' % rest)


REQUESTS = {
    "the first half of a character": of_json(rb'"extFields":{"t":"a\ud800"}'),
    "the second half": of_json(rb'"extFields":{"t":"\uDFFFa"}'),
    "behind a whole one": of_json(rb'"extFields":{"t":"\ud83d\ude00\ud83d"}'),
    "behind a backslash": of_json(rb'"extFields":{"t":"\\\ud800"}'),
    "in a key": of_json(rb'"extFields":{"\ud800":"t"}'),
    "in the remark": of_json(rb'"remark":"\ud800"'),
    "in the language": of_json(rb'"language":"\ud800"'),
    "half a character as bytes": of_json(b'"extFields":{"t":"\xed\xa0\x80"}'),
    "no UTF-8": of_json(b'"extFields":{"t":"\xff"}'),
    "half a character, binary": binary(b"\xed\xa0\x80"),
    "no UTF-8, binary": binary(b"\xff"),
}


@pytest.mark.parametrize("data", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_is_refused_and_its_neighbours_are_answered(data: bytes) -> None:
    before, after = (command.encode(RemotingCommand(ECHO, opaque=opaque)) for opaque in (6, 8))
    found = await answers(before + data + after, 3)
    assert {opaque: each.code for opaque, each in found.items()} == {6: 0, 7: ResponseCode.SYSTEM_ERROR, 8: 0}
    assert "UTF-8" in str(found[7].remark)
    assert found[7].serialize_type == data[4]


async def test_a_oneway_request_is_left_out() -> None:
    data = framed(rb'{"code":1,"opaque":7,"flag":2,"extFields":{"t":"\ud800"}}')
    assert list(await answers(data + command.encode(RemotingCommand(ECHO, opaque=8)), 1)) == [8]


async def test_who_waits_for_an_answer_learns_that_it_cannot_be_read() -> None:
    def half(connection: Connection, asked: RemotingCommand, _: None) -> None:
        flag = int(CommandFlag.RESPONSE)
        connection.send_raw(framed(rb'{"code":0,"opaque":%d,"flag":%d,"remark":"\ud800"}' % (asked.opaque, flag)))

    router, pool = Router(), ConnectionPool()
    router.add(ECHO, None, lambda _, asked, __: response_to(asked))
    router.add(ASK, None, half)
    async with serving(router) as server:
        connection = await pool.connection(f"127.0.0.1:{server.port}")
        with pytest.raises(CommandError, match="UTF-8"):
            await connection.request(request(ASK), 60)
        assert (await connection.request(request(ECHO), 60)).code == 0
        await pool.close()


@pytest.mark.parametrize(
    "data",
    [
        framed(rb'{"code":1,"opaque":"\ud800","flag":0}'),
        framed(rb'{"code":1,"opaque":7,"flag":0,"extFields":["\ud800"]}'),
        framed(rb'{"code":1,"opaque":7,"flag":0,"extFields":{"t":"\ud80"}}'),
        framed(rb'["\ud800"]'),
    ],
)
async def test_what_is_no_header_either_way_ends_the_connection(data: bytes) -> None:
    async with serving(Router()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
