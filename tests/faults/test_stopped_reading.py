"""A client that asks for gigabytes and reads nothing: the broker's memory stays bounded, and others notice nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.process_usage import memory
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, encode
from tests.broker.harness import bodies, pull_fields, send_fields
from tests.faults.broker_process import Client, process

BODY = bytes(1 << 20)
STORED = 24
PULLS = 400
GREEDY_CLIENTS = 4
ROUNDS = 100
MOST_BYTES_PER_CLIENT = 24 << 20
"""What one may be owed (4 MiB, then no more of its requests are read), and one answer of 8 MiB on top, twice."""


async def test_memory_is_bounded_and_others_go_on(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    async with process(tmp_path, free_port, {"mappedFileSizeCommitLog": "64M"}) as server:
        for _ in range(STORED):
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("large", 0), BODY)).code == 0
        before = memory(server.pid).anonymous
        writers = [await _greedy(free_port) for _ in range(GREEDY_CLIENTS)]
        most = 0
        for number in range(ROUNDS):
            body = b"message %d" % number
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("small", 0), body)).code == 0
            answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields("small", number, 0))
            assert bodies(answer) == [body]
            most = max(most, memory(server.pid).anonymous)
        for writer in writers:
            writer.transport.abort()
        # nothing is left of them
        assert bodies(await client.call(RequestCode.PULL_MESSAGE, pull_fields("large", STORED - 1, 0))) == [BODY]
    await client.close()
    assert most - before < GREEDY_CLIENTS * MOST_BYTES_PER_CLIENT


async def _greedy(port: int) -> asyncio.StreamWriter:
    """Ask for some gigabytes and read nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    fields = pull_fields("large", 0, 0, count=STORED) | {"maxMsgBytes": 8 << 20}
    asked = RemotingCommand(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})
    writer.write(encode(asked) * PULLS)
    return writer
