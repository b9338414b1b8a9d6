"""`raptormq dlq`: dead letters are listed, shown and sent again."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from raptormq.cli import dlq
from raptormq.cli.main import run
from raptormq.client import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@dataclass(frozen=True)
class Group:
    """A consumer group whose messages of a topic all became dead letters."""

    address: str
    name: str
    topic: str


async def received(address: str, group: str, topic: str, count: int, *, fail: bool = False) -> list[MessageExt]:
    """Consume `count` messages as a member of a group. Each of them fails, or each is acknowledged."""
    messages: asyncio.Queue[MessageExt] = asyncio.Queue()

    async def listen(some: list[MessageExt]) -> None:
        for message in some:
            messages.put_nowait(message)
        if fail:
            raise ValueError("no")

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, max_reconsume_times=0)
    consumer = PushConsumer(group, name_servers=address, config=config)
    consumer.subscribe(topic, "*", listen)
    async with asyncio.timeout(60), consumer:
        return [await messages.get() for _ in range(count)]


@pytest.fixture
def gave_up(raptormq: Run, dev_server: Any) -> Group:
    address, topic, group = dev_server.address("namesrv"), unique("orders"), unique("shipping")

    async def run() -> None:
        async with Producer(name_servers=address) as producer:
            for number in range(3):
                properties = {"number": str(number)}
                await producer.send(Message(topic, f"order {number}".encode(), "paid", (f"k{number}",), properties))
        await received(address, group, topic, 3, fail=True)

    assert raptormq("topic", "create", topic, "-n", address).returncode == 0
    asyncio.run(run())
    return Group(address, group, topic)


def test_dead_letters_are_listed_and_shown(raptormq: Run, gave_up: Group) -> None:
    listed = json.loads(raptormq("dlq", "list", "-o", "json", "-n", gave_up.address).stdout)
    (own,) = (line for line in listed if line["group"] == gave_up.name)
    assert own["letters"] == 3
    assert own["newest"] > 1_700_000_000_000
    assert gave_up.name in raptormq("dlq", "list", "-n", gave_up.address).stdout.decode()
    shown = json.loads(raptormq("dlq", "show", gave_up.name, "-o", "json", "-n", gave_up.address).stdout)
    assert sorted(letter["body"] for letter in shown) == ["order 0", "order 1", "order 2"]
    assert {letter["properties"]["RETRY_TOPIC"] for letter in shown} == {gave_up.topic}
    table = raptormq("dlq", "show", gave_up.name, "--max", "1", "-n", gave_up.address).stdout.decode()
    assert table.count("order ") == 1
    assert gave_up.topic in table


def test_letters_are_delivered_again_to_their_group_alone(raptormq: Run, gave_up: Group) -> None:
    address, group = gave_up.address, gave_up.name
    resend = ["dlq", "resend", group, "-n", address]
    refused = raptormq(*resend)
    assert (refused.returncode, b"Deliver 3 dead letters to group" in refused.stderr) == (2, True)
    done = raptormq(*resend, "--yes")
    assert (done.returncode, done.stdout.decode()) == (0, f"3 dead letters are delivered to group {group} again\n")
    again = asyncio.run(received(address, group, gave_up.topic, 3))
    assert sorted(message.body for message in again) == [b"order 0", b"order 1", b"order 2"]
    assert {(message.topic, message.tags, message.reconsume_times) for message in again} == {(gave_up.topic, "paid", 0)}
    assert sorted(message.keys for message in again) == [("k0",), ("k1",), ("k2",)]
    assert sorted(message.user_properties["number"] for message in again) == ["0", "1", "2"]
    done = raptormq(*resend, "--yes")
    assert (done.returncode, done.stdout.decode()) == (0, f"group {group} has no letter to resend\n")
    topic = json.loads(raptormq("topic", "describe", gave_up.topic, "-o", "json", "-n", address).stdout)
    assert topic["messages"] == 3  # other groups read the topic, and get no duplicates


def test_one_letter_is_selected_by_its_id(raptormq: Run, gave_up: Group) -> None:
    address, group = gave_up.address, gave_up.name
    letters = json.loads(raptormq("dlq", "show", group, "-o", "json", "-n", address).stdout)
    (chosen,) = (letter for letter in letters if letter["body"] == "order 1")
    resend = ["dlq", "resend", group, "--yes", "-n", address]
    assert raptormq(*resend, "--id", chosen["message_id"]).returncode == 0
    (message,) = asyncio.run(received(address, group, gave_up.topic, 1))
    assert (message.body, message.message_id) == (b"order 1", chosen["message_id"])
    unknown = raptormq(*resend, "--id", "0A" * 16)
    assert (unknown.returncode, b"has no dead letter with the id 0A0A" in unknown.stderr) == (4, True)
    done = raptormq(*resend, "--again")  # the selection has not changed the offsets
    assert done.stdout.decode() == f"3 dead letters are delivered to group {group} again\n"


def test_selected_letters_are_read_once(gave_up: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, letters = [], dlq._letters

    def counted(*arguments: Any, **options: Any) -> AsyncIterator[list[MessageExt]]:
        reads.append(arguments)
        return letters(*arguments, **options)

    stored = asyncio.run(received(gave_up.address, f"%DLQ%{gave_up.name}-reader", f"%DLQ%{gave_up.name}", 3))
    monkeypatch.setattr(dlq, "_letters", counted)
    ids = [option for letter in stored[:2] for option in ("--id", letter.message_id)]
    assert run(["dlq", "resend", gave_up.name, "--yes", "-n", gave_up.address, *ids]) == 0
    assert len(reads) == 1
    assert len(asyncio.run(received(gave_up.address, gave_up.name, gave_up.topic, 2))) == 2


def test_a_letter_that_is_stored_during_a_run_is_left_to_the_next_one(
    gave_up: Group, raptormq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    max_offset = PullConsumer.max_offset

    async def before_the_last_one(consumer: PullConsumer, queue: MessageQueue) -> int:
        return await max_offset(consumer, queue) - 1

    resend = ["dlq", "resend", gave_up.name, "--yes", "-n", gave_up.address]
    with monkeypatch.context() as patch:
        patch.setattr(PullConsumer, "max_offset", before_the_last_one)
        assert run(resend) == 0
    done = raptormq(*resend)
    assert done.stdout.decode() == f"1 dead letters are delivered to group {gave_up.name} again\n"


def test_a_group_without_letters_is_one_line(raptormq: Run, dev_server: Any) -> None:
    for command in ("show", "resend"):
        done = raptormq("dlq", command, "never-failed", "-n", dev_server.address("namesrv"))
        assert (done.returncode, done.stderr.count(b"\n")) == (4, 1)
        assert b"has no dead letters: topic %DLQ%never-failed does not exist" in done.stderr
