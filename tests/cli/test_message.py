"""`raptormq message`: find and show."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.client import BlockingProducer, ClientConfig, Message, ProducerConfig, SendResult
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.record import StoredMessage, encode_record
from tests.client.scripted_peer import ScriptedPeer, answer, hang_up, refuse, route
from tests.client.single_key import OneKey
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]

BODIES = [b"17 books", "ein grüner Stift, und noch viel mehr als in die Spalte passt".encode(), b"\xff\x00"]


@pytest.fixture(scope="session")
def address(dev_server: Any) -> str:
    """Name server of the broker with the messages."""
    namesrv: str = dev_server.address("namesrv")
    return namesrv


def create(raptormq: Run, address: str, queue_type: str) -> str:
    """Create a topic of this type and return its name."""
    topic = unique(f"searched-{queue_type}")
    attribute = f"queue.type={queue_type}"
    done = raptormq("topic", "create", topic, "--attribute", attribute, "-n", address)
    assert done.returncode == 0, done.stderr
    return topic


@pytest.fixture(scope="module")
def topic(raptormq: Run, address: str) -> str:
    """Create a topic with one message with the key `all`."""
    topic = create(raptormq, address, "SimpleCQ")
    with BlockingProducer(name_servers=address) as producer:
        producer.send(Message(topic, BODIES[0], keys=("all",)))
    return topic


@pytest.fixture(scope="module", params=["SimpleCQ", "BatchCQ"])
def sent(request: pytest.FixtureRequest, raptormq: Run, address: str) -> SendResult:
    """Send three messages as a list, with the key `all`, an individual key and the key `grün`."""
    topic = create(raptormq, address, request.param)
    listed = [Message(topic, body, "paid", ("all", f"k{n}", "grün"), {"n": str(n)}) for n, body in enumerate(BODIES)]
    with BlockingProducer(name_servers=address) as producer:
        return producer.send_batch(listed)


def found(raptormq: Run, address: str, *arguments: str) -> list[dict[str, Any]]:
    done = raptormq("message", *arguments, "-o", "json", "-n", address)
    assert done.returncode == 0, done.stderr
    messages: list[dict[str, Any]] = json.loads(done.stdout)
    return messages


def test_messages_are_found_by_key_and_by_id(raptormq: Run, address: str, sent: SendResult) -> None:
    topic, ids = sent.queue.topic, sent.message_id.split(",")
    by_key = found(raptormq, address, "find", topic, "grün")
    assert [each["message_id"] for each in by_key] == ids
    assert [each["body"] for each in by_key[:2]] == [body.decode() for body in BODIES[:2]]
    assert base64.b64decode(by_key[2]["body_base64"]) == BODIES[2]
    assert (by_key[1]["queue_offset"], by_key[1]["keys"], by_key[1]["tag"]) == (1, ["all", "k1", "grün"], "paid")
    assert found(raptormq, address, "find", topic, "k1") == by_key[1:2]
    assert found(raptormq, address, "find", topic, ids[1]) == by_key[1:2]
    assert found(raptormq, address, "find", topic, "all", "--count", "2") == by_key[1:]
    assert found(raptormq, address, "show", ids[1], "--topic", topic) == by_key[1:2]
    assert found(raptormq, address, "show", by_key[1]["offset_message_id"]) == by_key[1:2]
    assert found(raptormq, address, "show", by_key[1]["offset_message_id"], "--topic", topic) == by_key[1:2]
    stored = str(by_key[0]["store_timestamp"])
    assert found(raptormq, address, "find", topic, "all", "--from", stored, "--to", stored) == by_key


def test_the_table_has_a_line_for_each(raptormq: Run, address: str, sent: SendResult) -> None:
    done = raptormq("message", "find", sent.queue.topic, "all", "-n", address)
    assert done.returncode == 0, done.stderr
    head, _, *lines = [line for line in done.stdout.decode().splitlines() if line.strip()]
    assert head.split() == ["stored", "broker", "queue", "offset", "message", "id", "tag", "keys", "body"]
    assert [line.split()[4] for line in lines] == ["0", "1", "2"]
    assert [line.split("grün  ", 1)[1].strip() for line in lines] == [
        "17 books",
        "ein grüner Stift, und noch viel mehr al…",
        "(2 bytes)",
    ]


def test_a_message_is_shown_with_its_properties_and_its_body_as_it_is(
    raptormq: Run, address: str, sent: SendResult
) -> None:
    topic, ids = sent.queue.topic, sent.message_id.split(",")
    done = raptormq("message", "show", ids[2], "--topic", topic, "-n", address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"message {ids[2]} of topic {topic}\n".encode())
    assert done.stdout.endswith(b"\n\xff\x00\n")
    assert {tuple(line.split()) for line in done.stdout[: -len(BODIES[2])].decode("utf-8", "replace").splitlines()} >= {
        ("n", "2"),
        ("KEYS", "all", "k2", "grün"),
        ("UNIQ_KEY", ids[2]),
    }


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["find", "TOPIC", "nothing"], "no message of topic TOPIC has the key or id nothing"),
        (
            ["find", "TOPIC", "all", "--to", "1970-01-02"],
            "no message of topic TOPIC has the key or id all and was stored from earliest to 1970-01-02T00:00:00Z",
        ),
        (["find", "TOPIC", ""], "Invalid value for KEY: the key is empty; see raptormq message find --help"),
        (
            ["find", "TOPIC", "all", "--from", "latest"],
            "Invalid value for --from: 'latest' is neither earliest nor a time; see raptormq message find --help",
        ),
        (
            ["find", "TOPIC", "all", "--to", "earliest"],
            "Invalid value for --to: 'earliest' is neither latest nor a time; see raptormq message find --help",
        ),
        (
            ["find", "TOPIC", "all", "--from", "2027-01-01", "--to", "2024-05-01T12:00:00Z"],
            "--from 2027-01-01T00:00:00Z is later than --to 2024-05-01T12:00:00Z; see raptormq message find --help",
        ),
        (["find", "never-created", "k"], "'raptormq topic list' shows the existing topics"),
        (["show", "0A" * 16, "--topic", "TOPIC"], f"no message of topic TOPIC has the id {'0A' * 16}"),
        (["show", "0A" * 16], "for an id that a producer assigned, use --topic"),
        (["show", "k"], "for an id that a producer assigned, use --topic"),
        (
            ["find", "TOPIC", "k", "--count", "65"],
            "65 is not in the range 1<=x<=64; see raptormq message find --help",
        ),
        (["find", "TOPIC"], "Missing argument 'KEY'; see raptormq message find --help"),
    ],
)
def test_what_is_not_there_is_one_line(
    raptormq: Run, address: str, topic: str, arguments: list[str], line: str
) -> None:
    named = [topic if word == "TOPIC" else word for word in arguments]
    done = raptormq("message", *named, "-n", address)
    invalid = line.endswith("--help") or "use --topic" in line
    assert (done.returncode, done.stdout) == (2 if invalid else 4, b"")
    assert done.stderr.decode().startswith("raptormq: ")
    assert done.stderr.decode().endswith(line.replace("TOPIC", topic) + "\n")
    assert done.stderr.count(b"\n") == 1


def test_a_place_where_nothing_is(raptormq: Run, address: str, sent: SendResult) -> None:
    nowhere = sent.offset_message_id.split(",")[0][:16] + "0000FFFFFFFFFFFF"
    done = raptormq("message", "show", nowhere, "-n", address)
    assert (done.returncode, done.stderr.decode()) == (4, f"raptormq: no message has the id {nowhere}\n")
    elsewhere = sent.offset_message_id.split(",")[0]
    done = raptormq("message", "show", elsewhere, "--topic", "TBW102", "-n", address)
    said = f"raptormq: no message of topic TBW102 has the id {elsewhere}\n"
    assert (done.returncode, done.stderr.decode()) == (4, said)


def test_encrypted_messages_want_their_key(raptormq: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = create(raptormq, address, "SimpleCQ")
    client = ClientConfig(address, keys=OneKey())
    with BlockingProducer(config=ProducerConfig(encrypt=True), client_config=client) as producer:
        producer.send(Message(topic, b"secret", keys=("hidden",)))
    done = raptormq("message", "find", topic, "hidden", "-n", address)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"RAPTORMQ_ENCRYPTION_KEYS" in done.stderr
    monkeypatch.setenv("RAPTORMQ_ENCRYPTION_KEYS", f"k1={base64.b64encode(bytes(32)).decode()}")
    [message] = found(raptormq, address, "find", topic, "hidden")
    assert message["body"] == "secret"


async def test_brokers_that_cannot_be_asked_are_named(raptormq: Run) -> None:
    async with ScriptedPeer() as server, ScriptedPeer() as first, ScriptedPeer() as second:
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, first, second))
        first.on(
            RequestCode.QUERY_MESSAGE, answer(body=encode_record(StoredMessage("t", 0, b"17 books", "KEYS\x0117\x02")))
        )
        second.on(RequestCode.QUERY_MESSAGE, hang_up)
        named = f"cannot query broker broker-1: the connection to {second.address} ended before the response\n"

        async def find() -> subprocess.CompletedProcess[bytes]:
            return await asyncio.to_thread(raptormq, "message", "find", "t", "17", "-o", "json", "-n", server.address)

        done = await find()
        assert (done.returncode, [each["body"] for each in json.loads(done.stdout)]) == (0, ["17 books"])
        assert done.stderr.decode() == f"raptormq: {named}"
        first.on(RequestCode.QUERY_MESSAGE, refuse(ResponseCode.QUERY_NOT_FOUND))
        done = await find()
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.decode() == f"raptormq: no message of topic t has the key or id 17; {named}"
