"""Listen addresses: one address, a name with several addresses, all addresses of the host."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from raptormq.errors import ConfigError
from raptormq.protocol.command import request, response_to
from raptormq.transport.accept.listener import listen
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server
from raptormq.transport.tls.contexts import ServerTls


@pytest.mark.parametrize("tls", [None, ServerTls()], ids=["plain", "tls"])
async def test_all_addresses_are_those_of_both_families(tls: ServerTls | None) -> None:
    router = Router()
    router.add(1, None, lambda connection, asked, header: response_to(asked, remark=connection.peer[0]))
    server = Server(router, "::", 0, tls=tls)
    await server.start()
    pool = ConnectionPool()
    for host, seen_as in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")):
        assert (await pool.request(f"{host}:{server.port}", request(1), 5)).remark == seen_as
    await pool.close()
    await server.stop()


async def test_the_addresses_of_a_name_share_a_port() -> None:
    sockets = await listen("", 0)
    assert len({each.getsockname()[1] for each in sockets}) == 1
    assert {each.family for each in sockets} == {socket.AF_INET, socket.AF_INET6}
    for each in sockets:
        each.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "::1::2"])
async def test_addresses_of_others_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        await listen(host, 0)


async def test_a_taken_port_is_refused(free_port: int) -> None:
    sockets = await listen("127.0.0.1", free_port)
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{free_port}: .*in use"):
        await listen("127.0.0.1", free_port)
    for each in sockets:
        each.close()


@pytest.mark.parametrize("tls", [None, ServerTls()], ids=["plain", "tls"])
async def test_a_second_port_serves_the_same(free_ports: Callable[[int], list[int]], tls: ServerTls | None) -> None:
    router = Router()
    router.add(1, None, lambda connection, asked, header: response_to(asked))
    first, second = free_ports(2)
    server = Server(router, "127.0.0.1", first, tls=tls, second_port=second)
    await server.start()
    pool = ConnectionPool()
    for port in (first, second):
        assert (await pool.request(f"127.0.0.1:{port}", request(1), 5)).code == 0
    assert (server.port, server.connection_count) == (first, 2)
    await pool.close()
    await server.stop()
    for port in (first, second):  # both are free again
        for each in await listen("127.0.0.1", port):
            each.close()


async def test_a_second_port_that_somebody_else_has_is_a_warning(
    free_ports: Callable[[int], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = free_ports(2)
    (taken,) = await listen("127.0.0.1", second)
    server = Server(Router(), "127.0.0.1", first, second_port=second)
    await server.start()
    assert f"port {second} is not served" in caplog.text
    await server.stop()
    taken.close()
