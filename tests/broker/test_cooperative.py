"""Requests about topics with tens of thousands of queues, while other requests must be served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.cooperative import STEPS_PER_YIELD, run_cooperatively
from raptormq.broker.handlers.clients import MAX_NEW_GROUPS
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.bodies.queues import QueueLockRequest, decode_locked_queues
from raptormq.protocol.bodies.steps import Steps
from raptormq.protocol.bodies.tolerant_json import MAX_REQUEST_BYTES, dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.schema import decode_header
from raptormq.storage import background
from tests.broker.harness import Peer, assembly_of, connected, running
from tests.turns import counted_turns

QUEUES = 4_096
GROUP_AND_TOPIC = {"group": "g", "topic": "wide"}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "wide"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, GROUP_AND_TOPIC),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, GROUP_AND_TOPIC | {"timestamp": "0", "isForce": "true"}),
    ],
)
async def test_a_topic_of_many_queues_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fields: dict[str, str]
) -> None:
    monkeypatch.setattr(background, "_SLICE_S", -1.0)  # yield after every item
    async with running(tmp_path) as broker, connected(broker) as peer:
        topic = {"topic": "wide", "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        created = topic | {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, created)).code == 0
        await peer.heartbeat("c", "g", "wide")
        commit = {"consumerGroup": "g", "topic": "wide", "queueId": 0, "commitOffset": 0}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert await turns_for(broker, peer, code, fields) >= QUEUES


async def turns_for(broker: Broker, peer: Peer, code: int, fields: dict[str, str]) -> int:
    """Return the number of iterations of the event loop that a request takes, without the network."""
    header_class, handler = assembly_of(broker).router._handlers[code]
    header = decode_header(header_class, fields) if header_class is not None else None
    with counted_turns() as turns:
        answer = await handler(peer.connection, RemotingCommand(code, fields), header)  # type: ignore[misc]
        assert answer.code == 0
        return turns()


async def test_progress_of_many_groups_takes_few_turns_of_a_busy_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        for number in range(300):
            broker._store.consumer_offsets.commit("t", f"g{number}", 0, 0)
        monkeypatch.setattr(background, "_SLICE_S", 3_600.0)
        assert await turns_for(broker, peer, RequestCode.GET_BROKER_CONSUME_STATS, {}) < 10


async def test_steps_are_worked_off_with_turns_for_others_and_have_a_result() -> None:
    def steps() -> Steps[int]:
        for _ in range(3 * STEPS_PER_YIELD):
            yield
        return 7

    working, turns = asyncio.ensure_future(run_cooperatively(steps())), 0
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    assert working.result() == 7
    assert turns >= 3


LOCK_QUEUES = [MessageQueue("wide", "broker-a", number) for number in range(20_000)]
LOCKS = QueueLockRequest("g", "c", LOCK_QUEUES).to_json()
SUBSCRIPTIONS = [Subscription.parse(f"topic-{number}", "*", 1) for number in range(15_000)]
MANY_TOPICS = HeartbeatData("c", [], [ConsumerData("g", subscriptions=SUBSCRIPTIONS)]).to_json()
MANY_PRODUCERS = HeartbeatData("c", [f"p{number}" for number in range(30_000)]).to_json()
MANY_GROUPS = HeartbeatData("c", [], [ConsumerData(f"g{number}") for number in range(MAX_NEW_GROUPS)]).to_json()
TOPIC_LIST = dumps({"topicConfigList": [{"topicName": f"t{number}", "perm": 6} for number in range(5_000)]})
GROUP_LIST = dumps({"groupConfigList": [{"groupName": f"g{number}"} for number in range(5_000)]})


@pytest.mark.parametrize(
    ("code", "body"),
    [
        pytest.param(RequestCode.HEART_BEAT, MANY_TOPICS, id="topics"),
        pytest.param(RequestCode.HEART_BEAT, MANY_PRODUCERS, id="producers"),
        pytest.param(RequestCode.HEART_BEAT, MANY_GROUPS, id="groups"),
        pytest.param(RequestCode.LOCK_BATCH_MQ, LOCKS, id="locks"),
        pytest.param(RequestCode.UNLOCK_BATCH_MQ, LOCKS, id="unlocks"),
        pytest.param(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, TOPIC_LIST, id="new topics"),
        pytest.param(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, GROUP_LIST, id="new groups"),
    ],
)
async def test_requests_of_others_are_served_while_one_names_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, body: bytes
) -> None:
    monkeypatch.setattr(background, "_SLICE_S", -1.0)  # yield after every item, as on a slow machine
    async with running(tmp_path) as broker, connected(broker) as greedy, connected(broker) as other:
        asked = asyncio.ensure_future(greedy.call(code, None, body))
        served = await _served_until(other, asked)
        assert asked.result().code == 0, asked.result().remark
    assert served >= 3


async def _served_until(peer: Peer, asked: asyncio.Future[RemotingCommand]) -> int:
    served = 0
    while not asked.done():
        await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"})
        served += 1
    return served


async def test_what_comes_of_them_is_what_comes_of_short_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(RequestCode.HEART_BEAT, None, MANY_TOPICS)).code == 0
        known = assembly_of(broker).clients._registry.consumers["g"].subscriptions
        assert len(known) == len(SUBSCRIPTIONS)
        locked = await peer.call(RequestCode.LOCK_BATCH_MQ, None, LOCKS)
        assert decode_locked_queues(locked.body) == LOCK_QUEUES
        heir = QueueLockRequest("g", "heir", LOCK_QUEUES)
        assert decode_locked_queues((await peer.call(RequestCode.LOCK_BATCH_MQ, None, heir.to_json())).body) == []
        assert (await peer.call(RequestCode.UNLOCK_BATCH_MQ, None, LOCKS)).code == 0
        locked = await peer.call(RequestCode.LOCK_BATCH_MQ, None, heir.to_json())
        assert len(decode_locked_queues(locked.body)) == len(LOCK_QUEUES)


async def test_a_heartbeat_makes_a_thousand_groups_and_the_next_one_more(tmp_path: Path) -> None:
    groups = [ConsumerData(f"g{number}") for number in range(MAX_NEW_GROUPS + 1)]
    body = HeartbeatData("c", [], groups).to_json()
    async with running(tmp_path) as broker, connected(broker) as peer:
        first = await peer.call(RequestCode.HEART_BEAT, None, body)
        assert (first.code, str(MAX_NEW_GROUPS) in (first.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        assert (await peer.call(RequestCode.HEART_BEAT, None, body)).code == 0
        last = {"consumerGroup": groups[-1].group}
        assert (await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, last)).code == 0


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ])
async def test_json_that_takes_too_long_is_not_read(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for body in (
            b"{" + b" " * MAX_REQUEST_BYTES,
            b'{"a":{' + b"1:1," * 20_000 + b"1:1}}",
            b"[" * 70_000,
            b'{"clientID":7,"consumerDataSet":[7]}',
        ):
            answer = await peer.call(code, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "internal error" not in (answer.remark or "")
