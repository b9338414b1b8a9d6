"""`raptormq group`: list, describe and reset."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
)
from tests.broker.harness import connected
from tests.broker.retention import SHORT_SEGMENTS, delete_what_is_stored
from tests.client.embedded_cluster import Cluster
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]


async def consume_one_of(address: str, topic: str, group: str, *bodies: bytes) -> None:
    """Send the messages to one queue, and commit the first for the group."""
    async with Producer("p", name_servers=address) as producer:
        for body in bodies:
            sent = await producer.send(Message(topic, body), key="same queue")
    async with PullConsumer(group=group, name_servers=address) as consumer:
        consumer.assign([sent.queue])
        consumer.seek(sent.queue, 0)
        assert (await consumer.poll(30))[0].body == bodies[0]
        consumer.seek(sent.queue, 1)
        await consumer.commit()


def described(raptormq: Run, address: str, group: str) -> dict[str, Any]:
    done = raptormq("group", "describe", group, "-o", "json", "-n", address)
    assert done.returncode == 0, done.stderr
    description: dict[str, Any] = json.loads(done.stdout)
    return description


def test_a_group_that_only_pulls_has_its_lag(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    topic, name = unique("pulled"), unique("pullers")
    asyncio.run(consume_one_of(address, topic, name, b"1", b"2", b"3"))
    group = described(raptormq, address, name)
    assert (group["group"], group["lag"], group["members"], group["message_model"]) == (name, 2, [], None)
    [queue] = [queue for queue in group["queues"] if queue["broker_offset"]]
    assert (queue["topic"], queue["broker"], queue["consumer_offset"], queue["lag"]) == (topic, "broker-a", 1, 2)
    assert queue["last_consumed_store_timestamp"] > 1_700_000_000_000
    [line] = [line for line in listed(raptormq, address) if line["group"] == name]
    assert line == {"group": name, "topics": 1, "members": 0, "lag": 2}
    shown = raptormq("group", "describe", name, "-n", address).stdout.decode()
    assert shown.startswith(f"group {name}: no member is connected, lag 2\n")


async def test_what_was_deleted_before_the_group_consumed_it_is_shown_and_no_lag(raptormq: Run, tmp_path: Path) -> None:
    async with Cluster(tmp_path, 1, 1, **SHORT_SEGMENTS) as cluster, connected(cluster.broker()) as peer:
        await cluster.create_topic("pulled", 1)
        address = cluster.name_servers
        await consume_one_of(address, "pulled", "pullers", b"1", b"2", b"3")
        await delete_what_is_stored(tmp_path / "broker-0", cluster.broker(), peer)
        group = await asyncio.to_thread(described, raptormq, address, "pullers")
        [queue] = [queue for queue in group["queues"] if queue["broker_offset"]]
        lines = await asyncio.to_thread(listed, raptormq, address)
        shown = await asyncio.to_thread(raptormq, "group", "describe", "pullers", "-n", address)
    assert (group["lag"], group["lost"], queue["lag"], queue["lost"], queue["min_offset"]) == (0, 2, 0, 2, 3)
    assert [line["lag"] for line in lines if line["group"] == "pullers"] == [0]
    first, *table = shown.stdout.decode().splitlines()
    who = "group pullers: no member is connected"
    assert first == f"{who}, lag 0, 2 messages were deleted before the group consumed them"
    assert ["pulled", "broker-0", "0", "1", "3", "0", "2"] in [line.split()[:7] for line in table]


def listed(raptormq: Run, address: str, *options: str) -> list[dict[str, Any]]:
    done = raptormq("group", "list", "-o", "json", "-n", address, *options)
    assert done.returncode == 0, done.stderr
    lines: list[dict[str, Any]] = json.loads(done.stdout)
    return lines


async def with_a_member(
    address: str, group: str, ask: Callable[[], dict[str, Any]], broadcasting_in: Path | None = None
) -> dict[str, Any]:
    """Return the result of `ask` while a consumer of the group processes a message."""
    came, go = asyncio.Event(), asyncio.Event()

    async def listen(_: list[MessageExt]) -> None:
        came.set()
        await go.wait()

    async with Producer("p", name_servers=address) as producer:
        await producer.send(Message(f"of-{group}", b"1", tags="paid"))
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    if broadcasting_in is not None:
        config = replace(config, message_model=MessageModel.BROADCASTING, offset_folder=broadcasting_in)
    consumer = PushConsumer(group, name_servers=address, config=config)
    consumer.subscribe(f"of-{group}", "paid || refunded", listen)
    async with consumer:
        await asyncio.wait_for(came.wait(), 30)
        told = await asyncio.to_thread(ask)
        go.set()
    return told


def test_members_and_what_they_have_not_finished(raptormq: Run, dev_server: Any) -> None:
    address, name = dev_server.address("namesrv"), unique("workers")
    tables: list[str] = []

    def ask() -> dict[str, Any]:
        tables.append(raptormq("group", "describe", name, "-n", address).stdout.decode())
        return described(raptormq, address, name)

    group = asyncio.run(with_a_member(address, name, ask))
    [member] = group["members"]
    assert (member["language"], group["message_model"], group["lag"]) == ("PYTHON", "CLUSTERING", 1)
    assert group["subscriptions"][f"of-{name}"] == "paid || refunded"
    assert {queue["topic"] for queue in group["queues"]} == {f"of-{name}", f"%RETRY%{name}"}
    [table] = tables
    assert table.startswith(f"group {name}: 1 member, lag 1\n")
    assert [f"of-{name}", "paid", "||", "refunded"] in [line.split() for line in table.splitlines()]
    assert [member["client_id"], member["address"], "PYTHON"] in [line.split() for line in table.splitlines()]


def test_a_broadcasting_group_has_no_lag_to_show(raptormq: Run, dev_server: Any, tmp_path: Path) -> None:
    address, name = dev_server.address("namesrv"), unique("hearers")

    def ask() -> dict[str, Any]:
        reset = ["group", "reset", name, f"of-{name}", "--to", "earliest", "--yes", "-n", address]
        return {
            "table": raptormq("group", "describe", name, "-n", address).stdout.decode(),
            "described": described(raptormq, address, name),
            "listed": [line for line in listed(raptormq, address) if line["group"] == name],
            "reset": raptormq(*reset),
        }

    told = asyncio.run(with_a_member(address, name, ask, tmp_path))
    assert told["table"].startswith(f"group {name}: 1 member, broadcasting: each member stores its own progress")
    assert told["described"]["lag"] is None
    assert [(line["members"], line["lag"]) for line in told["listed"]] == [(1, None)]
    refused = f"cannot reset group {name}: members of a broadcasting group".encode()
    assert (told["reset"].returncode, refused in told["reset"].stderr) == (2, True)


def test_system_groups_are_listed_on_demand(raptormq: Run, dev_server: Any) -> None:
    address, topic = dev_server.address("namesrv"), unique("looked-at")
    asyncio.run(consume_one_of(address, topic, "TOOLS_CONSUMER", b"1"))
    assert "TOOLS_CONSUMER" not in {line["group"] for line in listed(raptormq, address)}
    assert "TOOLS_CONSUMER" in {line["group"] for line in listed(raptormq, address, "--all")}


def test_a_reset_moves_the_group_there_and_back(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    topic, other, group = unique("again"), unique("other"), unique("readers-again")
    asyncio.run(consume_one_of(address, topic, group, b"1", b"2", b"3"))
    reset = ["group", "reset", group, topic, "-n", address, "--yes", "--to"]
    done = raptormq(*reset, "earliest")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == f"group {group} continues in topic {topic} at earliest with a lag of 3; it was 2\n".encode()
    assert described(raptormq, address, group)["lag"] == 3
    assert b"with a lag of 0; it was 3" in raptormq(*reset, "latest").stdout
    assert b"at 2024-05-01T00:00:00Z with a lag of 3; it was 0" in raptormq(*reset, "2024-05-01").stdout
    assert raptormq("produce", other, "-n", address, stdin=b"1\n").returncode == 0
    done = raptormq("group", "reset", group, other, "--to", "latest", "--yes", "-n", address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"a lag of 0; it was 1; the group has not read this topic before; check the name\n")
    for name, read, complaint in (
        (group, "nowhere", b"topic nowhere: it does not exist"),
        ("never-seen", topic, b"consumer group never-seen does not exist; 'raptormq group list'"),
    ):
        done = raptormq("group", "reset", name, read, "--to", "latest", "--yes", "-n", address)
        assert (done.returncode, done.stderr.count(b"\n"), complaint in done.stderr) == (4, 1, True), done.stderr


def test_a_member_goes_on_where_the_reset_says(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    topic, group = unique("once-more"), unique("listeners-again")

    async def consume() -> list[bytes]:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(messages: list[MessageExt]) -> None:
            for message in messages:
                got.put_nowait(message.body)

        async with Producer("p", name_servers=address) as producer:
            for body in (b"1", b"2"):
                await producer.send(Message(topic, body), key="same queue")
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        consumer = PushConsumer(group, name_servers=address, config=config)
        consumer.subscribe(topic, "*", listen)
        async with asyncio.timeout(60), consumer:
            bodies = [await got.get() for _ in range(2)]
            reset = ["group", "reset", group, topic, "--to", "earliest", "--yes", "-n", address]
            done = await asyncio.to_thread(raptormq, *reset)
            assert done.returncode == 0, done.stderr
            return bodies + [await got.get() for _ in range(2)]

    assert asyncio.run(consume()) == [b"1", b"2"] * 2


@pytest.mark.parametrize("name", ["", " ", b"\xff".decode("utf-8", "surrogateescape"), "a\nb"])
def test_what_is_no_name_is_said_to_be_none(raptormq: Run, name: str) -> None:
    for command in (["describe", name], ["reset", name, "topic", "--to", "latest"]):
        done = raptormq("group", *command, "-n", "127.0.0.1:1")
        assert (done.returncode, b"is not a group name" in done.stderr) == (2, True), done.stderr


def test_an_unknown_group_is_one_line(raptormq: Run, dev_server: Any) -> None:
    done = raptormq("group", "describe", "never-seen", "-n", dev_server.address("namesrv"))
    assert done.returncode == 4
    assert done.stderr == (
        b"raptormq: consumer group never-seen does not exist; 'raptormq group list' shows the existing groups,"
        b" 'raptormq cluster describe BROKER' the Dledger group of a broker\n"
    )


def test_a_group_is_created_changed_and_deleted(raptormq: Run, dev_server: Any) -> None:
    address, name = dev_server.address("namesrv"), unique("made")
    to = ["-n", address]

    def settings() -> dict[str, Any]:
        [found] = json.loads(raptormq("group", "show", name, "-o", "json", *to).stdout).values()
        return dict(found)

    done = raptormq("group", "create", name, "--max-retries", "3", "--no-broadcast", *to)
    assert (done.returncode, done.stdout.decode()) == (0, f"group {name} is created\n"), done.stderr
    assert settings() == {"consume": True, "broadcast": False, "max_retries": 3, "retry_queues": 1}
    again = raptormq("group", "create", name, *to)
    assert (again.returncode, b"'raptormq group update' changes it" in again.stderr) == (2, True)
    for said in ("changed", "unchanged"):
        done = raptormq("group", "update", name, "--no-consume", "--retry-queues", "2", *to)
        assert (done.returncode, done.stdout.decode()) == (0, f"group {name} is {said}\n")
    assert settings() == {"consume": False, "broadcast": False, "max_retries": 3, "retry_queues": 2}
    table = raptormq("group", "show", name, *to).stdout.decode().strip().splitlines()[-1].split()
    assert table[1:] == ["no", "no", "3", "2"]
    refused = raptormq("group", "delete", name, *to)
    assert (refused.returncode, b"confirm with --yes" in refused.stderr) == (2, True)
    assert raptormq("group", "delete", name, "--yes", *to).stdout.decode() == f"group {name} is deleted\n"
    for words in (["show"], ["update", "--consume"], ["delete", "--yes"]):
        command, *options = words
        gone = raptormq("group", command, name, *options, *to)
        assert (gone.returncode, b"does not exist" in gone.stderr) == (4, True), words


def test_progress_ends_with_the_group(raptormq: Run, dev_server: Any) -> None:
    address, topic, name = dev_server.address("namesrv"), unique("left"), unique("leavers")
    asyncio.run(consume_one_of(address, topic, name, b"1", b"2"))
    assert described(raptormq, address, name)["lag"] == 1
    assert raptormq("group", "delete", name, "--yes", "-n", address).returncode == 0
    assert raptormq("group", "create", name, "-n", address).returncode == 0
    assert described(raptormq, address, name)["queues"] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["create", "bad name"], "characters outside"),
        (["create", "g", "--max-retries", "-1"], "--max-retries"),
        (["create", "g", "--retry-queues", "0"], "--retry-queues"),
        (["update", "g"], "nothing to change"),
    ],
)
def test_bad_settings_of_a_group_are_one_line(raptormq: Run, dev_server: Any, words: list[str], expected: str) -> None:
    done = raptormq("group", *words, "-n", dev_server.address("namesrv"))
    assert (done.returncode, done.stderr.count(b"\n"), expected in done.stderr.decode()) == (2, 1, True), done.stderr
