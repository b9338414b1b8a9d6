"""The probe and metrics server: its three pages, and misbehaving peers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from raptormq.errors import ConfigError
from raptormq.transport import http as health_server
from raptormq.transport.http import HealthServer, Page


async def exchange(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


def page(status: int, body: bytes) -> Page:
    async def answer() -> tuple[int, bytes]:
        return status, body

    return answer


async def started() -> HealthServer:
    server = HealthServer({"/healthz": page(200, b"ok\n"), "/readyz": page(503, b"no\n")}, "127.0.0.1", 0)
    await server.start()
    return server


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200 OK"),
        (b"GET /healthz?verbose=1 HTTP/1.1", b"200 OK"),
        (b"GET /readyz HTTP/1.0", b"503 Service Unavailable"),
        (b"GET /other HTTP/1.1", b"404 Not Found"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed"),
        (b"nonsense", b"400 Bad Request"),
    ],
)
async def test_pages(request_line: bytes, status: bytes) -> None:
    server = await started()
    answer = await exchange(server.port, request_line + b"\r\nHost: x\r\n\r\n")
    await server.stop()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert f"Content-Length: {len(body)}".encode() in head


async def test_a_body_is_labelled_by_what_it_is() -> None:
    server = HealthServer({"/state": page(200, b'{"mode":"none"}'), "/metrics": page(200, b"up 1\n")}, "127.0.0.1", 0)
    await server.start()
    assert b"\r\nContent-Type: application/json\r\n" in await exchange(server.port, b"GET /state HTTP/1.1\r\n\r\n")
    assert b"\r\nContent-Type: text/plain; version=0.0.4" in await exchange(
        server.port, b"GET /metrics HTTP/1.1\r\n\r\n"
    )
    await server.stop()


async def test_an_endless_request_is_cut() -> None:
    server = await started()
    assert await exchange(server.port, b"GET /" + b"x" * (health_server.MAX_REQUEST_BYTES * 3)) == b""
    await server.stop()


async def test_a_silent_peer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "REQUEST_S", 0.05)
    server = await started()
    assert await exchange(server.port, b"GET /healthz") == b""
    await server.stop()


async def test_a_request_under_way_ends_with_the_server(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def endless() -> tuple[int, bytes]:
        asked.set()
        await asyncio.Event().wait()
        return 200, b""

    server = HealthServer({"/": endless}, "127.0.0.1", 0)
    await server.start()
    exchanged = asyncio.ensure_future(exchange(server.port, b"GET / HTTP/1.1\r\n\r\n"))
    await asked.wait()
    await server.stop()
    assert await exchanged == b""
    assert not caplog.records


class EndsFirst(HealthServer):
    """A server that stops when a peer connects, before it does anything else."""

    def _take(self, peer: socket.socket) -> None:
        self.stopping = asyncio.ensure_future(self.stop())
        super()._take(peer)


async def test_a_peer_that_comes_with_the_end_is_cut() -> None:
    server = EndsFirst({}, "127.0.0.1", 0)
    await server.start()
    async with asyncio.timeout(10):
        assert await exchange(server.port, b"") == b""
    await server.stopping


class SmallBuffers(HealthServer):
    """A small send buffer, so that nearly all bytes that a peer does not read wait in the process."""

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        self.transport = writer.transport
        await super()._exchange(reader, writer)


@pytest.mark.parametrize("size", [60_000, 1_000_000], ids=["below the high-water mark", "above it"])
@pytest.mark.parametrize("end", ["the time-out", "stop"])
async def test_an_answer_that_is_not_read_is_not_kept(monkeypatch: pytest.MonkeyPatch, size: int, end: str) -> None:
    monkeypatch.setattr(health_server, "REQUEST_S", 3_600 if end == "stop" else 1.0)
    server = SmallBuffers({"/metrics": page(200, b"x" * size)}, "127.0.0.1", 0)
    await server.start()
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", server.port))
        await loop.sock_sendall(peer, b"GET /metrics HTTP/1.1\r\n\r\n")
        await loop.sock_recv(peer, 1)  # the response is being sent
        assert server.transport.get_write_buffer_size() > 0
        try:
            if end == "stop":
                await server.stop()
            async with asyncio.timeout(10):
                while server.transport.get_write_buffer_size():
                    await asyncio.sleep(0)
        finally:
            server.transport.abort()
            await server.stop()


async def test_a_port_in_use_is_one_line() -> None:
    server = await started()
    second = HealthServer({}, "127.0.0.1", server.port)
    with pytest.raises(ConfigError, match=f"cannot serve metrics: cannot listen on 127.0.0.1:{server.port}"):
        await second.start()
    await server.stop()


async def test_peers_without_a_word_keep_no_probe_out() -> None:
    server = await started()
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2 * health_server.MAX_OPEN)]
    answer = await exchange(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert await silent[0][0].read() == b"", "the oldest was closed"
    assert len(server._open) <= health_server.MAX_OPEN
    await server.stop()
    for _, writer in silent:
        writer.close()
