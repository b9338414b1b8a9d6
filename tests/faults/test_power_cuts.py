"""A power failure of a real broker leaves only what it has synced. Messages acknowledged with SYNC_FLUSH are at their
offsets, and checkpoints and clean stops are correct.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message_id import parse_offset_id
from tests.broker.harness import bodies, pull_fields, send_fields
from tests.faults.powerless_broker import PowerlessBroker, powerless_broker
from tests.faults.test_killed_broker import QUEUES, SENDERS, produce, read_queue
from tests.faults.test_killed_transactions import end, half

MANY_QUEUES = 100
"""So many that a checkpoint syncs the whole volume instead of each file."""


async def test_what_was_acknowledged_is_there(tmp_path: Path, free_port: int) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    async with powerless_broker(tmp_path, free_port) as broker:
        for round_number in range(1, 4):
            async with broker.life() as server:
                producers = [
                    asyncio.ensure_future(produce(broker.client, sender, acknowledged)) for sender in range(SENDERS)
                ]
                while len(acknowledged) < round_number * 400:
                    assert not all(producer.done() for producer in producers)
                    await asyncio.sleep(0.001)
                server.kill()
                await asyncio.gather(*producers)
        async with broker.life():
            found = {
                (queue, at): body
                for queue in range(QUEUES)
                for at, body in (await read_queue(broker.client, queue)).items()
            }
    assert len(list((broker.store / "commitlog").iterdir())) > 1
    assert {place: found.get(place) for place in acknowledged} == acknowledged


async def send_to_queues(broker: PowerlessBroker, queues: int) -> None:
    topic = {
        "topic": "t", "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert (await broker.client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)).code == 0
    for queue in range(queues):
        await broker.send("t", queue, b"%d" % queue, f"KEYS\x01k{queue}\x02")


async def assert_served(broker: PowerlessBroker, queues: int) -> None:
    """Check that all messages are there, and that no queue was rebuilt."""
    for queue in range(queues):
        assert await read_queue(broker.client, queue) == {0: b"%d" % queue}
    found = {"topic": "t", "key": f"k{queues - 1}", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    assert (await broker.client.call(RequestCode.QUERY_MESSAGE, found)).code == 0
    assert broker.warnings() == ""


@pytest.mark.parametrize("queues", [3, MANY_QUEUES])
async def test_a_clean_stop_is_durable(tmp_path: Path, free_port: int, queues: int) -> None:
    progress = {"consumerGroup": "g", "topic": "t", "queueId": 1}
    async with powerless_broker(tmp_path, free_port) as broker:
        async with broker.life() as server:
            await send_to_queues(broker, queues)
            await broker.client.call(RequestCode.UPDATE_CONSUMER_OFFSET, progress | {"commitOffset": 1})
            server.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
        assert not (broker.store / "abort").exists()
        async with broker.life():
            await assert_served(broker, queues)
            kept = await broker.client.call(RequestCode.QUERY_CONSUMER_OFFSET, progress)
            assert kept.ext_fields["offset"] == "1"


@pytest.mark.parametrize("queues", [3, MANY_QUEUES])
async def test_a_start_is_durable(tmp_path: Path, free_port: int, queues: int) -> None:
    async with powerless_broker(tmp_path, free_port) as broker:
        async with broker.life():
            await send_to_queues(broker, queues)
        async with broker.life():
            await assert_served(broker, queues)
        assert (broker.store / "abort").exists()
        assert broker.checkpoint().confirmed_offset > 0
        async with broker.life():
            await assert_served(broker, queues)


async def test_a_deletion_that_was_answered_for_is_durable(tmp_path: Path, free_port: int) -> None:
    async with powerless_broker(tmp_path, free_port) as broker:
        for body in (b"first life", b"second life"):
            async with broker.life():
                for _ in range(3):
                    await broker.send("t", 0, body)
                assert (await broker.client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        async with broker.life():
            gone = await broker.client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
            await broker.send("t", 0, b"third life")
        async with broker.life():
            assert await read_queue(broker.client, 0) == {0: b"third life"}


async def test_what_was_decided_and_given_back_is_there(tmp_path: Path, free_port: int) -> None:
    """The broker writes these messages itself, and then drops those that they replace, or lets a consumer drop them."""
    async with powerless_broker(tmp_path, free_port) as broker:
        async with broker.life():
            for body in (b"commit 1", b"rollback 2", b"commit 3"):
                await end(broker.client, body, await half(broker.client, body))
            sent = await broker.client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 1), b"again")
            place = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
            back = {"offset": place, "group": "g", "delayLevel": 1}
            assert (await broker.client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
        async with broker.life():
            assert await read_queue(broker.client, 0) == {0: b"commit 1", 1: b"commit 3"}
            retry = pull_fields("%RETRY%g", 0, wait_ms=20_000)
            assert bodies(await broker.client.call(RequestCode.PULL_MESSAGE, retry)) == [b"again"]


async def test_converted_queues_are_durable(tmp_path: Path, free_port: int) -> None:
    async def convert(**fields: str) -> QueueConversionState:
        answer = await broker.client.call(RequestCode.CONVERT_QUEUE, {"topic": "t"} | fields)
        assert answer.code == 0, answer
        return QueueConversionState.from_json(answer.body)

    async with powerless_broker(tmp_path, free_port) as broker:
        async with broker.life():
            await send_to_queues(broker, 3)
            await convert(action="start", queueType="BatchCQ")
            while (state := await convert(action="status")).is_under_way:
                await asyncio.sleep(0.01)
            assert state.phase == "done"
        async with broker.life():
            await assert_served(broker, 3)
            assert (await convert(action="status")).queue_type == "BatchCQ"
