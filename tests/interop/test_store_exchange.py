"""A store goes from Apache RocketMQ to RaptorMQ and back, and each of them serves all of it.

Over 100,000 messages a turn, of every kind (`store_contents`): what one broker stored, delayed or left undecided, the
other one finds, delivers and asks about; indexes and offsets too. Before it goes back the queues of one topic become
those of BatchCQ, and those of another one are converted there and back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interop.converting import convert
from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.store_contents import SETTINGS, StoreContents, create_topics, expected, fill, look_through

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_a_store_goes_from_rocketmq_to_raptormq_and_back(tmp_path: Path) -> None:
    built = build()
    contents = StoreContents()
    with RocketMQServers(built, tmp_path, settings=PATIENCE | SETTINGS) as rocketmq:
        asyncio.run(create_topics(rocketmq.name_servers))
        asyncio.run(fill(contents, rocketmq.name_servers, "first"))
    assert contents.message_count > 100_000
    with RaptorMQDev(tmp_path, settings=SETTINGS) as raptormq:
        assert asyncio.run(look_through(contents, raptormq.name_servers, may_ask_twice=False)) == expected(contents)
        asyncio.run(fill(contents, raptormq.name_servers, "second"))
        for topic, queue_type in (("lists", "BatchCQ"), ("deflated", "BatchCQ"), ("deflated", "SimpleCQ")):
            assert asyncio.run(convert(raptormq, topic, queue_type)).phase == "done"
    assert contents.message_count > 200_000
    with RocketMQServers(built, tmp_path, settings=PATIENCE | SETTINGS) as rocketmq:
        assert asyncio.run(look_through(contents, rocketmq.name_servers, may_ask_twice=True)) == expected(contents)
        rocketmq.kill()
