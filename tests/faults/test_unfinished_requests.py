"""Sixty peers that send a part of a large request: memory is bounded, and other clients are not affected."""

from __future__ import annotations

import asyncio
import re
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.process_usage import memory
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, encode
from tests.broker.harness import bodies, pull_fields, send_fields
from tests.certificates import Authority
from tests.faults.broker_process import Client, process

PEERS = 60
ENCRYPTED_PEERS = 30
BEGUN = (16 << 20).to_bytes(4, "big") + bytes(14 << 20)
"""14 MiB of a frame of 16 MiB."""
BUDGET = 64 << 20
HEAP = 24 << 20
"""Other growth of the broker's heap, including fragments that are not returned to the system."""
TLS_BUFFERS = 5 << 19
"""Additional memory of an encrypted connection: usually 1.6 MiB, up to 2.4 MiB if many are read at the same time."""
STEP = 65_536


@pytest.mark.parametrize("encrypted", [False, True])
async def test_memory_is_bounded_others_go_on_and_all_is_mended(
    tmp_path: Path, free_ports: Callable[[int], list[int]], *, encrypted: bool
) -> None:
    free_port, metrics_port = free_ports(2)
    settings = {
        "maxUnfinishedRequestBytes": str(BUDGET),
        "unfinishedRequestPatience": "200",
        "metricsPort": str(metrics_port),
        "metricsHost": "127.0.0.1",
        "mappedFileSizeCommitLog": "16M",
    }
    count = ENCRYPTED_PEERS if encrypted else PEERS
    more = count * TLS_BUFFERS if encrypted else 0
    secure: dict[str, ssl.SSLContext] = {}
    if encrypted:
        issued = Authority(tmp_path, "authority").issue("broker")
        settings |= {"tls.server.certPath": str(issued.cert), "tls.server.keyPath": str(issued.key)}
        secure["ssl"] = context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    client = Client(free_port)
    async with process(tmp_path, free_port, settings) as server:
        assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("small", 0), b"first")).code == 0
        before = memory(server.pid).anonymous
        connecting = (asyncio.open_connection("127.0.0.1", free_port, **secure) for _ in range(count))  # type: ignore[arg-type]
        peers = [await each for each in connecting]
        for _, writer in peers:
            writer.write(BEGUN)
        number, most = 0, 0
        slow = asyncio.ensure_future(_send_slowly(free_port))
        while (
            (kept := await _figure(metrics_port, "unfinished_bytes")) > BUDGET * 3 // 4
            or not slow.done()
            or not (await _figure(metrics_port, "unfinished_connections_closed_total"))
        ):
            number += 1
            body = b"message %d" % number
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("small", 0), body)).code == 0
            assert bodies(await client.call(RequestCode.PULL_MESSAGE, pull_fields("small", number, 0))) == [body]
            most = max(most, memory(server.pid).anonymous)
            assert kept <= BUDGET
        assert b'"code":0' in slow.result()
        for _, writer in peers:
            writer.transport.abort()
        while await _figure(metrics_port, "connections") > 1:  # that of the client
            await asyncio.sleep(0.01)
        assert await _figure(metrics_port, "unfinished_bytes") == 0
        while memory(server.pid).anonymous - before >= HEAP + more:
            await asyncio.sleep(0.05)
    await client.close()
    assert most - before < BUDGET + HEAP + more


async def _send_slowly(port: int) -> bytes:
    """Send a message of 2 MiB in pieces, and again after a disconnection. Return the response."""
    fields = {name: str(value) for name, value in send_fields("slow", 0).items()}
    frame = encode(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, bytes(2 << 20), opaque=7))
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for start in range(0, len(frame), STEP):
                writer.write(frame[start : start + STEP])
                await asyncio.sleep(0.02)
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        except (ConnectionError, asyncio.IncompleteReadError):  # a write to a closed connection fails with EPIPE
            continue
        finally:
            writer.close()


async def _figure(port: int, name: str) -> float:
    page = await asyncio.to_thread(_page, port)
    return float(re.findall(rf"^raptormq_broker_{name}{{.*}} (\S+)$", page, re.MULTILINE)[0])


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read(), "utf-8")
