"""`raptormq produce`: every line is a message; errors that stop it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raptormq.cli.json_line import Outgoing
from raptormq.cli.produce import BATCHES_IN_FLIGHT, MAX_BATCH_BYTES, cut
from raptormq.client import Delay, Message
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.client.scripted_peer import Reply, ScriptedPeer, refuse, route, silence, stored
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def consumed(raptormq: Run, address: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    done = raptormq("consume", topic, "--no-follow", "--format", "json", "-n", address, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("batch", ["1", "7", "32"])
def test_every_line_becomes_one_message(raptormq: Run, dev_server: Any, batch: str) -> None:
    address, topic = dev_server.address("namesrv"), unique("lines")
    lines = [f"line {number}" for number in range(100)]
    done = raptormq("produce", topic, "--batch", batch, "-n", address, stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode() == f"100 messages sent to {topic}\n"
    assert sorted(message["body"] for message in consumed(raptormq, address, topic)) == sorted(lines)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_a_topic_of_a_group_takes_the_lines_one_by_one(raptormq: Run, dev_server: Any, prefix: str) -> None:
    topic = unique(prefix + "again")
    done = raptormq("produce", topic, "-n", dev_server.address("namesrv"), stdin=b"a\nb\nc\nd\ne\n")
    assert (done.returncode, done.stderr) == (0, f"5 messages sent to {topic}\n".encode())


def test_keys_tag_and_a_file(raptormq: Run, dev_server: Any, tmp_path: Path) -> None:
    address, topic = dev_server.address("namesrv"), unique("tagged")
    (tmp_path / "input").write_bytes(b"a\n\xff\n")
    done = raptormq(
        "produce", topic, str(tmp_path / "input"), "--key", "k1", "--key", "k2", "--tag", "t", "-n", address
    )
    assert done.returncode == 0, done.stderr
    messages = consumed(raptormq, address, topic)
    assert [message["keys"] for message in messages] == [["k1", "k2"], ["k1", "k2"]]
    assert {message["tag"] for message in messages} == {"t"}
    assert {message.get("body") or message["body_base64"] for message in messages} == {"a", "/w=="}


def test_empty_lines_are_left_out_and_told(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("gaps")
    done = raptormq("produce", topic, "-n", address, stdin=b"\na\n\nb\n\n")
    assert done.stderr == f"2 messages sent to {topic}, 3 empty lines skipped\n".encode()
    assert sorted(message["body"] for message in consumed(raptormq, address, topic)) == ["a", "b"]


def test_empty_input_sends_nothing(raptormq: Run, dev_server: Any) -> None:
    topic = unique("nothing")
    done = raptormq("produce", topic, "-n", dev_server.address("namesrv"))
    assert (done.returncode, done.stderr) == (0, f"0 messages sent to {topic}\n".encode())


def test_a_topic_name_is_judged_before_the_first_line(raptormq: Run, free_port: int) -> None:
    done = raptormq("produce", "bad topic", "-n", f"127.0.0.1:{free_port}", stdin=b"")
    assert done.returncode == 2
    assert done.stderr.startswith(b"raptormq: ")
    assert done.stderr.count(b"\n") == 1
    assert b"bad topic" in done.stderr


def test_a_line_of_4_mib_and_one_byte_is_refused(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("large")
    done = raptormq("produce", topic, "-n", address, stdin=b"small\n" + b"x" * (4 * 1024 * 1024 + 1))
    assert done.returncode == 2
    assert done.stderr.startswith(b"raptormq: ")
    assert done.stderr.startswith(b"raptormq: line 2: ")
    assert b"4194305" in done.stderr
    assert done.stderr.endswith(b"; sent messages: 1\n")


@pytest.mark.parametrize("batch", ["1", "32"])
def test_nothing_behind_a_refused_line_is_sent(raptormq: Run, dev_server: Any, batch: str) -> None:
    address, topic = dev_server.address("namesrv"), unique("refused")
    lines = [b"1", b"", b"2", b"x" * 5_000_000, *(b"%d" % number for number in range(3, 100))]
    done = raptormq("produce", topic, "--batch", batch, "-n", address, stdin=b"\n".join(lines))
    refused = "raptormq: line 4: a body of 5000000 bytes is larger than 4194304; sent messages: 2\n"
    assert (done.returncode, done.stderr.decode()) == (2, refused)
    assert sorted(message["body"] for message in consumed(raptormq, address, topic)) == ["1", "2"]


async def produced(raptormq: Run, lines: int, *replies: Reply) -> tuple[str, int]:
    """Send this number of lines, one by one. Return the output of the command, and how many the broker has received."""
    async with ScriptedPeer() as server, ScriptedPeer() as broker:
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, broker))
        broker.on(RequestCode.SEND_MESSAGE_V2, *replies)
        command = ["produce", "t", "--batch", "1", "-n", server.address]
        done = await asyncio.to_thread(raptormq, *command, stdin=b"x\n" * lines)
        assert done.returncode == 2
        return done.stderr.decode(), len(broker.received[RequestCode.SEND_MESSAGE_V2])


async def test_a_broker_that_refuses_leaves_no_doubt_where_to_go_on(raptormq: Run) -> None:
    said, _ = await produced(raptormq, 5, stored(), refuse(ResponseCode.MESSAGE_ILLEGAL), stored())
    known = "; all lines before line 2 are sent (1 messages), and 3 messages of later lines; more may be sent\n"
    assert said.endswith(known), said


async def test_after_a_failure_only_what_is_under_way_is_sent(raptormq: Run) -> None:
    said, received = await produced(raptormq, 500, refuse(ResponseCode.MESSAGE_ILLEGAL))
    assert (said.count("\n"), received) == (1, BATCHES_IN_FLIGHT)


@pytest.mark.parametrize(
    ("topic", "part"), [("bad topic", b"characters"), ("SCHEDULE_TOPIC_XXXX", b"reserved for brokers")]
)
def test_a_topic_that_cannot_be_sent_to_is_one_line(raptormq: Run, dev_server: Any, topic: str, part: bytes) -> None:
    done = raptormq("produce", topic, "-n", dev_server.address("namesrv"), stdin=b"x\n")
    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_unreachable_name_server_is_one_line_with_a_hint(raptormq: Run, free_port: int) -> None:
    done = raptormq("produce", "t", "-n", f"127.0.0.1:{free_port}", stdin=b"x\n")
    assert done.returncode == 3
    assert done.stderr.startswith(f"raptormq: no connection to 127.0.0.1:{free_port}".encode())
    assert b"raptormq dev" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_lines_are_sent_as_they_arrive_and_an_interrupt_ends_it(
    raptormq: Run, command_line: Callable[..., list[str]], dev_server: Any
) -> None:
    address, topic = dev_server.address("namesrv"), unique("slow")
    assert raptormq("produce", topic, "-n", address, stdin=b"first\n").returncode == 0
    command = command_line("produce", topic, "-n", address)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"second\nthi")
        process.stdin.flush()
        done = raptormq("consume", topic, "--max", "2", "-n", address)
        assert sorted(done.stdout.split()) == [b"first", b"second"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() in (
            b"interrupted; sent messages: 1\n",
            b"interrupted; no line was confirmed, some may have been sent\n",  # the response has come after the signal
        )


async def test_an_interrupt_tells_which_lines_are_sent(command_line: Callable[..., list[str]]) -> None:
    async with ScriptedPeer() as server, ScriptedPeer() as broker:
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, broker))
        broker.on(RequestCode.SEND_MESSAGE_V2, stored(), silence)
        command = command_line("produce", "t", "--timeout", "600", "-n", server.address)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stderr is not None
        for lines in (b"first\n", b"second\nthi"):
            sent = len(broker.received[RequestCode.SEND_MESSAGE_V2])
            process.stdin.write(lines)
            while len(broker.received[RequestCode.SEND_MESSAGE_V2]) == sent:
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = await process.stderr.read()
        assert await process.wait() == 130
    assert said == b"interrupted; all lines before line 2 are sent (1 messages); more may be sent\n"


def outgoing(size: int, key: str | None = None, delay: Delay | None = None) -> Outgoing:
    return Outgoing(Message("t", b"x" * size, delay=delay), key)


def test_batches_are_cut_by_count_and_by_size() -> None:
    assert [len(batch) for batch in cut([outgoing(1)] * 7, 3)] == [3, 3, 1]
    assert [len(batch) for batch in cut([outgoing(MAX_BATCH_BYTES // 2)] * 5, 100)] == [2, 2, 1]
    assert [len(batch) for batch in cut([outgoing(MAX_BATCH_BYTES + 1)] * 2, 100)] == [1, 1]
    assert list(cut([], 3)) == []


def test_a_batch_has_one_key_and_no_delayed_message() -> None:
    messages = [outgoing(1, "a"), outgoing(1, "a"), outgoing(1, "b"), outgoing(1), outgoing(1, None, Delay.by(1))]
    assert [len(batch) for batch in cut([*messages, outgoing(1)], 100)] == [2, 1, 1, 1, 1]


def test_lines_of_json_have_fields_of_their_own(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("json")
    assert raptormq("topic", "create", topic, "--queues", "8", "-n", address).returncode == 0
    lines: list[dict[str, Any]] = [
        {"body": "für alle", "tag": "paid", "keys": ["k1", "k2"], "properties": {"region": "north"}},
        {"body_base64": "/wA="},
        *({"body": str(number), "sharding_key": f"customer-{number % 3}"} for number in range(30)),
        {"body": "late", "delay_seconds": 0.2},
    ]
    given = b"\n".join(json.dumps(line).encode() for line in lines)
    done = raptormq("produce", topic, "--format", "json", "-n", address, stdin=given)
    assert (done.returncode, done.stderr.decode()) == (0, f"33 messages sent to {topic}\n")
    delivered = raptormq("consume", topic, "--max", "33", "--format", "json", "-n", address)
    messages = [json.loads(line) for line in delivered.stdout.splitlines()]
    first = next(message for message in messages if message.get("body") == "für alle")
    assert (first["tag"], first["keys"], first["properties"]["region"]) == ("paid", ["k1", "k2"], "north")
    assert sum(message.get("body_base64") == "/wA=" for message in messages) == 1
    assert sum(message.get("body") == "late" for message in messages) == 1
    for customer in range(3):
        own = [each for each in messages if each["properties"].get("__SHARDINGKEY") == f"customer-{customer}"]
        assert len({each["queue_id"] for each in own}) == 1
        assert [int(each["body"]) for each in own] == list(range(customer, 30, 3))


def test_what_consume_prints_is_produced_again(raptormq: Run, dev_server: Any) -> None:
    address, topic, copy = dev_server.address("namesrv"), unique("original"), unique("copy")
    sent = ("produce", topic, "--key", "k", "--tag", "t", "--property", "a=b", "-n", address)
    assert raptormq(*sent, stdin=b"1\n2\n3\n").returncode == 0
    printed = raptormq("consume", topic, "--no-follow", "--format", "json", "-n", address).stdout
    assert raptormq("produce", copy, "--format", "json", "-n", address, stdin=printed).returncode == 0
    copied = consumed(raptormq, address, copy)
    assert [(each["body"], each["tag"], each["keys"]) for each in copied] == [(str(n), "t", ["k"]) for n in (1, 2, 3)]
    assert {each["properties"]["a"] for each in copied} == {"b"}
    assert {each["properties"]["__SHARDINGKEY"] for each in copied} == {"k"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x", "not JSON: unexpected character"),
        (b"[1]", "not a JSON object with a body"),
        (b'{"tag": "t"}', "exactly one of the fields body and body_base64 is required"),
        (b'{"body": 1}', "field body must be text, not 1"),
        (b'{"body": "x", "kyes": []}', "unknown field 'kyes'; the fields are body, body_base64, tag"),
        (b'{"body": "x", "keys": "k"}', "field keys must be a list of texts, not 'k'"),
        (b'{"body": "x", "properties": {"a": 1}}', "field properties must be an object whose values are texts"),
        (b'{"body": "x", "delay_seconds": "soon"}', "the delay must be a number of seconds, not 'soon'"),
        (b'{"body": "x", "deliver_at": "soon"}', "field deliver_at: 'soon' is not earliest"),
        (b'{"body": "x", "deliver_at": "latest"}', "field deliver_at must be a time, not 'latest'"),
        (b'{"body_base64": "?"}', "field body_base64 is not base64"),
        (b'{"body": "x", "properties": {"KEYS": "k"}}', "KEYS"),
        (b'{"body": "x", "priority": -1}', "the priority of a message must be a whole number"),
        (b'{"body": "x", "tag": "a||b"}', "a||b"),
    ],
)
def test_a_line_that_is_no_message_is_named(raptormq: Run, dev_server: Any, line: bytes, reason: str) -> None:
    address, topic = dev_server.address("namesrv"), unique("wrong")
    done = raptormq("produce", topic, "--format", "json", "-n", address, stdin=b'{"body": "fine"}\n' + line + b"\n")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert reason in done.stderr.decode()
    assert b"line 2" in done.stderr
    assert [each["body"] for each in consumed(raptormq, address, topic)] == ["fine"]


def test_options_of_all_messages_do_not_go_with_json(raptormq: Run, dev_server: Any) -> None:
    done = raptormq("produce", "t", "--format", "json", "--tag", "x", "-n", dev_server.address("namesrv"), stdin=b"{}")
    assert done.returncode == 2
    assert b"are fields of each line with --format json" in done.stderr


def test_a_reserved_property_is_refused_before_the_first_line(raptormq: Run, dev_server: Any) -> None:
    done = raptormq("produce", "t", "--property", "KEYS=x", "-n", dev_server.address("namesrv"), stdin=b"x\n")
    assert (done.returncode, b"KEYS are reserved" in done.stderr, done.stderr.count(b"\n")) == (2, True, 1)
