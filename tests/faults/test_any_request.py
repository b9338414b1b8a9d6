"""Every request gets a response with a code and a remark, its connection stays open, and other clients are served.

Every code of broker and name server is sent many times with fields that are missing, of the wrong type, at the limits
of their range or of another request, and with bodies that are not JSON, have the wrong structure, or are nested too
deeply. With access control, the same requests change nothing if they are unsigned or lack permissions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol import schema
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from raptormq.protocol.schema import Header
from raptormq.protocol.signing import Credentials, sign
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from tests.broker.harness import Peer, assembly_of, bodies, connected, pull_fields, running, send_fields
from tests.broker.security.rights import ROWS
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, allow, ask, create_alice

ROUNDS = 60
TIMEOUT_S = 10.0
TEXTS = (
    "t", "g", "", "nosuch", "%RETRY%g", "%DLQ%g", "a b", "\u00e9\u4e2d" * 10, "x" * 300, "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "TBW102", "\x01\x02", "null", "{}", "*", "a||b", "1", "-1",
    "a = 1", "SQL92", "TAG", "true", "127.0.0.1:1", "0 1 2 3 4 5 6 7 8", "a%b%c", "7F0000010000",
    "7F00000100002A9F0000000000000000", "DELAY\x01x\x02", "DELAY\x0199999\x02", "TIMER_DELAY_SEC\x01abc\x02",
    "TIMER_DELIVER_MS\x019999999999999999999\x02", "TRAN_MSG\x01true\x02", "INNER_NUM\x013\x02",
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808", "99999999999999999999",
    "abc", "", "1.5", " 1", "1_0", "32",
)  # fmt: skip
BODIES = (
    b"", b"{}", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"{", b'{"a":1}', b"[" * 2000 + b"]" * 2000, b'{"a":' * 500,
    b'{"clientID":5,"producerDataSet":7,"consumerDataSet":[{"groupName":1}]}',
    b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[{"groupName":"silent","consumeType":"X"}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"silent","subscriptionDataSet":[{"topic":null}]}]}',
    b'{"mqSet":[{"topic":"t","brokerName":"b","queueId":"x"}],"consumerGroup":"g","clientId":"c"}',
    b'{"topic":1,"consumerGroup":{},"mqSet":5,"clientId":3}', b'{"offsetTable":{"a@b":{"0":"x"}}}',
    b'{"topicName":"zz","readQueueNums":-5,"writeQueueNums":"q","perm":99}',
    b'{"groupName":"zz","retryQueueNums":-5,"retryMaxTimes":"q"}', b'{"queueNum":1e400}', b"a=b\nc", b"brokerRole",
    b"listenPort=abc\n", encode_batch([(0, b"x", b"")]), b"\0\0\0\1", b"\0" * 64,
)  # fmt: skip
WAITS = {"suspendTimeoutMillis", "pollTime", "timeout"}
"""Fields that make the server wait for messages, which would delay the response."""


class Nobody:
    """A client that receives requests of the server."""

    def handle(self, _: Connection, requests: list[RemotingCommand]) -> None:
        """Do not respond."""

    def closed(self, _: Connection) -> None:
        """Send a oneway request."""


def headers_of(router: Router) -> dict[int, type[Header] | None]:
    return {int(code): header for code, (header, _) in router._handlers.items()}


def fields_of(header: type[Header] | None, chance: random.Random) -> dict[str, str]:
    fields: dict[str, str] = {}
    for _, name, kind, _ in schema._fields(header) if header is not None else ():
        if chance.random() < 0.08:
            continue
        sensible = chance.random() < 0.5
        if name in WAITS:
            fields[name] = "0"
        elif kind is int:
            fields[name] = chance.choice("01" if sensible else NUMBERS)
        elif kind is bool:
            fields[name] = chance.choice(("true", "false", "x"))
        else:
            fields[name] = chance.choice("tg" if sensible else TEXTS)
    return fields


async def ask_everything(
    address: str,
    headers: Mapping[int, type[Header] | None],
    seed: int,
    who: Credentials | None = None,
    rounds: int = ROUNDS,
) -> set[tuple[int, int]]:
    """Return the response codes of each request code."""
    chance = random.Random(seed)
    pool = ConnectionPool(Nobody())
    answered: set[tuple[int, int]] = set()
    try:
        connection = await pool.connection(address)
        for _ in range(rounds):
            for code, header in headers.items():
                fields, body, form = fields_of(header, chance), chance.choice(BODIES), int(chance.random() < 0.3)
                command = RemotingCommand(code, dict(fields), body, serialize_type=form)
                if who is not None:
                    sign(command, who)
                answer = await connection.request(command, TIMEOUT_S)
                assert answer.code == 0 or answer.remark, (code, fields, body, answer)
                assert not (answer.remark or "").startswith("internal error"), (code, fields, body, answer.remark)
                answered.add((code, answer.code))
    finally:
        await pool.close()
    return answered


def broker_headers(broker: Broker) -> dict[int, type[Header] | None]:
    return headers_of(assembly_of(broker).router) | {
        RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
        RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
        RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    }


@pytest.mark.parametrize(("seed", "settings", "who"), [(1, {}, None), (2, SECURED, ALICE)])
async def test_a_broker_answers_every_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, settings: dict[str, str], who: Credentials | None
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("mine", b"before")
    async with running(tmp_path, settings) as broker:
        if who is not None:  # not a super user, whose requests need no permissions
            async with connected(broker) as peer:
                await create_alice(peer)
                await allow(peer, "*", ["All"])
        with caplog.at_level(logging.ERROR):
            await ask_everything(f"127.0.0.1:{broker.port}", broker_headers(broker), seed, who)
        assert [record.getMessage() for record in caplog.records if record.exc_info] == []
        async with connected(broker) as peer:  # not earlier, because a broker closes idle connections
            assert bodies(await ask(peer, who, RequestCode.PULL_MESSAGE, pull_fields("mine", 0))) == [b"before"]
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("mine", 0)) == [b"before"]


SHOWN = (
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_BROKER_CONFIG,
    RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_BROKER_CONSUME_STATS,
)  # fmt: skip
"""Requests whose responses show everything that requests can change, except the log."""


NAMES_NOTHING = {
    int(code)
    for code in (
        RequestCode.SEND_QUEUE_BATCHES,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
    )
}
"""Requests without a resource need no permission. The parts of the first are refused individually, and an empty
deletion is refused with 29.
"""


async def everything(peer: Peer) -> tuple[object, ...]:
    figures = await ask(peer, ROOT, RequestCode.GET_BROKER_RUNTIME_INFO)
    end = json.loads(figures.body)["table"]["commitLogMaxOffset"]
    return end, *[(await ask(peer, ROOT, code)).body for code in SHOWN]


@pytest.mark.parametrize("who", [None, Credentials("root", "guessed"), ALICE])
async def test_a_broker_with_access_control_changes_nothing_for_a_stranger(
    tmp_path: Path, who: Credentials | None
) -> None:
    free = {int(row.code) for row in ROWS if not row.needs} | NAMES_NOTHING if who is ALICE else set()
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        for topic in ("t", "g"):  # the names in most of the requests
            assert (await ask(peer, ROOT, RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x")).code == 0
        before = await everything(peer)
        answered = await ask_everything(f"127.0.0.1:{broker.port}", broker_headers(broker), 3, who, rounds=15)
        assert {code for code, answer in answered if answer != ResponseCode.NO_PERMISSION} <= free
        assert await everything(peer) == before


def name_server(folder: Path, settings: dict[str, str]) -> NameServer:
    pairs = {
        "listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(folder / "kv.json"),
        "authConfigPath": str(folder / "auth"), "configStorePath": str(folder / "namesrv.properties"),
    }  # fmt: skip
    return NameServer(NameServerConfig.from_pairs(pairs | settings))


@pytest.mark.parametrize(("seed", "settings", "who"), [(1, {}, None), (2, {}, None), (3, SECURED, ROOT)])
async def test_a_name_server_answers_every_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, settings: dict[str, str], who: Credentials | None
) -> None:
    server = name_server(tmp_path, settings)
    await server.start()
    try:
        with caplog.at_level(logging.ERROR):
            await ask_everything(server.address, headers_of(server._router), seed, who)
        assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    finally:
        await asyncio.wait_for(server.stop(), TIMEOUT_S)


@pytest.mark.parametrize("who", [None, Credentials("root", "guessed")])
async def test_a_name_server_with_access_control_tells_a_stranger_where_things_are_and_no_more(
    tmp_path: Path, who: Credentials | None
) -> None:
    server = name_server(tmp_path, SECURED)
    await server.start()
    try:
        answered = await ask_everything(server.address, headers_of(server._router), 4, who, rounds=15)
        let_in = {code for code, answer in answered if answer != ResponseCode.NO_PERMISSION}
        assert let_in == {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
    finally:
        await asyncio.wait_for(server.stop(), TIMEOUT_S)
