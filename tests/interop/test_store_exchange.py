"""A store is used by Apache RocketMQ, RaptorMQ and again Apache RocketMQ, and each of them serves all of it.

Each turn adds over 100,000 messages of every kind (`store_contents`). Each broker finds, delivers and checks what the
other one has stored, delayed or left undecided, and uses its indexes and offsets. Before the last turn, the queues of
one topic are converted to BatchCQ, and those of another one to BatchCQ and back. The second test does the same with
brokers that are killed: no store is closed, only saved progress is waited for, and the queues are converted first.

The store of the newest Apache RocketMQ also has topics of the types of 5.4 and 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, Producer, PullConsumer
from raptormq.protocol.properties import PRIORITY
from tests.interop.converting import convert
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import Release, RocketMQServers, build
from tests.interop.store_contents import (
    FAILED_COUNT,
    GROUP,
    SETTINGS,
    TIMER_COUNT,
    StoreContents,
    create_topics,
    expected,
    fill,
    look_through,
)
from tests.interop.store_differences import differences

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

NEWEST_TOPICS = {
    "urgent": {"message.type": "PRIORITY"},
    "early": {"message.type": "MIXED"},
    "parent": {"message.type": "LITE", "lite.topic.expiration": "30"},
}
NEWEST_COUNT = 40


def wait_until_kept(is_kept: Callable[[], bool]) -> None:
    """Wait until a file has the expected contents. Both brokers save progress periodically, and a crash loses the
    rest.
    """
    deadline = time.monotonic() + 30
    while not is_kept():
        assert time.monotonic() < deadline, "not saved within 30 s"
        time.sleep(0.05)


def wait_for_kept_offsets(contents: StoreContents, store: Path, turns: int) -> None:
    """Wait until the group's progress is saved."""
    lists = {queue_id: offset for (_, queue_id), offset in contents.committed.items()}
    wait_until_kept(lambda: _kept_offsets(store, "lists") == lists)
    wait_until_kept(lambda: sum(_kept_offsets(store, "retried").values()) == turns * FAILED_COUNT)


def _kept_offsets(store: Path, topic: str) -> dict[int, int]:
    """Return queue id -> offset. Apache RocketMQ writes the ids without quotation marks."""
    text = ""
    with contextlib.suppress(FileNotFoundError):  # briefly, while Apache RocketMQ rewrites it
        text = (store / "config" / "consumerOffset.json").read_text()
    found = re.search(rf'"{topic}@{GROUP}"\s*:\s*\{{([^}}]*)\}}', text)
    return {int(queue_id): int(offset) for queue_id, offset in re.findall(r"(\d+)\W+(\d+)", found[1] if found else "")}


def wait_for_kept_timers(store: Path) -> None:
    """Wait until the file states that no timer waits. Otherwise Apache RocketMQ would also deliver recalled
    messages.
    """
    wait_until_kept(
        lambda: struct.unpack_from(">24xq", (store / "config" / "timercheck").read_bytes())[0] > TIMER_COUNT
    )


def delivered_while_it_ended(contents: StoreContents) -> tuple[str, ...]:
    """Return the messages of Apache RocketMQ that may be delivered twice: it delivers what becomes due during its stop
    after it has saved its progress.
    """
    return ("delayed", "timers") if time.time() > contents.next_due else ()


def convert_some(raptormq: RaptorMQDev) -> None:
    for topic, queue_type in (("lists", "BatchCQ"), ("deflated", "BatchCQ"), ("deflated", "SimpleCQ")):
        state = asyncio.run(convert(raptormq, topic, queue_type))
        assert state.phase == "done", state


async def fill_newest_topics(name_servers: str, turn: str) -> None:
    """Create the topics unless they exist, and send to those that accept plain messages."""
    async with AdminClient(name_servers=name_servers) as admin, Producer("newest", name_servers=name_servers) as sender:
        for topic, attributes in NEWEST_TOPICS.items():
            await admin.create_topic(topic, 2, 2, attributes=attributes)
            while await admin.route(topic) is None:
                await asyncio.sleep(0.05)
        for number in range(NEWEST_COUNT):
            await sender.send(Message("urgent", f"{turn}-{number}".encode(), priority=number % 2))
            await sender.send(Message("early", f"{turn}-{number}".encode()))


