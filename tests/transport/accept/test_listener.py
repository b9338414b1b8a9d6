"""TLS and plain connections on one port: accepted and refused peers, and peers that stall."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.errors import ConfigError, ConnectError, ConnectionClosed
from raptormq.protocol.command import RemotingCommand, encode, request, response_to
from raptormq.transport.accept import listener
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server, ServerLimits
from raptormq.transport.tls.contexts import ClientTls, ServerTls
from tests.certificates import Authority

ECHO, BULK = 1, 2
CHUNK = bytes(range(256)) * 4096


def _bulk(connection: Connection, asked: RemotingCommand, header: None) -> None:
    chunks = [memoryview(CHUNK)[start : start + 1000] for start in range(0, len(CHUNK), 1000)]
    connection.send(response_to(asked), b"", *chunks)


@asynccontextmanager
async def serving(tls: ServerTls | None, limits: ServerLimits | None = None) -> AsyncIterator[Server]:
    router = Router()
    router.add(ECHO, None, lambda connection, asked, header: response_to(asked, body=asked.body))
    router.add(BULK, None, _bulk)
    server = Server(router, "127.0.0.1", 0, limits, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def echo(server: Server, tls: ClientTls | None, body: bytes = b"hello") -> bytes:
    """Send one request on a new connection. Return the body of the response."""
    pool = ConnectionPool(tls=tls)
    try:
        return (await pool.request(f"127.0.0.1:{server.port}", request(ECHO, body=body), 10)).body
    finally:
        await pool.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


def server_tls(authority: Authority, *, enforcing: bool = False) -> ServerTls:
    issued = authority.issue("server")
    return ServerTls(enforcing, str(issued.cert), str(issued.key))


def trusting(authority: Authority) -> ClientTls:
    return ClientTls(str(authority.cert), auth_server=True)


async def test_permissive_takes_both(authority: Authority) -> None:
    async with serving(server_tls(authority)) as server:
        assert await echo(server, None) == b"hello"
        assert await echo(server, trusting(authority)) == b"hello"
        assert await echo(server, ClientTls(str(authority.cert), auth_server=True, check_name=True)) == b"hello"


async def test_enforcing_refuses_plain_connections(authority: Authority) -> None:
    async with serving(server_tls(authority, enforcing=True)) as server:
        with pytest.raises(ConnectionClosed):
            await echo(server, None)
        assert await echo(server, trusting(authority)) == b"hello"


async def test_without_tls_a_handshake_is_refused_and_named(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(None) as server:
        with pytest.raises(ConnectError), caplog.at_level("INFO"):
            await echo(server, trusting(authority))
        assert "it sent a TLS handshake, but TLS is not enabled here" in caplog.text
        assert await echo(server, None) == b"hello"


async def test_a_certificate_for_tests_serves_clients_that_do_not_verify() -> None:
    async with serving(ServerTls()) as server:
        assert await echo(server, ClientTls()) == b"hello"
        with pytest.raises(ConnectError, match=r"(?i)certificate.verify.failed"):
            await echo(server, ClientTls(auth_server=True))


async def test_large_answers_and_empty_buffers_arrive_whole(authority: Authority) -> None:
    async with serving(server_tls(authority)) as server:
        pool = ConnectionPool(tls=trusting(authority))
        address = f"127.0.0.1:{server.port}"
        answers = await asyncio.gather(*(pool.request(address, request(BULK), 20) for _ in range(8)))
        assert all(answer.body == CHUNK for answer in answers)
        assert await echo(server, trusting(authority), CHUNK) == CHUNK
        await pool.close()


async def test_a_certificate_of_another_authority_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    async with serving(server_tls(authority)) as server:
        stranger = Authority(tmp_path, "stranger")
        with pytest.raises(ConnectError, match=r"(?i)certificate.verify.failed"):
            await echo(server, trusting(stranger))


async def test_an_expired_certificate_is_not_trusted(authority: Authority) -> None:
    expired = authority.issue("expired", days=-1)
    async with serving(ServerTls(False, str(expired.cert), str(expired.key))) as server:
        with pytest.raises(ConnectError, match="expired"):
            await echo(server, trusting(authority))
        assert await echo(server, ClientTls()) == b"hello"


async def test_the_name_is_checked_on_demand(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", hosts="DNS:elsewhere.example")
    async with serving(ServerTls(False, str(elsewhere.cert), str(elsewhere.key))) as server:
        assert await echo(server, trusting(authority)) == b"hello"
        with pytest.raises(ConnectError, match=r"(?i)mismatch"):
            await echo(server, ClientTls(str(authority.cert), auth_server=True, check_name=True))


async def test_mutual_tls(authority: Authority, tmp_path: Path) -> None:
    issued, own = authority.issue("server"), authority.issue("client")
    foreign = Authority(tmp_path, "stranger").issue("client")
    late = authority.issue("late", days=-1)
    tls = ServerTls(True, str(issued.cert), str(issued.key), trust_cert_path=str(authority.cert), client_auth="require")
    async with serving(tls) as server:
        assert await echo(server, ClientTls(cert_path=str(own.cert), key_path=str(own.key))) == b"hello"
        for wrong in (foreign, late):
            with pytest.raises((ConnectError, ConnectionClosed)):
                await echo(server, ClientTls(cert_path=str(wrong.cert), key_path=str(wrong.key)))
        with pytest.raises((ConnectError, ConnectionClosed)):
            await echo(server, ClientTls())


async def test_an_optional_certificate_may_be_missing_but_not_wrong(authority: Authority, tmp_path: Path) -> None:
    issued, foreign = authority.issue("server"), Authority(tmp_path, "stranger").issue("client")
    tls = ServerTls(
        True, str(issued.cert), str(issued.key), trust_cert_path=str(authority.cert), client_auth="optional"
    )
    async with serving(tls) as server:
        assert await echo(server, ClientTls()) == b"hello"
        with pytest.raises((ConnectError, ConnectionClosed)):
            await echo(server, ClientTls(cert_path=str(foreign.cert), key_path=str(foreign.key)))


async def test_a_renewed_certificate_counts_for_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    before, after = authority.issue("renewed"), Authority(tmp_path, "successor")
    renewal = after.issue("server")
    async with serving(ServerTls(False, str(before.cert), str(before.key))) as server:
        pool = ConnectionPool(tls=trusting(authority))
        address = f"127.0.0.1:{server.port}"
        await pool.request(address, request(ECHO), 10)
        renewal.copy_to(before)
        assert await echo(server, trusting(after)) == b"hello"
        with pytest.raises(ConnectError):
            await echo(server, trusting(authority))
        await pool.request(address, request(ECHO), 10)  # established connections stay open
        before.cert.write_text("nonsense")
        assert await echo(server, trusting(after)) == b"hello"
        await pool.close()


async def test_half_a_renewal_and_an_expired_one_harm_nobody_who_is_connected(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served, renewal = authority.issue("served"), Authority(tmp_path, "successor").issue("server")
    expired, good = authority.issue("too-old", days=-1), authority.issue("good")
    async with serving(ServerTls(True, str(served.cert), str(served.key))) as server:
        pool = ConnectionPool(tls=trusting(authority))
        address = f"127.0.0.1:{server.port}"
        await pool.request(address, request(ECHO), 10)
        served.cert.write_bytes(renewal.cert.read_bytes())  # its key has not arrived yet
        assert await echo(server, trusting(authority)) == b"hello"
        assert "the previous TLS files stay in use" in caplog.text
        expired.copy_to(served)
        with pytest.raises(ConnectError, match="expired"):
            await echo(server, trusting(authority))
        await pool.request(address, request(ECHO), 10)
        good.copy_to(served)
        assert await echo(server, trusting(authority)) == b"hello"
        await pool.close()


async def test_peers_that_stop_half_way_hold_nobody_up_and_are_dropped(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_S", 3.0)  # enough for the connections that make progress
    async with serving(server_tls(authority), ServerLimits(idle_seconds=3.0)) as server:
        beginnings = [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\0", b"\x16\x03\x01\x00\x05junk!"]
        peers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4 * len(beginnings))]
        for number, (_, writer) in enumerate(peers):
            writer.write(beginnings[number % len(beginnings)])
        assert await echo(server, trusting(authority)) == b"hello"
        assert await echo(server, None) == b"hello"
        for number, (reader, writer) in enumerate(peers):
            if beginnings[number % len(beginnings)] != b"\0":  # that one is a plain connection, which the sweep closes
                await ended(reader)
            writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server has closed the connection, possibly after an alert."""
    try:
        while await reader.read(1000):
            pass
    except ConnectionResetError:
        pass


