"""kill -9 in the middle of the work: what was acknowledged is there after the restart, in its place."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.errors import TransportError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import SMALL, bodies, messages, pull_fields, send_fields

RAPTORMQ = str(Path(sys.executable).with_name("raptormq"))
SENDERS = 8
QUEUES = 4


@asynccontextmanager
async def process(tmp_path: Path, port: int, flush_disk_type: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A broker process that serves; killed at the end of the block if it still runs."""
    config = tmp_path / "broker.conf"
    pairs = SMALL | {
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": "1M",
        "flushDiskType": flush_disk_type,
        "listenPort": str(port),
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()), encoding="utf-8")
    command = [RAPTORMQ, "broker", "-c", str(config), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            ready = await asyncio.to_thread(server.stdout.readline)
            assert ready.startswith(b"ready"), ready
            yield server
        finally:
            server.kill()


class Client:
    """Requests over a pool that reconnects."""

    def __init__(self, port: int) -> None:
        self._pool = ConnectionPool()
        self._address = f"127.0.0.1:{port}"

    async def call(self, code: int, fields: dict[str, object], body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand(code, {name: str(value) for name, value in fields.items()}, body)
        return await self._pool.request(self._address, command, 10)

    async def close(self) -> None:
        await self._pool.close()


async def produce(client: Client, sender: int, acknowledged: dict[tuple[int, int], bytes]) -> None:
    """Send one message after another until the broker dies."""
    number = 0
    while True:
        body = b"%d:%d:" % (sender, number) + b"x" * (number * 37 % 3_000)
        try:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", sender % QUEUES), body)
        except TransportError:
            return
        assert answer.code == 0, answer
        acknowledged[sender % QUEUES, int(answer.ext_fields["queueOffset"])] = body
        number += 1


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_acknowledged_messages_survive(tmp_path: Path, free_port: int, flush_disk_type: str) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    client = Client(free_port)
    for round_number in range(1, 4):
        async with process(tmp_path, free_port, flush_disk_type) as server:
            producers = [asyncio.ensure_future(produce(client, sender, acknowledged)) for sender in range(SENDERS)]
            while len(acknowledged) < round_number * 400:
                assert not all(producer.done() for producer in producers)
                await asyncio.sleep(0.001)
            server.kill()
            await asyncio.gather(*producers)
    async with process(tmp_path, free_port, flush_disk_type):
        found = {(queue, at): body for queue in range(QUEUES) for at, body in (await read_queue(client, queue)).items()}
    await client.close()
    assert {place: found.get(place) for place in acknowledged} == acknowledged


async def read_queue(client: Client, queue_id: int) -> dict[int, bytes]:
    """Return bodies by queue offset."""
    found: dict[int, bytes] = {}
    while True:
        answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields("t", len(found), queue_id))
        if answer.code:
            return found
        assert bodies(answer)
        found |= {message.queue_offset: message.body for message in messages(answer)}


async def test_a_topic_that_was_answered_for_survives_with_its_first_message(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    for number in range(3):
        async with process(tmp_path, free_port, "ASYNC_FLUSH") as server:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields(f"topic-{number}", 1), b"first")
            assert answer.code == 0
            server.kill()
    async with process(tmp_path, free_port, "ASYNC_FLUSH"):
        for number in range(3):
            answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields(f"topic-{number}", 0, 1))
            assert bodies(answer) == [b"first"]
    await client.close()
