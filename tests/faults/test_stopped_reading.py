"""A client that requests gigabytes and reads nothing: the broker's memory is bounded, and other clients are not
affected.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from bench.process_usage import memory
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, encode
from tests.broker.harness import bodies, pull_fields, send_fields
from tests.certificates import Authority
from tests.faults.broker_process import Client, process

BODY = bytes(1 << 20)
STORED = 24
PULLS = 400
GREEDY_CLIENTS = 4
ROUNDS = 100
MAX_BYTES_PER_CLIENT = 24 << 20
"""Limit of unread responses of one connection (4 MiB, after which no more requests are read) and one more response of 8
MiB, twice.
"""
MAX_ENCRYPTED_BYTES = 4 << 20
"""Encrypted data that the peer has not accepted, and the memory of TLS. The rest waits unencrypted in the log."""


@pytest.mark.parametrize("encrypted", [False, True])
async def test_memory_is_bounded_and_others_go_on(tmp_path: Path, free_port: int, *, encrypted: bool) -> None:
    client = Client(free_port)
    settings = {"mappedFileSizeCommitLog": "64M"}
    if encrypted:
        issued = Authority(tmp_path, "authority").issue("broker")
        settings |= {"tls.server.certPath": str(issued.cert), "tls.server.keyPath": str(issued.key)}
    async with process(tmp_path, free_port, settings) as server:
        for _ in range(STORED):
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("large", 0), BODY)).code == 0
        before = memory(server.pid).anonymous
        fields = pull_fields("large", 0, 0, count=STORED) | {"maxMsgBytes": 8 << 20}
        asked = RemotingCommand(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})
        writers = [await _greedy(free_port, asked, encrypted=encrypted) for _ in range(GREEDY_CLIENTS)]
        most = 0
        for number in range(ROUNDS):
            body = b"message %d" % number
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("small", 0), body)).code == 0
            answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields("small", number, 0))
            assert bodies(answer) == [body]
            most = max(most, memory(server.pid).anonymous)
        for writer in writers:
            writer.transport.abort()
        # nothing of them is left
        assert bodies(await client.call(RequestCode.PULL_MESSAGE, pull_fields("large", STORED - 1, 0))) == [BODY]
    await client.close()
    assert most - before < GREEDY_CLIENTS * (MAX_ENCRYPTED_BYTES if encrypted else MAX_BYTES_PER_CLIENT)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}),
        (RequestCode.QUERY_MESSAGE, {"topic": "large", "key": "k", "maxNum": "64"}),
    ],
)
async def test_answers_of_any_kind_are_not_made_before_there_is_room(
    tmp_path: Path, free_port: int, code: RequestCode, fields: dict[str, str]
) -> None:
    """One read can contain requests for hundreds of megabytes."""
    client = Client(free_port)
    async with process(tmp_path, free_port, {"mappedFileSizeCommitLog": "8M"}) as server:
        large = send_fields("large", 0, "KEYS\x01k\x02")
        assert (await client.call(RequestCode.SEND_MESSAGE_V2, large, BODY)).code == 0
        topics = [{"topicName": f"{number:0120}", "perm": 6} for number in range(1_000)]
        created = await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, dumps({"topicConfigList": topics}))
        assert created.code == 0
        before = memory(server.pid).anonymous
        times = {"beginTimestamp": "0", "endTimestamp": str(1 << 62)} if code == RequestCode.QUERY_MESSAGE else {}
        writer = await _greedy(free_port, RemotingCommand(code, fields | times), encrypted=False)
        most = 0
        for _ in range(ROUNDS):
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("small", 0), b"x")).code == 0
            most = max(most, memory(server.pid).anonymous)
        writer.transport.abort()
    await client.close()
    assert most - before < MAX_BYTES_PER_CLIENT


async def _greedy(port: int, asked: RemotingCommand, *, encrypted: bool) -> asyncio.StreamWriter:
    """Send the same request many times, and read nothing."""
    secure: dict[str, ssl.SSLContext] = {}
    if encrypted:
        secure["ssl"] = context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, **secure)  # type: ignore[arg-type]
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(encode(asked) * PULLS)
    return writer
