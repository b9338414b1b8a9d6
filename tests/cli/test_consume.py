"""`raptormq consume`: its start, its end, and its interruption."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.client import AdminClient, Message, Producer, ProducerConfig
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import send_fields
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]
Command = Callable[..., list[str]]


def produce(raptormq: Run, address: str, topic: str, *lines: str, tag: str = "") -> None:
    options = ["--tag", tag] if tag else []
    done = raptormq("produce", topic, "-n", address, *options, stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr


def lines_of(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.decode().splitlines())


def test_from_earliest_to_the_end(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("all")
    numbers = sorted(map(str, range(500)))
    produce(raptormq, address, topic, *numbers)
    assert lines_of(raptormq("consume", topic, "--no-follow", "-n", address)) == numbers


def test_from_latest_there_is_nothing_yet(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("old")
    produce(raptormq, address, topic, "a", "b")
    assert lines_of(raptormq("consume", topic, "--from", "latest", "--no-follow", "-n", address)) == []


def test_from_a_time(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("timed")
    produce(raptormq, address, topic, "a", "b")
    done = raptormq("consume", topic, "--no-follow", "--format", "json", "-n", address)
    last = max(json.loads(line)["store_timestamp"] for line in done.stdout.splitlines())
    assert lines_of(raptormq("consume", topic, "--no-follow", "--from", "0", "-n", address)) == ["a", "b"]
    later = str(last + 1)
    assert lines_of(raptormq("consume", topic, "--no-follow", "--from", later, "-n", address)) == []


def test_max_ends_it_also_while_following(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("many")
    produce(raptormq, address, topic, *map(str, range(50)))
    assert len(lines_of(raptormq("consume", topic, "--max", "7", "-n", address))) == 7


def test_only_messages_with_the_tag(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("mixed")
    produce(raptormq, address, topic, "a1", "a2", tag="A")
    produce(raptormq, address, topic, "b1", tag="B")
    produce(raptormq, address, topic, "c1")
    assert lines_of(raptormq("consume", topic, "--no-follow", "--tag", "A", "-n", address)) == ["a1", "a2"]
    assert lines_of(raptormq("consume", topic, "--no-follow", "--tag", "A || B", "-n", address)) == ["a1", "a2", "b1"]


async def send_unreadable(namesrv: str, broker: str, topic: str) -> None:
    """Store a message, one with an invalid compressed body, and another message in one queue."""
    async with AdminClient(name_servers=namesrv) as admin:
        await admin.create_topic(topic, 1, 1)
    pool = ConnectionPool()
    for body, flags in ((b"before", 0), (b"not compressed", 0x301), (b"behind", 0)):
        fields = {name: str(value) for name, value in (send_fields(topic) | {"f": flags}).items()}
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)
        assert (await pool.request(broker, command, 10.0)).code == 0
    await pool.close()


async def test_what_cannot_be_read_is_told_of_and_left_out(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    topic, group = unique("partly"), unique("g2")
    await send_unreadable(address, dev_server.address("broker"), topic)
    done = raptormq("consume", topic, "--no-follow", "--group", group, "-n", address)
    assert lines_of(done) == ["before", "behind"]
    assert f"the message at offset 1 of {topic}@".encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert raptormq("consume", topic, "--no-follow", "--group", group, "-n", address).stdout == b""


def test_a_group_goes_on_where_it_stopped(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    topic, group, other = unique("grouped"), unique("g1"), unique("g2")
    numbers = sorted(map(str, range(40)))
    produce(raptormq, address, topic, *numbers)
    command = ["consume", topic, "--group", group, "--no-follow", "-n", address]
    first = lines_of(raptormq(*command, "--max", "15"))
    rest = lines_of(raptormq(*command))
    assert len(first) == 15
    assert sorted(first + rest) == numbers
    assert lines_of(raptormq(*command)) == []
    assert lines_of(raptormq("consume", topic, "--group", other, "--no-follow", "-n", address)) == numbers


@pytest.mark.parametrize("start", ["latest", "2099-01-01T00:00:00Z"])
def test_a_new_group_starts_where_it_is_told_and_that_is_its_position(
    raptormq: Run, dev_server: Any, start: str
) -> None:
    address, topic = dev_server.address("namesrv"), unique("young")
    produce(raptormq, address, topic, "old")
    command = ["consume", topic, "--group", f"of-{topic}", "--no-follow", "-n", address]
    assert lines_of(raptormq(*command, "--from", start)) == []
    produce(raptormq, address, topic, "new")
    assert lines_of(raptormq(*command, "--from", "earliest")) == ["new"]
    assert lines_of(raptormq(*command, "--from", "earliest")) == []


async def test_encrypted_messages_need_keys(raptormq: Run, dev_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, topic = dev_server.address("namesrv"), unique("secret")
    keys = f"k1={base64.b64encode(bytes(32)).decode()}"
    monkeypatch.setenv("RAPTORMQ_ENCRYPTION_KEYS", keys)
    config = ProducerConfig(encrypt=True)
    async with Producer("p", name_servers=address, config=config) as producer:
        await producer.send(Message(topic, b"told"))
    assert lines_of(raptormq("consume", topic, "--no-follow", "-n", address)) == ["told"]
    monkeypatch.delenv("RAPTORMQ_ENCRYPTION_KEYS")
    done = raptormq("consume", topic, "--no-follow", "-n", address)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    for part in (b"'k1'", b"RAPTORMQ_ENCRYPTION_KEYS"):
        assert part in done.stderr
    assert b"RAPTORMQ_ENCRYPTION_KEYS" in raptormq("consume", "--help").stdout


def test_following_prints_what_comes_and_an_interrupt_ends_it(
    raptormq: Run, command_line: Command, dev_server: Any
) -> None:
    address, topic = dev_server.address("namesrv"), unique("live")
    produce(raptormq, address, topic, "first")
    command = command_line("consume", topic, "-n", address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        produce(raptormq, address, topic, "second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_ends_it_silently(raptormq: Run, command_line: Command, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("piped")
    produce(raptormq, address, topic, *(["x" * 1000] * 500))
    command = command_line("consume", topic, "-n", address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.readline()) == 1001
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == b""


def test_an_unknown_topic_is_one_line_with_a_hint(raptormq: Run, dev_server: Any) -> None:
    done = raptormq("consume", "never-created", "-n", dev_server.address("namesrv"))
    assert done.returncode == 4
    assert b"topic never-created" in done.stderr
    assert b"raptormq topic list" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_unreachable_name_server_is_one_line_with_a_hint(raptormq: Run, free_port: int) -> None:
    done = raptormq("consume", "t", "-n", f"127.0.0.1:{free_port}")
    assert done.returncode == 3
    assert b"raptormq dev" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_filters_by_properties_are_the_brokers_and_not_together_with_tags(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("filtered")
    produce(raptormq, address, topic, "a")
    refused = raptormq("consume", topic, "--no-follow", "--sql", "price > 5", "-n", address)
    assert (refused.returncode, b"filter message by SQL92" in refused.stderr) == (2, True)
    assert b"enablePropertyFilter=true" in refused.stderr
    for options, hint in ((["--sql", "price >"], b"not a filter"), (["--sql", "a > 5", "--tag", "A"], b"exclusive")):
        wrong = raptormq("consume", topic, "--no-follow", *options, "-n", address)
        assert (wrong.returncode, hint in wrong.stderr) == (2, True)


def test_a_queue_is_read_from_an_offset(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("offsets")
    assert raptormq("topic", "create", topic, "--queues", "2", "-n", address).returncode == 0
    for queue in range(2):
        lines = b"\n".join(json.dumps({"body": f"{queue}-{n}", "sharding_key": "ba"[queue]}).encode() for n in range(5))
        assert raptormq("produce", topic, "--format", "json", "-n", address, stdin=lines).returncode == 0

    def read(*options: str) -> list[str]:
        done = raptormq("consume", topic, "--no-follow", "-n", address, *options)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.decode().split())

    assert read("--queue", "1", "--offset", "3") == ["1-3", "1-4"]
    assert read("--queue", "broker-a:0", "--offset", "-1") == ["0-4"]
    assert read("--queue", "0", "--queue", "broker-a:0") == [f"0-{n}" for n in range(5)]
    assert read("--offset", "-2") == ["0-3", "0-4", "1-3", "1-4"]
    assert read("--offset", "-99") == read()
    for options, code, complaint in (
        (["--queue", "7"], 4, b"has no queue 7; its queues are broker-a:0, broker-a:1"),
        (["--queue", "other:0"], 4, b"has no queue other:0"),
        (["--queue", ":0"], 2, b"is not [BROKER:]ID"),
        (["--queue", "1", "--offset", "6"], 2, b"offset 6 is out of range: broker-a:1 has offsets 0 to 5"),
        (["--offset", "0", "--from", "latest"], 2, b"--from and --offset are mutually exclusive"),
    ):
        done = raptormq("consume", topic, "--no-follow", "-n", address, *options)
        assert (done.returncode, complaint in done.stderr, done.stderr.count(b"\n")) == (code, True, 1), done.stderr
