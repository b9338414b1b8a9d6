"""Peers that violate the protocol: each gets its error code or is disconnected, and other clients are not affected."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, encode
from raptormq.transport import server as transport_server
from tests.broker.harness import Peer, connected, pull_fields, running, send_fields
from tests.faults.neighbour import neighbour

TWO_GIB = (1 << 31) - 1


async def say(broker: Broker, data: bytes) -> bytes:
    """Send bytes on a new connection. Return the response until the broker closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + bytes([kind]) + len(header).to_bytes(3, "big") + header + body


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        bytes(range(255, -1, -1)) * 64,
        TWO_GIB.to_bytes(4, "big") + b"\0" * 100,
        b"\xff\xff\xff\xff" + b"\0" * 100,
        b"\0\0\0\0",
        (16_777_217).to_bytes(4, "big"),
        frame(b"not json"),
        frame(b"[]"),
        frame(b'{"code":"ten"}'),
        frame(b'{"code":10,"opaque":1,"extFields":[]}'),
        frame(b"\0" * 10, kind=1),
        frame(b"\0\x0a\0\0\0" + b"\xff" * 16, kind=1),
        frame(b"{}", kind=9),
        b"\0\0\0\x08\0\xff\xff\xff{}{}",
    ],
)
async def test_bytes_that_are_no_frame_end_the_connection(tmp_path: Path, data: bytes) -> None:
    async with running(tmp_path) as broker, neighbour(broker):
        assert await say(broker, data) == b""


async def test_random_bytes_end_the_connection(tmp_path: Path) -> None:
    rng = random.Random(3)
    async with running(tmp_path) as broker, neighbour(broker):
        for _ in range(50):
            garbage = bytes([rng.randrange(1, 256)]) + rng.randbytes(rng.randrange(4, 5_000))
            assert await say(broker, garbage) == b""


async def test_half_a_frame_and_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_server, "_IDLE_SWEEP_S", 0.05)
    half = encode(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))[:-3]
    # long enough that the neighbour is not idle for this time on any machine
    async with running(tmp_path, {"serverChannelMaxIdleTimeSeconds": "5"}) as broker, neighbour(broker):
        assert await say(broker, half) == b""


async def test_a_frame_in_single_bytes_is_a_frame(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, neighbour(broker):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for byte in encode(RemotingCommand(9999, opaque=5)):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        length = int.from_bytes(await reader.readexactly(4), "big")
        assert b'"opaque":5' in await reader.readexactly(length)
        writer.close()


@pytest.mark.usefixtures("many_descriptors")
async def test_a_thousand_idle_connections(tmp_path: Path) -> None:
    async with running(tmp_path, {"metricsPort": "0", "metricsHost": "127.0.0.1"}) as broker, neighbour(broker) as busy:
        idle = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(1_000)]
        rounds = busy.rounds
        while busy.rounds < rounds + 20:
            await asyncio.sleep(0)
        for _, writer in idle:
            writer.close()


async def test_connections_beyond_the_limit_are_closed_and_those_within_work(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxConnections": "2"}) as broker, connected(broker) as first:
        assert (await first.send("t", b"x")).code == 0
        async with connected(broker) as second:
            assert (await second.send("t", b"x")).code == 0
            assert await say(broker, b"") == b""
            assert (await first.send("t", b"x")).code == 0


async def test_documented_codes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, neighbour(broker), connected(broker) as peer:
        await peer.send("t", b"x")
        unknown = await peer.call(31_000)
        assert (unknown.code, "31000" in (unknown.remark or "")) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True)
        missing = await peer.call(RequestCode.SEND_MESSAGE_V2, {"b": "t"}, b"x")
        assert (missing.code, "field a of" in (missing.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        missing = await peer.call(RequestCode.PULL_MESSAGE, {"topic": "t"})
        assert (missing.code, "field consumerGroup of" in (missing.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert (await peer.send("t", b"x" * 4_194_305)).code == ResponseCode.MESSAGE_ILLEGAL
        nowhere = await peer.call(RequestCode.SEND_MESSAGE_V2, send_fields("unknown") | {"c": "t"}, b"x")
        assert nowhere.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await peer.pull("unknown", 0)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_random_requests_are_all_answered_and_never_break_a_handler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Send every request code with random fields and bodies. Each gets a response, and none is an internal error."""
    async with running(tmp_path) as broker, neighbour(broker), connected(broker) as peer:
        await peer.send("t", b"x")
        for fields, body in _random_inputs(random.Random(11), 40):
            answers = await asyncio.gather(*(_ask(peer, code, fields, body) for code in RequestCode))
            assert all("internal error" not in (answer.remark or "") for answer in answers), answers
    assert "failed" not in caplog.text


async def _ask(peer: Peer, code: int, fields: dict[str, object], body: bytes) -> RemotingCommand:
    return await peer.call(code, fields, body)


def _random_inputs(rng: random.Random, count: int) -> Iterator[tuple[dict[str, object], bytes]]:
    names = [
        *send_fields("t"),
        *pull_fields("t", 0),
        "commitOffset",
        "timestamp",
        "offset",
        "clientID",
        "group",
        "groupName",
    ]
    names += [
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicFilterType",
        "order",
        "attributes",
        "defaultTopic",
        "maxMsgBytes",
    ]
    values: list[object] = [
        "",
        "t",
        "x" * 300,
        0,
        -1,
        1,
        2**31,
        -(2**63),
        2**63,
        "true",
        "null",
        "*",
        "\x01\x02",
        "é\0",
        "+a=b",
    ]
    texts = [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"clientID":1,"consumerDataSet":[{}]}',
        b'{"mqSet":[{"topic":[]}]}',
        b"{{}:1}",
        b"\xff",
    ]
    sensible = send_fields("t") | pull_fields("t", 0)
    for _ in range(count):
        fields = {name: rng.choice(values) for name in rng.sample(names, rng.randrange(len(names)))}
        yield (
            (sensible | fields if rng.random() < 0.5 else fields),
            rng.choice([*texts, rng.randbytes(rng.randrange(200))]),
        )
