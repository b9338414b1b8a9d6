"""Requests about topics of tens of thousands of queues, and others that want to be served meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.turns import AT_A_TIME, in_turns
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.schema import decode_header
from tests.broker.harness import connected, running

QUEUES = 4_096
GROUP_AND_TOPIC = {"group": "g", "topic": "wide"}


async def test_others_have_their_turn_after_every_few_items() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    items = [item async for item in in_turns(range(10 * AT_A_TIME))]
    counting.cancel()
    assert (items, turns) == (list(range(10 * AT_A_TIME)), 10)


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
async def test_a_topic_of_many_queues_holds_nobody_up(tmp_path: Path, code: int, fields: dict[str, str]) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        topic = {"topic": "wide", "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        created = topic | {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, created)).code == 0
        await peer.heartbeat("c", "g", "wide")
        commit = {"consumerGroup": "g", "topic": "wide", "queueId": 0, "commitOffset": 0}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert broker._assembly is not None
        header_class, handler = broker._assembly.router._handlers[code]
        header = decode_header(header_class, fields) if header_class is not None else None
        turns = 0
        answer = asyncio.ensure_future(handler(peer.connection, RemotingCommand(code, fields), header))  # type: ignore[arg-type]
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await answer).code == 0  # type: ignore[union-attr]
        assert turns >= QUEUES // AT_A_TIME