async def test_peers_without_a_word_count_as_connections(authority: Authority) -> None:
    async with serving(server_tls(authority), ServerLimits(max_connections=2)) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        with pytest.raises((ConnectError, ConnectionClosed)):
            await echo(server, None)
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        while True:
            try:
                assert await echo(server, trusting(authority)) == b"hello"
                break
            except (ConnectError, ConnectionClosed):
                await asyncio.sleep(0.01)


async def test_a_peer_that_resets_before_its_first_byte_leaves_nothing(authority: Authority) -> None:
    async with serving(server_tls(authority)) as server:
        for _ in range(20):
            peer = socket.create_connection(("127.0.0.1", server.port))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
        assert await echo(server, trusting(authority)) == b"hello"
        while server._listener is not None and server._listener.waiting_count:
            await asyncio.sleep(0.01)
        assert server.connection_count <= 1


async def test_stopping_drops_who_has_not_said_anything(authority: Authority) -> None:
    async with serving(server_tls(authority)) as server:
        silent, writer = await asyncio.open_connection("127.0.0.1", server.port)
        half, other = await asyncio.open_connection("127.0.0.1", server.port)
        other.write(b"\x16\x03\x01")
        assert await echo(server, None) == b"hello"
    await ended(silent)
    await ended(half)
    writer.close()
    other.close()


async def test_a_peer_that_does_not_read_is_dropped(authority: Authority) -> None:
    tight = ServerLimits(connection=ConnectionLimits(max_unsent_bytes=1 << 20, hold_reading=True))
    async with serving(server_tls(authority), tight) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context, limit=1)
        while server.connection_count == 0:
            await asyncio.sleep(0.01)
        while server.connection_count:
            writer.write(encode(request(BULK)))
            await asyncio.sleep(0.01)
        writer.transport.abort()


async def test_a_certificate_that_cannot_be_used_stops_the_start(authority: Authority, free_port: int) -> None:
    tls = ServerTls(False, "/nowhere/cert.pem", "/nowhere/key.pem")
    for _ in range(2):  # the port is free again after the first attempt
        with pytest.raises(ConfigError, match=r"cannot read /nowhere/cert\.pem"):
            await Server(Router(), "127.0.0.1", free_port, tls=tls).start()
    async with serving(server_tls(authority)) as server:
        assert server.port
