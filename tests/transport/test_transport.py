"""Connections, server, router and pool over real sockets: multiplexing, timeouts, limits, misbehaving peers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from raptormq.errors import (
    ClientClosed,
    ConfigError,
    ConnectError,
    ConnectionClosed,
    DiskFull,
    MessageError,
    RequestTimeout,
)
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand, decode, encode, request, response_to
from raptormq.protocol.frame import FrameDecoder
from raptormq.protocol.headers.offset import QueueRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool, parse_address
from raptormq.transport.router import MAX_ANSWER_BYTES, SINGLES_AT_A_TIME, Refused, Router
from raptormq.transport.server import Server, ServerLimits

ECHO, SLOW, REFUSE, CRASH, FULL, GROUP, BULK, HEADED, CALL_BACK, FAST, OTHER, LARGE = range(1, 13)
MUCH = 8 * 1024 * 1024
ONE_READ = 256_000
ROUNDS_UNTIL_READS_ARE_LONG = 4


class Peer:
    """A server with one handler for each tested behaviour."""

    def __init__(self, limits: ServerLimits | None = None, port: int = 0) -> None:
        self.router = Router()
        self.groups: list[int] = []
        self.gone: asyncio.Queue[Connection] = asyncio.Queue()
        self.never = asyncio.Event()
        router = self.router
        router.add(ECHO, None, lambda connection, asked, header: response_to(asked, body=asked.body))
        router.add(SLOW, None, self._slow)
        router.add(REFUSE, None, self._refuse)
        router.add(CRASH, None, self._crash)
        router.add(FULL, None, self._full)
        router.add(HEADED, QueueRequestHeader, self._headed)
        router.add(BULK, None, self._bulk)
        router.add(CALL_BACK, None, self._call_back)
        router.add_batch_handler({GROUP}, self._group)
        router.on_closed(self.gone.put_nowait)
        self.server = Server(router, "127.0.0.1", port, limits)

    async def _slow(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        await self.never.wait()
        return response_to(asked)

    def _refuse(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        raise Refused(ResponseCode.NO_PERMISSION, "not you")

    def _crash(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        raise MessageError("bad topic") if asked.body else RuntimeError("boom")

    async def _full(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        raise DiskFull("no space")

    def _group(self, connection: Connection, asked: list[RemotingCommand]) -> None:
        self.groups.append(len(asked))
        for one in asked:
            connection.send(response_to(one))

    def _headed(self, connection: Connection, asked: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        return response_to(asked, remark=str(header.queue_id))

    def _bulk(self, connection: Connection, asked: RemotingCommand, header: None) -> None:
        connection.send(response_to(asked), memoryview(b"ab"), memoryview(b"cd"))

    async def _call_back(self, connection: Connection, asked: RemotingCommand, header: None) -> RemotingCommand:
        return response_to(asked, body=(await connection.request(request(77), 5)).body)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def serving(limits: ServerLimits | None = None, port: int = 0) -> AsyncIterator[tuple[Peer, ConnectionPool]]:
    peer = Peer(limits, port)
    await peer.server.start()
    pool = ConnectionPool()
    try:
        yield peer, pool
    finally:
        await pool.close()
        await peer.router.stop()
        await peer.server.stop()


async def test_many_requests_share_a_connection_and_find_their_answers() -> None:
    async with serving() as (peer, pool):
        bodies = [str(n).encode() for n in range(500)]
        answers = await asyncio.gather(*(pool.request(peer.address, request(ECHO, body=body), 5) for body in bodies))
        assert [response.body for response in answers] == bodies
        assert peer.server.connection_count == 1


async def test_answers_of_handlers() -> None:
    async with serving() as (peer, pool):
        expected = [
            (request(REFUSE), ResponseCode.NO_PERMISSION, "not you"),
            (request(CRASH), ResponseCode.SYSTEM_ERROR, "internal error: RuntimeError: boom"),
            (request(CRASH, body=b"x"), ResponseCode.MESSAGE_ILLEGAL, "bad topic"),
            (request(FULL), ResponseCode.SERVICE_NOT_AVAILABLE, "no space"),
            (request(HEADED), ResponseCode.SYSTEM_ERROR, "the required field topic of QueueRequestHeader is missing"),
            (request(HEADED, QueueRequestHeader("t", 3)), ResponseCode.SUCCESS, "3"),
            (request(4711), ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 4711 not supported"),
        ]
        for asked, code, remark in expected:
            response = await pool.request(peer.address, asked, 5)
            assert (response.code, response.remark) == (code, remark)


@pytest.mark.parametrize("beyond", [0, 1])
async def test_an_answer_that_no_frame_holds_is_refused_and_the_connection_lives_on(beyond: int) -> None:
    async with serving() as (peer, pool):
        body = bytes(MAX_ANSWER_BYTES + beyond)
        peer.router.add(LARGE, None, lambda connection, asked, header: response_to(asked, body=body))
        connection = await pool.connection(peer.address)
        found = await connection.request(request(LARGE), 10)
        assert (found.code, len(found.body)) == ((1, 0) if beyond else (0, MAX_ANSWER_BYTES))
        assert not beyond or str(MAX_ANSWER_BYTES) in str(found.remark)
        assert (await connection.request(request(ECHO, body=b"again"), 5)).body == b"again"


async def test_oneway_requests_are_not_answered() -> None:
    async with serving() as (peer, pool):
        connection = await pool.connection(peer.address)
        for code in (ECHO, REFUSE, 4711):
            connection.oneway(request(code, oneway=True))
        response = await connection.request(request(ECHO, body=b"after"), 5)
        assert response.body == b"after"
        assert response.opaque == 4  # the first response on the connection


async def test_what_one_read_brings_is_one_group() -> None:
    async with serving() as (peer, pool):
        connection = await pool.connection(peer.address)
        waiting = [connection.request(request(GROUP), 5) for _ in range(10)]
        await asyncio.gather(*waiting)
        assert sum(peer.groups) == 10
        assert peer.groups[0] == 10


async def test_buffers_are_sent_behind_the_header() -> None:
    async with serving() as (peer, pool):
        assert (await pool.request(peer.address, request(BULK), 5)).body == b"abcd"


async def test_the_server_may_ask_the_client() -> None:
    class Answering:
        def handle(self, connection: Connection, requests: list[RemotingCommand]) -> None:
            for asked in requests:
                connection.send(response_to(asked, body=b"from the client"))

        def closed(self, connection: Connection) -> None: ...

    async with serving() as (peer, _):
        pool = ConnectionPool(Answering())
        assert (await pool.request(peer.address, request(CALL_BACK), 5)).body == b"from the client"
        await pool.close()


async def test_a_request_times_out_and_the_connection_lives_on() -> None:
    async with serving() as (peer, pool):
        with pytest.raises(RequestTimeout):
            await pool.request(peer.address, request(SLOW), 0.05)
        assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"
        assert peer.server.connection_count == 1


async def test_waiting_requests_fail_when_the_server_stops_and_the_pool_reconnects(free_port: int) -> None:
    async with serving(port=free_port) as (peer, pool):
        waiting = asyncio.ensure_future(pool.request(peer.address, request(SLOW), 30))
        await pool.request(peer.address, request(ECHO), 5)
        await peer.server.stop()
        with pytest.raises(ConnectionClosed):
            await waiting
        with pytest.raises(ConnectError):
            await pool.request(peer.address, request(ECHO), 5)
        again = Server(peer.router, "127.0.0.1", peer.server.port)
        await again.start()
        assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"
        await again.stop()


async def test_a_cancelled_caller_does_not_take_the_others_along() -> None:
    async with serving() as (peer, pool):
        first = asyncio.ensure_future(pool.connection(peer.address))
        second = asyncio.ensure_future(pool.connection(peer.address))
        await asyncio.sleep(0)
        first.cancel()
        assert not (await second).is_closed


async def test_a_closed_pool_refuses() -> None:
    async with serving() as (peer, pool):
        await pool.request(peer.address, request(ECHO), 5)
        await pool.close()
        await pool.close()
        with pytest.raises(ClientClosed):
            await pool.request(peer.address, request(ECHO), 5)


async def test_who_waits_for_a_connection_learns_that_the_pool_was_closed() -> None:
    async with serving() as (peer, pool):
        waiting = asyncio.ensure_future(pool.request(peer.address, request(ECHO), 5))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ClientClosed):
            await waiting


async def test_a_name_that_breaks_the_rules_is_a_server_that_cannot_be_reached() -> None:
    pool = ConnectionPool()
    with pytest.raises(ConnectError):
        await pool.connection("name..server:1")
    await pool.close()


async def read_until_closed(peer: Peer, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
    writer.write(data)
    received = await reader.read()
    writer.close()
    await writer.wait_closed()
    return received


GARBAGE = [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\5\2\0\0\0x", b"\0\0\0\4\0\0\0\x63"]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_closes_its_own_connection_only(garbage: bytes) -> None:
    async with serving() as (peer, pool):
        await pool.request(peer.address, request(ECHO), 5)
        assert await read_until_closed(peer, garbage) == b""
        assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"


async def test_silence_ends_after_the_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.transport.server._IDLE_SWEEP_S", 0.05)
    async with serving(ServerLimits(idle_seconds=0.0)) as (peer, _):
        assert await read_until_closed(peer, b"\0\0\1\0half") == b""


async def test_who_has_never_said_a_word_goes_sooner_than_who_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.transport.server._IDLE_SWEEP_S", 0.05)
    async with serving(ServerLimits(idle_seconds=3_600.0, first_word_seconds=0.0)) as (peer, pool):
        spoken = await pool.connection(peer.address)
        await pool.request(peer.address, request(ECHO), 5)
        assert await read_until_closed(peer, b"") == b""
        await pool.request(peer.address, request(ECHO), 5)
        assert await pool.connection(peer.address) is spoken


async def test_an_idle_peer_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.transport.server._IDLE_SWEEP_S", 0.1)
    limits = ConnectionLimits(write_high_water_bytes=1 << 16, hold_reading=True)
    async with serving(ServerLimits(idle_seconds=0.3, connection=limits)) as (peer, _):
        _, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(64):
            writer.write(encode(request(ECHO, body=bytes(1 << 18))))
        async with asyncio.timeout(10):
            await peer.gone.get()
        assert not peer.server.connection_count
        writer.close()


async def test_connections_beyond_the_limit_are_refused() -> None:
    async with serving(ServerLimits(max_connections=1)) as (peer, pool):
        await pool.request(peer.address, request(ECHO), 5)
        assert await read_until_closed(peer, b"") == b""
        assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"


async def test_a_peer_that_does_not_read_is_dropped() -> None:
    limits = ConnectionLimits(max_unsent_bytes=1 << 20, write_high_water_bytes=1 << 16)
    async with serving(ServerLimits(connection=limits)) as (peer, pool):
        _, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(64):
            writer.write(encode(request(ECHO, body=bytes(1 << 18))))
        await peer.gone.get()
        writer.close()
        assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"


async def test_a_peer_that_reads_late_gets_everything() -> None:
    limits = ConnectionLimits(write_high_water_bytes=1 << 16, hold_reading=True)
    async with serving(ServerLimits(connection=limits)) as (peer, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.server.port, limit=1 << 16)
        frame = encode(request(ECHO, body=bytes(1 << 18)))
        sending = asyncio.ensure_future(_write_all(writer, frame, 64))
        answer = encode(response_to(request(ECHO), body=bytes(1 << 18)))
        for _ in range(64):
            assert len(await reader.readexactly(len(answer))) == len(answer)
        await sending
        writer.close()


async def test_many_requests_of_one_read_do_not_hold_up_other_connections() -> None:
    count = 20 * SINGLES_AT_A_TIME
    async with serving() as (peer, _):
        seen: list[int] = []

        def count_it(_: Connection, asked: RemotingCommand, __: None) -> RemotingCommand:
            seen.append(asked.opaque)
            return response_to(asked)

        peer.router.add(20, None, count_it)
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
        other_reader, other = await asyncio.open_connection("127.0.0.1", peer.server.port)
        writer.write(b"".join(encode(RemotingCommand(20, {}, opaque=number)) for number in range(count)))
        other.write(encode(request(ECHO)))
        await other_reader.readexactly(4)
        assert len(seen) < count
        decoder, opaques = FrameDecoder(), list[int]()
        while len(opaques) < count:
            opaques += [decode(frame).opaque for frame in decoder.feed(await reader.read(1 << 16))]
        assert opaques == list(range(count))
        writer.close()
        other.close()


async def _write_all(writer: asyncio.StreamWriter, frame: bytes, count: int) -> None:
    for _ in range(count):
        writer.write(frame)
        await writer.drain()


async def test_a_peer_that_sends_fast_leaves_the_others_their_turn() -> None:
    handled: list[str] = []
    frame = encode(request(FAST, body=bytes(1 << 16), oneway=True))
    async with serving() as (peer, _):
        peer.router.add(FAST, None, lambda connection, asked, header: handled.append("fast"))
        peer.router.add(OTHER, None, lambda connection, asked, header: handled.append("other"))
        place = ("127.0.0.1", peer.server.port)
        with socket.create_connection(place) as fast, socket.create_connection(place) as other:
            fast.settimeout(0)
            unsent = b""
            for _ in range(ROUNDS_UNTIL_READS_ARE_LONG):
                handled.clear()
                while len(handled) * len(frame) < MUCH:
                    unsent = _send_all_that_fits(fast, unsent, frame)
                    await asyncio.sleep(0)
            # From here on the event loop does not run until the kernel has as much data of the fast peer as it accepts.
            handled.clear()
            unsent = _send_all_that_fits(fast, unsent, frame)
            other.send(encode(request(OTHER, oneway=True)))
            while "other" not in handled:
                await asyncio.sleep(0)
    assert handled.index("other") * len(frame) < 2 * ONE_READ


def _send_all_that_fits(to: socket.socket, unsent: bytes, frame: bytes) -> bytes:
    """The rest of the frame that did not fit."""
    with suppress(BlockingIOError):
        while True:
            unsent = unsent or frame
            unsent = unsent[to.send(unsent) :]
    return unsent


async def test_a_port_in_use_is_a_config_error() -> None:
    async with serving() as (peer, _):
        with pytest.raises(ConfigError, match=str(peer.server.port)):
            await Server(peer.router, "127.0.0.1", peer.server.port).start()


def test_addresses() -> None:
    assert parse_address("h:1") == ("h", 1)
    assert parse_address("[::1]:9876") == ("::1", 9876)
    for bad in ("h", "h:", ":1", "h:x", "h:0", "h:65536"):
        with pytest.raises(ConfigError, match="host:port"):
            parse_address(bad)


def test_a_code_has_one_handler() -> None:
    router = Router()
    router.add_batch_handler({1}, lambda connection, requests: None)
    with pytest.raises(ValueError, match="1"):
        router.add(1, None, lambda connection, asked, header: None)
