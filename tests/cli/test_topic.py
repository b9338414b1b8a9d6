"""`raptormq topic`: create, list, describe, delete."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.topic import _refuse_hiding
from raptormq.client import AdminClient, MessageQueue, TopicOffset
from raptormq.protocol.bodies.route import QueueData, TopicRoute
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def listed(raptormq: Run, address: str, *options: str) -> list[str]:
    done = raptormq("topic", "list", "-o", "json", "-n", address, *options)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return names


def described(raptormq: Run, address: str, topic: str) -> dict[str, Any]:
    done = raptormq("topic", "describe", topic, "-o", "json", "-n", address)
    assert done.returncode == 0, done.stderr
    description: dict[str, Any] = json.loads(done.stdout)
    return description


def test_the_life_of_a_topic(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("life")
    done = raptormq("topic", "create", topic, "--queues", "3", "--attribute", "message.type=FIFO", "-n", address)
    assert (done.returncode, done.stdout) == (0, f"topic {topic} is created\n".encode()), done.stderr
    assert topic in listed(raptormq, address)
    done = raptormq("produce", topic, "-n", address, stdin=b"a\nb\n")
    assert done.returncode == 0, done.stderr
    life = described(raptormq, address, topic)
    assert life["messages"] == 2
    assert [queue["queue_id"] for queue in life["queues"]] == [0, 1, 2]
    assert life["brokers"]["broker-a"]["perm"] == "rw"
    assert life["brokers"]["broker-a"]["attributes"]["message.type"] == "FIFO"
    assert b"2 messages" in raptormq("topic", "describe", topic, "-n", address).stdout
    refused = raptormq("topic", "delete", topic, "-n", address)
    assert (refused.returncode, b"confirm with --yes" in refused.stderr) == (2, True)
    assert topic in listed(raptormq, address)
    done = raptormq("topic", "delete", topic, "--yes", "-n", address)
    assert (done.returncode, done.stdout) == (0, f"topic {topic} is deleted\n".encode()), done.stderr
    assert topic not in listed(raptormq, address)


def test_changing_a_topic_keeps_it(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("changed")
    assert raptormq("topic", "create", topic, "--queues", "2", "-n", address).returncode == 0
    done = raptormq("topic", "create", topic, "--read-queues", "4", "--write-queues", "2", "--perm", "r", "-n", address)
    assert (done.returncode, done.stdout) == (0, f"topic {topic} is changed\n".encode()), done.stderr
    broker = described(raptormq, address, topic)["brokers"]["broker-a"]
    assert (broker["read_queues"], broker["write_queues"], broker["perm"]) == (4, 2, "r")


def test_what_is_not_named_stays_as_it_is(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("kept")
    named = ["--queues", "16", "--perm", "r", "--order", "--attribute", "message.type=FIFO"]
    assert raptormq("topic", "create", topic, *named, "-n", address).returncode == 0
    before = described(raptormq, address, topic)["brokers"]["broker-a"]
    assert (before["read_queues"], before["write_queues"], before["perm"], before["order"]) == (16, 16, "r", True)
    done = raptormq("topic", "create", topic, "-n", address)
    assert (done.returncode, done.stdout) == (0, f"topic {topic} is unchanged\n".encode()), done.stderr
    assert described(raptormq, address, topic)["brokers"]["broker-a"] == before
    done = raptormq("topic", "create", topic, "--write-queues", "4", "--no-order", "-n", address)
    assert (done.returncode, done.stdout) == (0, f"topic {topic} is changed\n".encode()), done.stderr
    after = described(raptormq, address, topic)["brokers"]["broker-a"]
    assert after == before | {"write_queues": 4, "order": False}


def test_messages_are_not_hidden_unasked(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("shrink")
    assert raptormq("topic", "create", topic, "--queues", "16", "-n", address).returncode == 0
    lines = "\n".join(map(str, range(320))).encode()
    assert raptormq("produce", topic, "--batch", "10", "-n", address, stdin=lines).returncode == 0
    hidden = sum(queue["max_offset"] for queue in described(raptormq, address, topic)["queues"][8:])
    assert hidden > 0
    for option in ("--queues", "--read-queues"):
        done = raptormq("topic", "create", topic, option, "8", "-n", address)
        assert done.returncode == 2
        assert f"8 read queues of topic {topic} would hide {hidden} messages; reduce".encode() in done.stderr
        assert (done.stderr.count(b"\n"), b"--yes" in done.stderr) == (1, True)
    for changes in (["--write-queues", "8"], ["--read-queues", "32"], ["--attribute", "message.type=NORMAL"]):
        assert raptormq("topic", "create", topic, *changes, "-n", address).returncode == 0
    assert described(raptormq, address, topic)["messages"] == 320
    assert raptormq("topic", "create", topic, "--read-queues", "16", "-n", address).returncode == 0  # 16 are empty
    assert raptormq("topic", "create", topic, "--queues", "8", "--yes", "-n", address).returncode == 0
    assert described(raptormq, address, topic)["messages"] == 320 - hidden


def test_what_differs_from_broker_to_broker_is_told_of_each(
    raptormq: Run, serving: Callable[..., AbstractContextManager[Any]], tmp_path: Path
) -> None:
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]
    settings = tmp_path / "broker.conf"
    # A separate cluster, because other tests would see the second broker, also for some time after its end.
    with serving("dev", "--data-dir", str(tmp_path / "dev"), *ports) as dev_server:
        address = dev_server.address("namesrv")
        assert raptormq("topic", "create", "spread", "--queues", "3", "-n", address).returncode == 0
        settings.write_text(
            f"brokerName=broker-b\nlistenPort=0\nbrokerIP1=127.0.0.1\nnamesrvAddr={address}\n"
            f"storePathRootDir={tmp_path / 'store'}\nmetricsPort=-1\n"
        )
        with serving("broker", "-c", str(settings)):
            done = raptormq("topic", "create", "spread", "--queues", "3", "-n", address)
            assert done.returncode == 0, done.stderr
            created, already = done.stdout.decode().splitlines()
            assert already == f"topic spread is unchanged on {dev_server.address('broker')}"
            assert created.startswith("topic spread is created on 127.0.0.1:")


def test_attributes_may_be_written_as_for_mqadmin(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("whole")
    done = raptormq("topic", "create", topic, "--attribute", "+queue.type=BatchCQ", "-n", address)
    assert done.returncode == 0, done.stderr
    assert described(raptormq, address, topic)["brokers"]["broker-a"]["attributes"] == {"queue.type": "BatchCQ"}


def test_an_attribute_that_is_given_twice_is_one_line(raptormq: Run) -> None:
    twice = ("--attribute", "queue.type=SimpleCQ", "--attribute", "+queue.type=BatchCQ")
    done = raptormq("topic", "create", "t", *twice, "-n", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr == b"raptormq: --attribute queue.type is given twice; see raptormq topic create --help\n"


def test_system_topics_are_listed_on_demand(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    shown, everything = listed(raptormq, address), listed(raptormq, address, "--all")
    assert "TBW102" in everything
    assert not {"TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} & set(shown)
    assert set(shown) < set(everything)


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_an_unknown_topic_is_one_line(raptormq: Run, dev_server: Any, command: str) -> None:
    done = raptormq("topic", command, "never-created", "-n", dev_server.address("namesrv"))
    assert done.returncode == 4
    assert b"topic never-created: it does not exist or no broker that has it is up" in done.stderr
    assert b"raptormq topic list" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["bad name", "TBW102", "x" * 128])
def test_a_name_that_is_not_allowed_is_one_line(raptormq: Run, dev_server: Any, name: str) -> None:
    done = raptormq("topic", "create", name, "-n", dev_server.address("namesrv"))
    assert done.returncode == 2
    assert done.stderr.startswith(b"raptormq: ")
    assert done.stderr.count(b"\n") == 1


def test_keys_that_cannot_be_read_are_nothing_to_commands_that_need_none(
    raptormq: Run, dev_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAPTORMQ_ENCRYPTION_KEY_FOLDER", "/nope")
    done = raptormq("topic", "list", "-n", dev_server.address("namesrv"))
    assert (done.returncode, done.stderr) == (0, b"")


async def test_what_a_broker_hides_that_did_not_say_what_it_has_is_not_known() -> None:
    class Admin:
        async def route(self, _topic: str) -> TopicRoute:
            return TopicRoute([QueueData("a", 8, 8, 6), QueueData("b", 8, 8, 6)], [])

        async def topic_stats(self, _topic: str) -> dict[MessageQueue, TopicOffset]:
            return {MessageQueue("t", "a", number): TopicOffset(0, 0, 0) for number in range(8)}

    admin = cast("AdminClient", Admin())
    await _refuse_hiding(admin, "t", 8)
    with pytest.raises(CommandFailed, match="cannot check whether 7 read queues of topic t would hide messages on b"):
        await _refuse_hiding(admin, "t", 7)
