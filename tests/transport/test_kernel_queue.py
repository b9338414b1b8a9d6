"""The number of sent bytes that the peer has not acknowledged."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from raptormq.protocol.command import RemotingCommand, encode, request, response_to
from raptormq.transport.connection import Connection, unacknowledged_bytes
from raptormq.transport.router import Router
from raptormq.transport.server import Server

MUCH = bytes(16 << 20)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two ends of a connection over the loopback interface. The first is non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        sender.setblocking(False)
        with sender, receiver:
            yield sender, receiver


def read(receiver: socket.socket, size: int) -> None:
    left = size
    while left:
        left -= len(receiver.recv(min(left, 65_536)))


def test_what_is_read_is_acknowledged(ends: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = ends
    sent = sender.send(MUCH)
    assert 0 < sent < len(MUCH)
    assert 0 < unacknowledged_bytes(sender.fileno()) <= sent
    read(receiver, sent)
    receiver.send(b"x")  # with the acknowledgement of everything before it
    sender.setblocking(True)
    assert sender.recv(1) == b"x"
    assert unacknowledged_bytes(sender.fileno()) == 0


def test_a_socket_that_is_closed_has_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    sender, _ = ends
    sender.close()
    assert unacknowledged_bytes(sender.fileno()) == 0


async def test_a_slow_reader_is_seen_to_read() -> None:
    """The kernel, whose buffer is full, does not accept more data yet."""
    made: list[Connection] = []

    def answer(connection: Connection, asked: RemotingCommand, _: Any) -> RemotingCommand:
        made.append(connection)
        return response_to(asked, body=MUCH[: 15 << 20])

    router = Router()
    router.add(1, None, answer)
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", server.port))
        await loop.sock_sendall(peer, encode(request(1)))
        while not made or not made[0].taken_bytes:
            await asyncio.sleep(0.01)
        [connection] = made
        before = connection.read_bytes
        assert before < connection.taken_bytes < connection.sent_bytes
        left = 262_144
        while left:
            left -= len(await loop.sock_recv(peer, min(left, 16_384)))
        while connection.read_bytes - before < 131_072:
            await asyncio.sleep(0.01)
        connection.abort()
    await server.stop()
