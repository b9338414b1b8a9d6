"""Listening sockets of a process without descriptors refuse connections without a busy loop."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raptormq.protocol.command import encode, request
from raptormq.transport.accept import acceptor
from tests.transport.test_transport import ECHO, Peer, serving


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Context in which a descriptor can be opened only after another one was closed."""
    "localhost".encode("idna")  # required by a connection, and loaded by Python on first use
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_free = os.dup(0)
    os.close(next_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def newcomer() -> Iterator[socket.socket]:
    """Return a socket that is not connected yet."""
    with socket.socket() as peer:
        peer.setblocking(False)
        yield peer


def is_paused(peer: Peer) -> bool:
    assert peer.server._listener is not None
    return bool(peer.server._listener._acceptor._paused)


async def connect(peer: socket.socket, server: Peer) -> None:
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", server.server.port))


async def test_who_comes_while_there_is_no_descriptor_is_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    async with serving() as (peer, pool):
        await pool.request(peer.address, request(ECHO), 5)
        with newcomer() as first, newcomer() as second, newcomer() as third:
            with no_descriptor_left():
                for each in (first, second):
                    await connect(each, peer)
                    assert await loop.sock_recv(each, 1) == b""
                assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"
            assert peer.server.refused_count == 2
            await connect(third, peer)
            await loop.sock_sendall(third, encode(request(ECHO)))
            assert await loop.sock_recv(third, 1) != b""
    assert [each for each in caplog.messages if "Too many open files" in each] == [caplog.messages[0]]


async def test_without_a_spare_descriptor_newcomers_wait_and_the_loop_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(acceptor, "_spare", lambda: None)
    monkeypatch.setattr(acceptor, "_PAUSE_S", 0.01)
    async with serving() as (peer, pool):
        await pool.request(peer.address, request(ECHO), 5)
        with newcomer() as waiting:
            with no_descriptor_left():
                await connect(waiting, peer)
                await loop.sock_sendall(waiting, encode(request(ECHO)))
                while not is_paused(peer):
                    await asyncio.sleep(0)
                assert (await pool.request(peer.address, request(ECHO, body=b"x"), 5)).body == b"x"
            assert await loop.sock_recv(waiting, 1) != b""
        assert peer.server.refused_count == 0
    assert caplog.messages == ["cannot accept connections: [Errno 24] Too many open files"]


async def test_a_server_that_is_paused_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "_spare", lambda: None)
    monkeypatch.setattr(acceptor, "_PAUSE_S", 3_600.0)
    async with serving() as (peer, _):
        with newcomer() as waiting:
            with no_descriptor_left():
                await connect(waiting, peer)
                while not is_paused(peer):
                    await asyncio.sleep(0)
            await peer.server.stop()
            with pytest.raises(ConnectionError):
                await asyncio.get_running_loop().sock_recv(waiting, 1)
