"""`raptormq convert-queue`: 100,000 messages are converted in both directions while a producer and a consumer run,
brokers are killed during a conversion of 20,000, and the output of the command.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from raptormq.cli.exit_codes import ExitCode
from raptormq.cli.main import run
from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer, QueueConversionState
from raptormq.protocol.codes import RequestCode
from raptormq.storage.conversion import job as conversion_run
from raptormq.storage.conversion import rebuild as queue_conversion
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, route, silence
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]
QUEUES = 4
COUNT = 100_000
AT_ONCE = 1_000
PATIENCE_S = 60.0
"""Time limit of a send: after a shorter one, a stalled machine would store a message twice."""


class Traffic:
    """One producer and one consumer of a topic, and their messages."""

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic
        self.sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        """Bodies by queue, at the offsets in the responses."""
        self.read: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.stopping = False
        self.all_sent = False

    def queue(self, queue_id: int) -> MessageQueue:
        return MessageQueue(self.topic, "broker-a", queue_id)

    async def fill(self, count: int) -> None:
        """Send this number of messages as lists."""
        async with Producer("fillers", name_servers=self.address) as producer:
            for number in range(count // AT_ONCE):
                queue_id = number % QUEUES
                bodies = [b"%d:%d" % (number, each) for each in range(AT_ONCE)]
                messages = [Message(self.topic, body) for body in bodies]
                result = await producer.send_batch(messages, queue=self.queue(queue_id), timeout=PATIENCE_S)
                assert result.queue_offset == len(self.sent[queue_id])
                self.sent[queue_id] += bodies

    async def produce(self) -> None:
        """Send one message after another until the end is requested."""
        async with Producer("singles", name_servers=self.address) as producer:
            number = 0
            while not self.stopping:
                queue_id = number % QUEUES
                body = b"single %d" % number
                result = await producer.send(Message(self.topic, body), queue=self.queue(queue_id), timeout=PATIENCE_S)
                assert result.queue_offset == len(self.sent[queue_id])
                self.sent[queue_id].append(body)
                number += 1
        self.all_sent = True

    async def consume(self) -> None:
        """Read all queues in order from the last positions, until everything that was sent is read."""
        async with PullConsumer(name_servers=self.address) as consumer:
            while not self.all_sent or self.read != self.sent:
                for queue_id, read in self.read.items():
                    result = await consumer.pull(self.queue(queue_id), len(read), 4096, max_bytes=1 << 20)
                    for message in result.messages():
                        assert message.queue_offset == len(read)
                        read.append(message.body)


async def create(address: str, topic: str, **attributes: str) -> None:
    async with AdminClient(name_servers=address) as admin:
        await admin.create_topic(topic, QUEUES, QUEUES, attributes=attributes)


def status(raptormq: Run, address: str, topic: str) -> dict[str, Any]:
    done = raptormq("convert-queue", "--topic", topic, "--status", "-o", "json", "-n", address)
    assert done.returncode == 0, done.stderr
    state: dict[str, Any] = json.loads(done.stdout)["broker-a"]
    return state


async def test_there_and_back_while_the_topic_serves(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("served")
    await create(address, topic)
    traffic = Traffic(address, topic)
    await traffic.fill(COUNT)
    working = [asyncio.ensure_future(traffic.produce()), asyncio.ensure_future(traffic.consume())]
    for queue_type in ("BatchCQ", "SimpleCQ"):
        done = await asyncio.to_thread(
            raptormq, "convert-queue", "--topic", topic, "--to", queue_type, "-o", "json", "-n", address
        )
        assert done.returncode == 0, done.stderr
        state = json.loads(done.stdout)["broker-a"]
        assert (state["phase"], state["queue_type"]) == ("done", queue_type)
        assert state["total"] >= COUNT
        assert len(state["checksum_before"]) == 64
        assert state["checksum_before"] == state["checksum_after"]
        async with AdminClient(name_servers=address) as admin:
            config = await admin.topic_config(dev_server.address("broker"), topic)
        assert config is not None
        assert config.attributes["queue.type"] == queue_type
    traffic.stopping = True
    await asyncio.gather(*working)
    assert traffic.read == traffic.sent
    assert sum(map(len, traffic.sent.values())) > COUNT


async def test_a_killed_broker_goes_on(
    serving: Callable[..., AbstractContextManager[Any]], tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """The first kill follows the response to the order. The others come too late if the conversion is faster."""
    ports = free_ports(2)
    arguments = [f"--namesrv-port={ports[0]}", f"--broker-port={ports[1]}", "--metrics-port=0"]
    with serving("dev", "--data-dir", str(tmp_path), *arguments) as server:
        address = server.address("namesrv")
        await create(address, "killed")
        traffic = Traffic(address, "killed")
        await traffic.fill(20_000)
        async with AdminClient(name_servers=address) as admin:
            state = await admin.convert_queue(server.address("broker"), "killed", "start", "BatchCQ")
        server.process.kill()
        server.process.wait()
    assert state.is_under_way
    for kill_at in (1, 4_000, 12_000, None):
        with serving("dev", "--data-dir", str(tmp_path), *arguments) as server:
            async with AdminClient(name_servers=address) as admin:
                while True:
                    state = await admin.convert_queue(server.address("broker"), "killed", "status")
                    if not state.is_under_way or (kill_at is not None and state.done >= kill_at):
                        break
                    await asyncio.sleep(0.001)
            if state.is_under_way:
                server.process.kill()
                server.process.wait()
            elif kill_at is None:
                assert (state.phase, state.queue_type) == ("done", "BatchCQ")
                traffic.all_sent = True
                await traffic.consume()
    assert traffic.read == traffic.sent


async def test_two_brokers_are_stopped_and_go_on(
    raptormq: Run, command_line: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause after each message makes the first conversion longer than a test may take: only --stop ends it."""
    monkeypatch.setattr(queue_conversion, "SLICE_ROWS", 1)
    monkeypatch.setattr(conversion_run, "_SLICE_S", 0.0)
    monkeypatch.setattr(conversion_run, "_PAUSE_S", 0.1)
    async with Cluster(tmp_path, brokers=2) as cluster:
        address = cluster.name_servers
        async with AdminClient(name_servers=address) as admin, Producer("p", name_servers=address) as producer:
            await admin.create_topic("both", 1, 1)
            for number in range(2):
                queue = MessageQueue("both", f"broker-{number}", 0)
                await producer.send_batch([Message("both", b"x")] * 2_000, queue=queue, timeout=PATIENCE_S)
            words = ("convert-queue", "--topic", "both", "-n", address)
            with subprocess.Popen(
                command_line(*words, "--to", "BatchCQ"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as watching:
                addresses = [cluster.broker(number).address for number in range(2)]
                states: list[QueueConversionState] = []
                while not all(state.phase == "copying" and state.done for state in states) or not states:
                    await asyncio.sleep(0.01)
                    states = [await admin.convert_queue(each, "both", "status") for each in addresses]
                done = await asyncio.to_thread(raptormq, *words, "--status")
                assert done.returncode == 0, done.stderr
                for line, state in zip(done.stdout.decode().splitlines(), states, strict=True):
                    assert line.split(", ")[:2] == [f"{line[:8]}: SimpleCQ to BatchCQ", state.phase]
                done = await asyncio.to_thread(raptormq, *words, "--stop")
                assert done.returncode == 0, done.stderr
                assert [line.split(",")[:2] for line in done.stdout.decode().splitlines()] == [
                    ["broker-0: SimpleCQ to BatchCQ", " stopped"],
                    ["broker-1: SimpleCQ to BatchCQ", " stopped"],
                ]
                stdout, stderr = await asyncio.to_thread(watching.communicate)
                assert watching.returncode == 2
                assert stdout == b""
                assert stderr.decode().endswith(f"raptormq: {'; '.join(done.stdout.decode().splitlines())}\n")
            monkeypatch.undo()
            done = await asyncio.to_thread(raptormq, *words, "--to", "BatchCQ")
            assert done.returncode == 0, done.stderr
            assert done.stdout.count(b"BatchCQ, 2,000 messages, switched at log offset") == 2


CONVERTED = QueueConversionState("t", "BatchCQ", "done", done=7, total=7, switch_offset=9)
MAY_HAVE_IT = "; the broker may have received the request; see raptormq convert-queue t --status"
AT_WORK = QueueConversionState("t", "SimpleCQ", "copying", target="BatchCQ")


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    ("action", "replies", "hint"),
    [
        (["--to", "BatchCQ"], [hang_up], MAY_HAVE_IT),
        (
            ["--to", "BatchCQ"],
            [answer(body=AT_WORK.to_json()), hang_up],
            "; the conversion resumes when the broker is available; see raptormq convert-queue t --status",
        ),
        (["--stop"], [silence], MAY_HAVE_IT),
        (["--status"], [silence], ""),
    ],
)
async def test_a_broker_that_does_not_answer_is_told_of_and_keeps_no_other_from_the_order(
    raptormq: Run, lost: int, action: list[str], replies: list[Reply], hint: str
) -> None:
    async with ScriptedPeer() as server, ScriptedPeer() as first, ScriptedPeer() as second:
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, first, second))
        brokers = [first, second]
        brokers[lost].on(RequestCode.CONVERT_QUEUE, *replies)
        brokers[1 - lost].on(RequestCode.CONVERT_QUEUE, answer(body=CONVERTED.to_json()))
        words = ("convert-queue", "t", *action, "-n", server.address, "--timeout", "1")
        done = await asyncio.to_thread(raptormq, *words)
    said = (
        f"no response from {brokers[lost].address} in time"
        if silence in replies
        else f"the connection to {brokers[lost].address} ended before the response"
    )
    assert done.stderr.decode() == f"raptormq: broker-{lost}: {said}{hint}\n"
    assert done.stdout.decode() == f"broker-{1 - lost}: BatchCQ, 7 messages, switched at log offset 9\n"
    assert done.returncode == 2


