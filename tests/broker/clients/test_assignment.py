"""Rebalancing by the broker: strategies, shared queues in mode POP, and requests 400 and 401."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.clients.assignment import allocate_averagely, allocate_by_circle, assign
from raptormq.broker.tables import POP, RequestMode
from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message import MessageQueue
from tests.broker.harness import Peer, connected, running

QUEUES = [MessageQueue("t", "b", number) for number in range(8)]
MEMBERS = ["m0", "m1", "m2"]


def ids(queues: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in queues]


def test_strategies() -> None:
    assert [ids(allocate_averagely(QUEUES, MEMBERS, member)) for member in MEMBERS] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [ids(allocate_by_circle(QUEUES, MEMBERS, member)) for member in MEMBERS] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert [ids(allocate_averagely(QUEUES[:2], MEMBERS, member)) for member in MEMBERS] == [[0], [1], []]


def test_modes() -> None:
    assert ids(assign(QUEUES, MEMBERS, "m1", allocate_averagely, RequestMode())) == [3, 4, 5]
    assert assign(QUEUES, MEMBERS, "stranger", allocate_averagely, RequestMode()) == []
    assert assign(QUEUES, MEMBERS, "m1", allocate_averagely, RequestMode(POP, 0)) == [MessageQueue("t", "b", -1)]
    assert assign(QUEUES, MEMBERS, "m1", allocate_averagely, RequestMode(POP, 2)) == [MessageQueue("t", "b", -1)]
    assert ids(assign(QUEUES, MEMBERS, "m2", allocate_averagely, RequestMode(POP, 1))) == [6, 7, 0, 1, 2]
    assert ids(assign(QUEUES[:2], MEMBERS, "m2", allocate_averagely, RequestMode(POP, 1))) == [0]


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(BodyError, match="unknown request mode PUSH"):
        RequestMode.from_dict({"mode": "PUSH"})


async def query(peer: Peer, **more: object) -> dict[str, Any]:
    body = {
        "topic": "t", "consumerGroup": "consumers", "clientId": "me", "messageModel": "CLUSTERING",
        "strategyName": "AVG",
    }  # fmt: skip
    answer = await peer.call(RequestCode.QUERY_ASSIGNMENT, None, dumps(body | more))
    assert answer.code == 0
    value: dict[str, Any] = json.loads(answer.body)
    return value


async def set_mode(peer: Peer, **more: object) -> int:
    body = {"topic": "t", "consumerGroup": "consumers", "mode": "POP", "popShareQueueNum": 0}
    return (await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, dumps(body | more))).code


async def test_a_member_is_told_its_queues_and_the_mode(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as other:
        await peer.send("t", b"x")
        assert await query(peer) == {}
        await peer.heartbeat("me", "consumers", "t")
        await other.heartbeat("you", "consumers", "t")
        half = await query(peer)
        everything = await query(peer, messageModel="BROADCASTING")
        assert await query(peer, strategyName="MACHINE_ROOM") == {}
        assert await set_mode(peer) == 0
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.heartbeat("me", "consumers", "t")
        popping = await query(peer)
    assert [row["messageQueue"]["queueId"] for row in half["messageQueueAssignments"]] == [0, 1]
    assert {row["mode"] for row in half["messageQueueAssignments"]} == {"PULL"}
    assert len(everything["messageQueueAssignments"]) == 4
    (row,) = popping["messageQueueAssignments"]
    assert row == {"messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": "t"}, "mode": "POP"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "%RETRY%consumers"}, ResponseCode.NO_PERMISSION),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_whose_mode_can_be_set(tmp_path: Path, change: dict[str, object], code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        await peer.heartbeat("me", "consumers", "t")
        assert await set_mode(peer, **change) == code