async def newest_topics(name_servers: str) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return the attributes and the bodies of each topic, with the priority of messages that have one."""
    found: dict[str, tuple[dict[str, str], list[str]]] = {}
    async with AdminClient(name_servers=name_servers) as admin, PullConsumer(name_servers=name_servers) as consumer:
        for topic, wanted in NEWEST_TOPICS.items():
            route = await admin.route(topic)
            assert route is not None
            (address,) = route.brokers[0].broker_addrs.values()
            config = await admin.topic_config(address, topic)
            assert config is not None
            bodies = []
            for queue in await consumer.queues(topic):
                offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset)
                    bodies += [
                        f"{message.body.decode()} {message.properties.get(PRIORITY)}" for message in result.messages()
                    ]
                    offset = result.next_offset
            kept = {key: value for key, value in config.attributes.items() if key in wanted}
            found[topic] = kept, sorted(bodies)
    return found


def expected_newest_topics(turns: Sequence[str]) -> dict[str, tuple[dict[str, str], list[str]]]:
    sent = [(turn, number) for turn in turns for number in range(NEWEST_COUNT)]
    bodies = {
        "urgent": [f"{turn}-{number} {number % 2}" for turn, number in sent],
        "early": [f"{turn}-{number} None" for turn, number in sent],
        "parent": [],
    }
    return {topic: (attributes, sorted(bodies[topic])) for topic, attributes in NEWEST_TOPICS.items()}


def test_topics_of_the_newest_types_go_from_rocketmq_to_raptormq_and_back(tmp_path: Path) -> None:
    built, settings = build(), PATIENCE | SETTINGS | {"enableMixedMessageType": "true"}
    with RocketMQServers(built, tmp_path, settings=settings, release=Release.NEWEST) as rocketmq:
        asyncio.run(fill_newest_topics(rocketmq.name_servers, "first"))
    with RaptorMQDev(tmp_path, settings=SETTINGS) as raptormq:
        assert asyncio.run(newest_topics(raptormq.name_servers)) == expected_newest_topics(["first"])
        asyncio.run(fill_newest_topics(raptormq.name_servers, "second"))
    with RocketMQServers(built, tmp_path, settings=settings, release=Release.NEWEST) as rocketmq:
        assert asyncio.run(newest_topics(rocketmq.name_servers)) == expected_newest_topics(["first", "second"])
        rocketmq.kill()


@pytest.mark.parametrize(
    ("release", "killed"),
    [(Release.REFERENCE, False), (Release.REFERENCE, True), (Release.NEWEST, False)],
    ids=["stopped", "killed", "newest"],
)
def test_a_store_goes_from_rocketmq_to_raptormq_and_back(tmp_path: Path, release: Release, *, killed: bool) -> None:
    built = build()
    contents = StoreContents()
    settings = SETTINGS | ({"flushConsumerOffsetInterval": "200"} if killed else {})
    if release is Release.NEWEST:
        settings |= {
            "appendTopicForTimerDeleteKey": "false"
        }  # its default, and the prefix by which it finds recalls of RaptorMQ
    with RocketMQServers(built, tmp_path, settings=PATIENCE | settings, release=release) as rocketmq:
        asyncio.run(create_topics(rocketmq.name_servers))
        asyncio.run(fill(contents, rocketmq.name_servers, "first"))
        if killed:
            wait_for_kept_offsets(contents, rocketmq.store, 1)
            rocketmq.kill()
    assert contents.message_count > 100_000
    twice = delivered_while_it_ended(contents)
    with RaptorMQDev(tmp_path, settings=settings) as raptormq:
        found = asyncio.run(look_through(contents, raptormq.name_servers, twice=twice))
        assert differences(found, expected(contents)) == {}
        if killed:
            convert_some(raptormq)
            wait_for_kept_timers(raptormq.store)
        asyncio.run(fill(contents, raptormq.name_servers, "second"))
        if killed:
            wait_for_kept_offsets(contents, raptormq.store, 2)
            raptormq.kill()
            twice = ("delayed",)  # their progress is saved periodically, too
        else:
            convert_some(raptormq)
    assert contents.message_count > 200_000
    with RocketMQServers(built, tmp_path, settings=PATIENCE | settings, release=release) as rocketmq:
        was_late = time.time() > contents.next_due
        # When it is busy, it repeats a check before it has read the response, and delivers the message twice.
        found = asyncio.run(look_through(contents, rocketmq.name_servers, twice={"decided", *twice}))
        if was_late:  # it delivers timers that became due before its start, the recalled ones too
            timers = found["came later, timers"]
            found["came later, timers"] = [body for body in timers if body not in contents.recalled]
        assert differences(found, expected(contents)) == {}
        rocketmq.kill()
