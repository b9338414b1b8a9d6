"""A store goes from Apache RocketMQ to RaptorMQ and back, and each of them serves all of it.

Over 100,000 messages a turn, of every kind (`store_contents`): what one broker stored, delayed or left undecided, the
other one finds, delivers and asks about; indexes and offsets too. Before it goes back the queues of one topic become
those of BatchCQ, and those of another one are converted there and back.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.interop.converting import convert
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.store_contents import (
    SETTINGS,
    StoreContents,
    create_topics,
    expected,
    fill,
    look_through,
)
from tests.interop.store_differences import differences

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def delivered_while_it_ended(contents: StoreContents) -> tuple[str, ...]:
    """What may come twice of what Apache RocketMQ has left: when something becomes due while it ends, it delivers it
    after it has written down its progress.
    """
    return ("delayed", "timers") if time.time() > contents.next_due else ()


def test_a_store_goes_from_rocketmq_to_raptormq_and_back(tmp_path: Path) -> None:
    built = build()
    contents = StoreContents()
    with RocketMQServers(built, tmp_path, settings=PATIENCE | SETTINGS) as rocketmq:
        asyncio.run(create_topics(rocketmq.name_servers))
        asyncio.run(fill(contents, rocketmq.name_servers, "first"))
    assert contents.message_count > 100_000
    twice = delivered_while_it_ended(contents)
    with RaptorMQDev(tmp_path, settings=SETTINGS) as raptormq:
        found = asyncio.run(look_through(contents, raptormq.name_servers, twice=twice))
        assert differences(found, expected(contents)) == {}
        asyncio.run(fill(contents, raptormq.name_servers, "second"))
        for topic, queue_type in (("lists", "BatchCQ"), ("deflated", "BatchCQ"), ("deflated", "SimpleCQ")):
            state = asyncio.run(convert(raptormq, topic, queue_type))
            assert state.phase == "done", state
    assert contents.message_count > 200_000
    with RocketMQServers(built, tmp_path, settings=PATIENCE | SETTINGS) as rocketmq:
        # Busy, it asks about a transaction again before it has seen the answer, and delivers its message twice.
        found = asyncio.run(look_through(contents, rocketmq.name_servers, twice={"decided", *twice}))
        assert differences(found, expected(contents)) == {}
        rocketmq.kill()
