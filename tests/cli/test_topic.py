"""`raptormq topic`: create, list, describe, delete."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def listed(raptormq: Run, address: str, *options: str) -> list[str]:
    done = raptormq("topic", "list", "-o", "json", "-n", address, *options)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return names


def test_the_life_of_a_topic(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    done = raptormq("topic", "create", "life", "--queues", "3", "--attribute", "message.type=FIFO", "-n", address)
    assert (done.returncode, done.stdout) == (0, b"topic life is there\n"), done.stderr
    assert "life" in listed(raptormq, address)
    done = raptormq("produce", "life", "-n", address, stdin=b"a\nb\n")
    assert done.returncode == 0, done.stderr
    done = raptormq("topic", "describe", "life", "-o", "json", "-n", address)
    described = json.loads(done.stdout)
    assert described["messages"] == 2
    assert [queue["queue_id"] for queue in described["queues"]] == [0, 1, 2]
    assert described["brokers"]["broker-a"]["perm"] == "rw"
    assert described["brokers"]["broker-a"]["attributes"]["message.type"] == "FIFO"
    assert b"2 messages" in raptormq("topic", "describe", "life", "-n", address).stdout
    done = raptormq("topic", "delete", "life", "-n", address)
    assert (done.returncode, done.stdout) == (0, b"topic life is deleted\n"), done.stderr
    assert "life" not in listed(raptormq, address)


def test_changing_a_topic_keeps_it(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    assert raptormq("topic", "create", "changed", "--queues", "2", "-n", address).returncode == 0
    done = raptormq(
        "topic", "create", "changed", "--read-queues", "4", "--write-queues", "2", "--perm", "r", "-n", address
    )
    assert done.returncode == 0, done.stderr
    described = json.loads(raptormq("topic", "describe", "changed", "-o", "json", "-n", address).stdout)
    broker = described["brokers"]["broker-a"]
    assert (broker["read_queues"], broker["write_queues"], broker["perm"]) == (4, 2, "r")


def test_attributes_may_be_written_as_for_mqadmin(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    done = raptormq("topic", "create", "whole", "--attribute", "+queue.type=BatchCQ", "-n", address)
    assert done.returncode == 0, done.stderr
    described = json.loads(raptormq("topic", "describe", "whole", "-o", "json", "-n", address).stdout)
    assert described["brokers"]["broker-a"]["attributes"] == {"queue.type": "BatchCQ"}


def test_system_topics_are_listed_on_demand(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    shown, everything = listed(raptormq, address), listed(raptormq, address, "--all")
    assert "TBW102" in everything
    assert not {"TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} & set(shown)
    assert set(shown) < set(everything)


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_an_unknown_topic_is_one_line(raptormq: Run, dev_server: Any, command: str) -> None:
    done = raptormq("topic", command, "never-created", "-n", dev_server.address("namesrv"))
    assert done.returncode == 2
    assert b"topic never-created does not exist" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["bad name", "TBW102", "x" * 128])
def test_a_name_that_is_not_allowed_is_one_line(raptormq: Run, dev_server: Any, name: str) -> None:
    done = raptormq("topic", "create", name, "-n", dev_server.address("namesrv"))
    assert done.returncode == 2
    assert done.stderr.startswith(b"raptormq: ")
    assert done.stderr.count(b"\n") == 1