GIVEN_UP = QueueConversionState("t", "SimpleCQ", "none")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (answer(17, remark="topic[t] not exist"), "code 17 from {address}: topic[t] not exist"),
        (
            answer(body=GIVEN_UP.to_json()),
            "SimpleCQ, nothing to convert: the conversion was cancelled or the topic was recreated",
        ),
    ],
)
async def test_a_topic_that_is_deleted_or_given_up_meanwhile_is_told_of(raptormq: Run, ended: Reply, said: str) -> None:
    async with ScriptedPeer() as server, ScriptedPeer() as first, ScriptedPeer() as second:
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, first, second))
        first.on(RequestCode.CONVERT_QUEUE, answer(body=AT_WORK.to_json()), ended)
        still = answer(body=AT_WORK.to_json())
        second.on(RequestCode.CONVERT_QUEUE, still, still, still, answer(body=CONVERTED.to_json()))
        done = await asyncio.to_thread(raptormq, "convert-queue", "t", "--to", "BatchCQ", "-n", server.address)
    assert done.stderr.decode() == f"raptormq: broker-0: {said.format(address=first.address)}\n"
    assert done.stdout.decode() == "broker-1: BatchCQ, 7 messages, switched at log offset 9\n"
    assert done.returncode == 2


def test_an_interrupt_leaves_the_brokers_at_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("raptormq.cli.convert_queue.with_admin", interrupted)
    assert run(["convert-queue", "--topic", "t", "--to", "BatchCQ"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "the brokers continue the conversion; see raptormq convert-queue t --status\n"
    assert run(["convert-queue", "--topic", "t", "--status"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_help_has_examples(raptormq: Run) -> None:
    done = raptormq("convert-queue", "--help")
    assert done.returncode == 0
    assert b"raptormq convert-queue --topic orders --to BatchCQ" in done.stdout
    assert b"convert-queue" in raptormq("--help").stdout


def test_what_the_command_says(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("told")
    assert raptormq("topic", "create", topic, "-n", address).returncode == 0
    assert raptormq("produce", topic, "-n", address, stdin=b"a\nb\nc\n").returncode == 0
    done = raptormq("convert-queue", "--topic", topic, "--status", "-n", address)
    assert (done.returncode, done.stdout) == (0, b"broker-a: SimpleCQ, nothing to convert\n")
    done = raptormq("convert-queue", "--topic", topic, "--to", "BatchCQ", "-n", address)
    assert done.returncode == 0, done.stderr
    words = done.stdout.decode()
    assert words.startswith("broker-a: BatchCQ, 3 messages, switched at log offset ")
    before, after = words.rstrip().partition("checksum ")[2].removesuffix(" after").split(" before, ")
    assert (len(before), before) == (16, after)
    done = raptormq("convert-queue", topic, "--to", "BatchCQ", "-n", address)
    assert (done.returncode, done.stdout) == (0, b"broker-a: BatchCQ, nothing to convert\n")
    done = raptormq("topic", "create", topic, "--attribute", "queue.type=SimpleCQ", "-n", address)
    assert done.returncode == 2
    assert b"raptormq convert-queue" in done.stderr


def test_an_inner_batch_is_the_reason(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("whole")

    async def send() -> None:
        await create(address, topic, **{"queue.type": "BatchCQ"})
        async with Producer("wholesale", name_servers=address) as producer:
            await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])

    asyncio.run(send())
    done = raptormq("convert-queue", "--topic", topic, "--to", "SimpleCQ", "-n", address)
    assert (done.returncode, done.stdout) == (2, b"")
    words = done.stderr.decode()
    assert words.startswith("raptormq: broker-a: BatchCQ, not converted: ")
    assert words.count("holds an inner batch of 2 messages at offset 0") == words.count("\n") == 1
    assert status(raptormq, address, topic)["phase"] == "refused"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--topic", "t"], "exactly one of --to, --stop and --status is required"),
        (["--topic", "t", "--to", "BatchCQ", "--stop"], "exactly one of --to, --stop and --status is required"),
        (["--to", "BatchCQ"], "exactly one of TOPIC and --topic is required"),
        (["t", "--topic", "t", "--to", "BatchCQ"], "exactly one of TOPIC and --topic is required"),
        (["--topic", "", "--status"], "The specified topic is blank."),
        (["--topic", "t", "--to", "LightCQ"], "'LightCQ' is not one of"),
        (["--topic", "missing", "--to", "BatchCQ"], "topic missing: it does not exist or no broker that has it is up"),
        (["--topic", "t\udcff", "--status"], "The specified topic contains illegal characters"),
        (["--topic", "TBW102", "--to", "BatchCQ"], "is a system, retry or dead-letter topic and cannot be converted"),
    ],
)
def test_bad_orders_are_one_line(raptormq: Run, dev_server: Any, arguments: list[str], text: str) -> None:
    done = raptormq("convert-queue", *arguments, "-n", dev_server.address("namesrv"))
    assert done.returncode == (4 if "does not exist" in text else 2)
    assert text in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1
