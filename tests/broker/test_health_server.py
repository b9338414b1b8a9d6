"""The probe and metrics server: the three pages, and peers that do not behave."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.broker import health_server
from raptormq.broker.health_server import HealthServer, Page
from raptormq.errors import ConfigError


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


async def test_a_port_in_use_is_one_line() -> None:
    server = await started()
    second = HealthServer({}, "127.0.0.1", server.port)
    with pytest.raises(ConfigError, match=f"cannot serve metrics: cannot listen on 127.0.0.1:{server.port}"):
        await second.start()
    await server.stop()
