"""A store goes from Apache RocketMQ to RaptorMQ and back, and each of them serves all of it.

Over 100,000 messages a turn, of every kind (`store_contents`): what one broker stored, delayed or left undecided, the
other one finds, delivers and asks about; indexes and offsets too. Before it goes back the queues of one topic become
those of BatchCQ, and those of another one are converted there and back. The same once more with brokers that are
killed: no store is closed then, nothing but progress is waited for, and the queues are converted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.converting import convert
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build
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


def wait_until_kept(is_kept: Callable[[], bool]) -> None:
    """Return when a file says so: both brokers write progress down now and then, and a crash takes the rest."""
    deadline = time.monotonic() + 30
    while not is_kept():
        assert time.monotonic() < deadline, "not written down within 30 s"
        time.sleep(0.05)


def wait_for_kept_offsets(contents: StoreContents, store: Path, turns: int) -> None:
    """Return when the group's progress is in its file."""
    lists = {queue_id: offset for (_, queue_id), offset in contents.committed.items()}
    wait_until_kept(lambda: _kept_offsets(store, "lists") == lists)
    wait_until_kept(lambda: sum(_kept_offsets(store, "retried").values()) == turns * FAILED_COUNT)


def _kept_offsets(store: Path, topic: str) -> dict[int, int]:
    """Queue id -> offset; Apache RocketMQ writes the ids without quotation marks."""
    text = ""
    with contextlib.suppress(FileNotFoundError):  # for a moment, while Apache RocketMQ writes it anew
        text = (store / "config" / "consumerOffset.json").read_text()
    found = re.search(rf'"{topic}@{GROUP}"\s*:\s*\{{([^}}]*)\}}', text)
    return {int(queue_id): int(offset) for queue_id, offset in re.findall(r"(\d+)\W+(\d+)", found[1] if found else "")}


def wait_for_kept_timers(store: Path) -> None:
    """Return when it is written down that no timer waits; Apache RocketMQ would bring those taken back, too."""
    wait_until_kept(
        lambda: struct.unpack_from(">24xq", (store / "config" / "timercheck").read_bytes())[0] > TIMER_COUNT
    )


def delivered_while_it_ended(contents: StoreContents) -> tuple[str, ...]:
    """What may come twice of what Apache RocketMQ has left: when something becomes due while it ends, it delivers it
    after it has written down its progress.
    """
    return ("delayed", "timers") if time.time() > contents.next_due else ()


def convert_some(raptormq: RaptorMQDev) -> None:
    for topic, queue_type in (("lists", "BatchCQ"), ("deflated", "BatchCQ"), ("deflated", "SimpleCQ")):
        state = asyncio.run(convert(raptormq, topic, queue_type))
        assert state.phase == "done", state


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_store_goes_from_rocketmq_to_raptormq_and_back(tmp_path: Path, *, killed: bool) -> None:
    built = build()
    contents = StoreContents()
    settings = SETTINGS | ({"flushConsumerOffsetInterval": "200"} if killed else {})
    with RocketMQServers(built, tmp_path, settings=PATIENCE | settings) as rocketmq:
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
            twice = ("delayed",)  # their progress is written now and then, too
        else:
            convert_some(raptormq)
    assert contents.message_count > 200_000
    with RocketMQServers(built, tmp_path, settings=PATIENCE | settings) as rocketmq:
        # Busy, it asks about a transaction again before it has seen the answer, and delivers its message twice.
        found = asyncio.run(look_through(contents, rocketmq.name_servers, twice={"decided", *twice}))
        assert differences(found, expected(contents)) == {}
        rocketmq.kill()
