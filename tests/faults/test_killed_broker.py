"""kill -9 during operation: acknowledged messages are at their offsets after the restart."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections import Counter
from pathlib import Path

import pytest

from raptormq.errors import TransportError
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import bodies, messages, pull_fields, send_fields
from tests.faults.broker_process import Client, process

SENDERS = 8
QUEUES = 4


async def produce(client: Client, sender: int, acknowledged: dict[tuple[int, int], bytes]) -> None:
    """Send messages until the broker is killed."""
    number = 0
    while True:
        body = b"%d:%d:" % (sender, number) + b"x" * (number * 37 % 3_000)
        try:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", sender % QUEUES), body)
        except TransportError:
            return
        assert answer.code == 0, answer
        acknowledged[sender % QUEUES, int(answer.ext_fields["queueOffset"])] = body
        number += 1


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_acknowledged_messages_survive(tmp_path: Path, free_port: int, flush_disk_type: str) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    client = Client(free_port)
    for round_number in range(1, 4):
        async with process(tmp_path, free_port, {"flushDiskType": flush_disk_type}) as server:
            producers = [asyncio.ensure_future(produce(client, sender, acknowledged)) for sender in range(SENDERS)]
            while len(acknowledged) < round_number * 400:
                assert not all(producer.done() for producer in producers)
                await asyncio.sleep(0.001)
            server.kill()
            await asyncio.gather(*producers)
    async with process(tmp_path, free_port, {"flushDiskType": flush_disk_type}):
        found = {(queue, at): body for queue in range(QUEUES) for at, body in (await read_queue(client, queue)).items()}
    await client.close()
    assert {place: found.get(place) for place in acknowledged} == acknowledged


@pytest.mark.parametrize("seal", [True, False], ids=["ours", "of RocketMQ"])
async def test_a_checkpoint_that_names_times_to_come_hides_nothing(
    tmp_path: Path, free_port: int, *, seal: bool
) -> None:
    client = Client(free_port)
    acknowledged: dict[int, bytes] = {}
    async with process(tmp_path, free_port) as server:
        for number in range(200):
            body = b"%d" % number
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0), body)
            acknowledged[int(answer.ext_fields["queueOffset"])] = body
        server.kill()
    (file,) = tmp_path.rglob("checkpoint")
    page = file.read_bytes()
    to_come = struct.pack(">qq", 1 << 42, 1 << 42)
    file.write_bytes(to_come + page[len(to_come) :] if seal else to_come + bytes(len(page) - len(to_come)))
    log = tmp_path / "log"
    async with process(tmp_path, free_port, log=log):
        assert await read_queue(client, 0) == acknowledged
    await client.close()
    assert re.search("/checkpoint is damaged|the checkpoint says that messages", log.read_text())


async def read_queue(client: Client, queue_id: int) -> dict[int, bytes]:
    """Return bodies by queue offset."""
    found: dict[int, bytes] = {}
    while True:
        answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields("t", len(found), queue_id))
        if answer.code:
            return found
        assert bodies(answer)
        found |= {message.queue_offset: message.body for message in messages(answer)}


async def test_a_topic_that_was_answered_for_survives_with_its_first_message(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    for number in range(3):
        async with process(tmp_path, free_port) as server:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields(f"topic-{number}", 1), b"first")
            assert answer.code == 0
            server.kill()
    async with process(tmp_path, free_port):
        for number in range(3):
            answer = await client.call(RequestCode.PULL_MESSAGE, pull_fields(f"topic-{number}", 0, 1))
            assert bodies(answer) == [b"first"]
    await client.close()


async def test_timers_that_wait_survive_and_come_once(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    fine = {"timerPrecisionMs": "100"}
    async with process(tmp_path, free_port, fine) as server:
        due = int(time.time() * 1000) + 1_500
        late = due + 6_000
        for number in range(200):
            # half of them are due before the kill or about then, the others long after it
            asked = due + number if number % 2 else late + number
            fields = send_fields("t", number % QUEUES, f"TIMER_DELIVER_MS\x01{asked}\x02")
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number)).code == 0
        while not await read_all(client):
            await asyncio.sleep(0.02)
        server.kill()
    async with process(tmp_path, free_port, fine):
        while len(seen := await read_all(client)) < 200:
            await asyncio.sleep(0.05)
    await client.close()
    assert set(seen) == set(range(200))
    assert {number: count for number, count in seen.items() if count > 1} == {}


async def read_all(client: Client) -> Counter[int]:
    """Return how often each message has been delivered."""
    found: Counter[int] = Counter()
    for queue in range(QUEUES):
        for body in (await read_queue(client, queue)).values():
            found[int(body)] += 1
    return found


async def test_what_was_recalled_stays_recalled(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    settings = {"timerPrecisionMs": "100", "recallMessageEnable": "true"}
    async with process(tmp_path, free_port, settings) as server:
        due = int(time.time() * 1000) + 8_000  # long after the last of them is recalled
        for number in range(40):
            fields = send_fields("t", number % QUEUES, f"TIMER_DELIVER_MS\x01{due + number}\x02")
            sent = await client.call(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number)
            if number % 2:
                recall = {"producerGroup": "producers", "topic": "t", "recallHandle": sent.ext_fields["recallHandle"]}
                assert (await client.call(RequestCode.RECALL_MESSAGE, recall)).code == 0
        server.kill()
    async with process(tmp_path, free_port, settings):
        while not set(range(0, 40, 2)) <= (seen := await read_all(client)).keys():
            await asyncio.sleep(0.05)
    await client.close()
    assert seen == dict.fromkeys(range(0, 40, 2), 1)


async def test_a_deletion_that_was_answered_for_survives(tmp_path: Path, free_port: int) -> None:
    client = Client(free_port)
    progress = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    for body in (b"first life", b"second life"):
        async with process(tmp_path, free_port) as server:
            for _ in range(3):
                assert (await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0), body)).code == 0
            await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, progress | {"commitOffset": 3})
            assert (await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
            server.kill()
    async with process(tmp_path, free_port) as server:
        answer = await client.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0), b"third life")
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
        kept = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, progress | {"setZeroIfNotFound": "false"})
        assert kept.code == ResponseCode.QUERY_NOT_FOUND
        server.kill()
    async with process(tmp_path, free_port):
        assert await read_queue(client, 0) == {0: b"third life"}
    await client.close()
