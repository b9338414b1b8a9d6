"""A store written by Apache RocketMQ opens in RaptorMQ, goes on there, and opens in Apache RocketMQ again.

Messages, queues, topics and group offsets have to be where the other left them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.make_reference import PATIENCE
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, RocketMQServers, build
from tests.interop.scenarios import Servers, play_some

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def turn(built: JavaBuild, servers: Servers, number: int) -> Any:
    entry = play_some(built, servers, [f"StoreExchange.{number}"])[f"json/StoreExchange.{number}"]
    assert entry.get("error") is None
    return entry["outcome"]


def test_a_store_goes_from_rocketmq_to_raptormq_and_back(tmp_path: Path) -> None:
    built = build()
    outcomes = []
    with RocketMQServers(built, tmp_path, settings=PATIENCE) as rocketmq:
        outcomes.append(turn(built, rocketmq, 0))
    with RaptorMQDev(tmp_path) as raptormq:
        outcomes.append(turn(built, raptormq, 1))
    with RocketMQServers(built, tmp_path, settings=PATIENCE) as rocketmq:
        outcomes.append(turn(built, rocketmq, 2))
        rocketmq.kill()
    assert outcomes == [{"found": True, "consumed": True, "left": True}] * 3
