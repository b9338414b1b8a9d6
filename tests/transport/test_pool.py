"""Errors of callers whose connection cannot be opened."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.errors import ConnectError, ConnectionClosed, RequestTimeout
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool, RefuseRequests
from raptormq.transport.server import Server
from raptormq.transport.tls.contexts import ClientTls, ServerTls
from tests.certificates import Authority


class LossCounter(RefuseRequests):
    def __init__(self) -> None:
        self.count = 0

    def closed(self, connection: Connection) -> None:
        self.count += 1


async def test_a_peer_that_hangs_up_on_a_handshake_is_told_of() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        pool = ConnectionPool(tls=ClientTls())
        with pytest.raises(ConnectError, match=rf"^no connection to 127.0.0.1:{port}: \S"):
            await pool.request(f"127.0.0.1:{port}", request(RequestCode.GET_ROUTEINFO_BY_TOPIC), 5.0)
        await pool.close()


@pytest.mark.parametrize("server_tls", [None, ServerTls(), ServerTls(enforcing=True)], ids=["plain", "both", "tls"])
async def test_a_client_in_transition_reaches_servers_with_and_without_tls(server_tls: ServerTls | None) -> None:
    server = Server(RefuseRequests(), "127.0.0.1", 0, tls=server_tls)
    await server.start()
    pool = ConnectionPool(tls=ClientTls(in_transition=True))
    address = f"127.0.0.1:{server.port}"
    answered = await pool.request(address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC), 5.0)
    assert answered.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await pool.close()
    strict = ConnectionPool(tls=ClientTls())
    if server_tls is None:
        with pytest.raises(ConnectError):
            await strict.request(address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC), 5.0)
    await strict.close()
    await server.stop()


async def test_a_server_in_transition_accepts_clients_without_tls_and_without_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    own = authority.issue("server")
    strict = ServerTls(True, str(own.cert), str(own.key), "", str(authority.cert), "require")
    for tls, accepts in ((strict, False), (replace(strict, in_transition=True), True)):
        server = Server(RefuseRequests(), "127.0.0.1", 0, tls=tls)
        await server.start()
        for client in (None, ClientTls()):
            pool = ConnectionPool(tls=client)
            asking = pool.request(f"127.0.0.1:{server.port}", request(RequestCode.GET_ROUTEINFO_BY_TOPIC), 30.0)
            if accepts:
                assert (await asking).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            else:
                with pytest.raises((ConnectError, ConnectionClosed)):
                    await asking
            await pool.close()
        await server.stop()


async def test_a_caller_whose_time_is_over_is_told_so_and_not_of_a_negative_one() -> None:
    pool = ConnectionPool()
    with pytest.raises(RequestTimeout, match=r"^no connection to 127.0.0.1:9 within 0 s$"):
        await pool.request("127.0.0.1:9", request(RequestCode.GET_ROUTEINFO_BY_TOPIC), -0.13)
    await pool.close()


async def test_connections_that_are_gone_are_forgotten() -> None:
    """A broker that returns with another address, like a pod, leaves no state."""
    pool = ConnectionPool()
    for _ in range(5):
        server = Server(RefuseRequests(), "127.0.0.1", 0)
        await server.start()
        address = f"127.0.0.1:{server.port}"
        await pool.request(address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC), 5.0)
        connection = await pool.connection(address)
        await server.stop()
        await connection.wait_closed()
    assert len(pool._made) == 1
    await pool.close()


async def test_a_peer_that_ends_connections_at_once_is_not_asked_at_once_again(free_port: int) -> None:
    """A proxy without a server behind it. A retry after each loss would be a busy loop."""
    accepted = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    lost = LossCounter()
    pool, address = ConnectionPool(lost), f"127.0.0.1:{free_port}"
    ask = request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    told = set[str]()
    async with await asyncio.start_server(hang_up, "127.0.0.1", free_port):
        for _ in range(200):
            with pytest.raises((ConnectError, ConnectionClosed)) as caught:
                await pool.request(address, ask, 60)
            told.add(str(caught.value))
        assert any("it may want TLS, be a proxy without a server, or have too many" in text for text in told)
        assert 2 <= accepted <= 12, "pauses double, so this number would take minutes"
        assert lost.count <= accepted
    server = Server(RefuseRequests(), "127.0.0.1", free_port)
    await server.start()
    answer: RemotingCommand | None = None
    while answer is None:
        try:
            answer = await pool.request(address, ask, 60)
        except ConnectError:
            await asyncio.sleep(0.01)
    for _ in range(5):  # a server that responds gets requests immediately, however often its connections end
        (await pool.connection(address)).abort()
        answer = await pool.request(address, ask, 60)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await pool.close()
    await server.stop()


async def test_a_machine_that_acknowledges_nothing_is_given_up_by_the_kernel() -> None:
    server = Server(RefuseRequests(), "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool(None, ConnectionLimits(unacknowledged_ms=1_234))
    other = ConnectionPool()
    try:
        address = f"127.0.0.1:{server.port}"
        for made, expected in ((await pool.connection(address), 1_234), (await other.connection(address), 0)):
            own: socket.socket = made._transport.get_extra_info("socket")
            with socket.socket(fileno=os.dup(own.fileno())) as same:
                assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == expected
    finally:
        await pool.close()
        await other.close()
        await server.stop()
