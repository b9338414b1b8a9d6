"""Servers with 1,024 descriptors, and more silent peers than that: they are refused, and other clients are not
affected.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from raptormq.errors import ConnectError, ConnectionClosed
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.descriptors import share
from tests.broker.harness import bodies, pull_fields, send_fields
from tests.faults.broker_process import Client, process, serving

DESCRIPTORS = 1_024
SILENT = 1_100
TOPICS = 60
BODY = b"x" * 50_000

pytestmark = pytest.mark.usefixtures("many_descriptors")


class SilentPeers:
    """Connections that send nothing."""

    def __init__(self, port: int) -> None:
        self._address = "127.0.0.1", port
        self._open = ExitStack()
        self._sockets: list[socket.socket] = []

    async def connect(self, count: int) -> None:
        await asyncio.to_thread(self._connect, count)

    def _connect(self, count: int) -> None:
        for _ in range(count):
            peer = self._open.enter_context(socket.create_connection(self._address, timeout=60))
            peer.setblocking(False)
            self._sockets.append(peer)

    def refused(self) -> int:
        """Return how many the server has closed."""
        return sum(map(_is_closed, self._sockets))

    def leave(self) -> None:
        self._open.close()
        self._sockets.clear()


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def page(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a page of a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), text


async def figure(port: int, name: str, server: str = "broker") -> float:
    """Return one value of /metrics."""
    _, text = await page(port, "/metrics")
    return next(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith((f"raptormq_{server}_{name}{{", f"raptormq_{server}_{name} "))
    )


async def work(client: Client, number: int) -> None:
    """Send messages, from time to time to a new topic, and consume them. This creates files of queues and of the
    log.
    """
    topic, body = f"t{number % TOPICS}", b"%d " % number + BODY
    sent = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic), body)
    assert (sent.code, sent.ext_fields.get("queueOffset")) == (0, str(number // TOPICS)), sent.remark
    pulled = await client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, number // TOPICS))
    assert bodies(pulled) == [body]


async def test_a_broker_refuses_who_is_too_many_and_goes_on(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    port, metrics = free_ports(2)
    settings = {"metricsPort": str(metrics), "metricsHost": "127.0.0.1"}
    async with process(tmp_path, port, settings, descriptors=DESCRIPTORS):
        client, silent, number = Client(port), SilentPeers(port), 0
        await work(client, number)
        limit = int(await figure(metrics, "connections_max"))
        assert limit < DESCRIPTORS
        connecting = asyncio.ensure_future(silent.connect(SILENT))
        while not connecting.done() or silent.refused() < SILENT - limit or number < 2 * TOPICS:
            number += 1
            await work(client, number)
        await connecting
        assert (await page(metrics, "/healthz"), await page(metrics, "/readyz")) == ((200, "ok\n"), (200, "ready\n"))
        assert await figure(metrics, "writable") == 1
        assert await figure(metrics, "connections_refused_total") >= SILENT - limit
        silent.leave()
        while await figure(metrics, "connections") > 1:
            number += 1
            await work(client, number)
        newcomer = Client(port)
        for more in range(1, TOPICS):
            await work(newcomer, number + more)
        await newcomer.close()
        await client.close()


async def test_a_broker_takes_all_the_descriptors_that_it_may_have(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    port, metrics = free_ports(2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # the broker inherits the limit
    try:
        async with process(tmp_path, port, {"metricsPort": str(metrics), "metricsHost": "127.0.0.1"}):
            assert await figure(metrics, "connections_max") == share(hard, 20_000, 16_384).connections > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_peers_at_the_port_of_the_metrics_take_nothing_from_the_broker(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    port, metrics = free_ports(2)
    settings = {"metricsPort": str(metrics), "metricsHost": "127.0.0.1"}
    async with process(tmp_path, port, settings, descriptors=DESCRIPTORS):
        client, silent = Client(port), SilentPeers(metrics)
        await silent.connect(SILENT)
        for number in range(TOPICS):
            await work(client, number)
        assert await page(metrics, "/healthz") == (200, "ok\n")
        silent.leave()
        await client.close()


async def test_a_name_server_refuses_who_is_too_many_and_goes_on(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    port, metrics = free_ports(2)
    settings = {
        "listenPort": str(port),
        "metricsPort": str(metrics),
        "metricsHost": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(tmp_path / "kvConfig.json"),
    }
    config = tmp_path / "namesrv.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    async with serving(["namesrv", "-c", str(config), "--log-level", "error"], descriptors=DESCRIPTORS):
        client, silent, number = Client(port), SilentPeers(port), 0
        limit = int(await figure(metrics, "connections_max", "namesrv"))
        assert limit < DESCRIPTORS
        connecting = asyncio.ensure_future(silent.connect(SILENT))
        assert (await keep(client, number)).code == ResponseCode.SUCCESS
        while not connecting.done() or silent.refused() < SILENT - limit:
            number += 1
            assert (await keep(client, number)).code == ResponseCode.SUCCESS
        await connecting
        assert await figure(metrics, "connections_refused_total", "namesrv") >= SILENT - limit
        silent.leave()
        assert (await first_answer(port, {"namespace": "n", "key": str(number)})).ext_fields["value"] == "v"
        await client.close()


async def first_answer(port: int, fields: dict[str, str]) -> RemotingCommand:
    """Send requests on new connections until the server accepts them again."""
    while True:
        newcomer = Client(port)
        try:
            return await newcomer.call(RequestCode.GET_KV_CONFIG, fields)
        except (ConnectError, ConnectionClosed):
            await asyncio.sleep(0)
        finally:
            await newcomer.close()


async def keep(client: Client, number: int) -> RemotingCommand:
    """Make the name server write a file."""
    return await client.call(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": number, "value": "v"})
