"""Old and new clients with old and new brokers: in each combination, every message arrives once and in order.

An old broker responds with code 3 to lists and to requests for several queues. An old client sends single messages and
does not support inner batches (here: the client for Go).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, ProducerConfig, PullConsumer
from raptormq.client.message.decoding import decode_messages
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.language import Language
from raptormq.protocol.record import iter_records
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import assembly_of, pull_fields
from tests.client.embedded_cluster import Cluster

QUEUES = [MessageQueue("t", "broker-0", number) for number in range(4)]
PER_QUEUE = 12
BODIES = [b"%d again and again " % number * 40 for number in range(PER_QUEUE)]
Pull = Callable[[Cluster, MessageQueue], Awaitable[list[bytes]]]


def make_old(cluster: Cluster) -> None:
    """Make the broker reject lists and requests for several queues."""
    assembly = assembly_of(cluster.broker())
    del assembly.router._batch_handlers[RequestCode.SEND_BATCH_MESSAGE]
    del assembly.router._handlers[RequestCode.SEND_QUEUE_BATCHES]


@asynccontextmanager
async def installation(folder: Path, queue_type: str | None) -> AsyncIterator[Cluster]:
    """Run a broker with one topic. Without a queue type it is an old broker."""
    async with Cluster(folder) as cluster:
        async with AdminClient(name_servers=cluster.name_servers) as admin:
            attributes = {"queue.type": queue_type} if queue_type else {}
            await admin.create_topic("t", len(QUEUES), len(QUEUES), attributes=attributes)
            while await admin.route("t") is None:
                await asyncio.sleep(0.01)
        if queue_type is None:
            make_old(cluster)
        yield cluster


async def send(cluster: Cluster, config: ProducerConfig) -> None:
    async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
        for first in range(0, PER_QUEUE, 3):
            some = BODIES[first : first + 3]
            if config.auto_batch:
                sends = [producer.submit(Message("t", body), queue=queue) for body in some for queue in QUEUES]
                await asyncio.gather(*sends)
            else:
                await asyncio.gather(*(each_encrypted(producer, queue, some) for queue in QUEUES))


async def each_encrypted(producer: Producer, queue: MessageQueue, some: list[bytes]) -> None:
    for body in some:
        await producer.send(Message("t", body), queue=queue)


async def new_pull(cluster: Cluster, queue: MessageQueue) -> list[bytes]:
    async with PullConsumer(name_servers=cluster.name_servers) as consumer:
        found: list[bytes] = []
        while len(found) < PER_QUEUE:
            pulled = await consumer.pull(queue, len(found), 32, suspend_ms=2000)
            messages = pulled.messages()
            assert [each.queue_offset for each in messages] == list(range(len(found), len(found) + len(messages)))
            found += [each.body for each in messages]
        return found


async def old_pull(cluster: Cluster, queue: MessageQueue) -> list[bytes]:
    pool = ConnectionPool()
    try:
        found: list[bytes] = []
        while len(found) < PER_QUEUE:
            fields = {name: str(value) for name, value in pull_fields("t", len(found), queue.queue_id, 2000).items()}
            command = RemotingCommand(RequestCode.PULL_MESSAGE, fields, language=Language.GO, version=317)
            answer = await pool.request(cluster.broker().address, command, 10.0)
            assert not any(each.sys_flag & INNER_BATCH for each in iter_records(answer.body))
            found += [each.body for each in decode_messages(answer.body, queue)]
        return found
    finally:
        await pool.close()


@pytest.mark.parametrize("queue_type", [None, "SimpleCQ", "BatchCQ"], ids=["old broker", "SimpleCQ", "BatchCQ"])
@pytest.mark.parametrize("batching", ["old producer", "new producer", "new producer, compressed"])
@pytest.mark.parametrize("pull", [old_pull, new_pull], ids=["old consumer", "new consumer"])
async def test_every_message_arrives_once_and_in_order(
    tmp_path: Path, queue_type: str | None, batching: str, pull: Pull
) -> None:
    config = ProducerConfig(auto_batch=batching.startswith("new"), compress_batches=batching.endswith("compressed"))
    async with installation(tmp_path, queue_type) as cluster:
        await send(cluster, config)
        for queue in QUEUES:
            assert await pull(cluster, queue) == BODIES


@pytest.mark.parametrize("queue_type", [None, "SimpleCQ", "BatchCQ"], ids=["old broker", "SimpleCQ", "BatchCQ"])
async def test_a_new_producer_finds_out_what_its_broker_can_do(tmp_path: Path, queue_type: str | None) -> None:
    async with installation(tmp_path, queue_type) as cluster:
        await send(cluster, ProducerConfig(auto_batch=True))
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            pulled = await consumer.pull(QUEUES[0], 0, 32, suspend_ms=2000)
    wrapped = [bool(each.sys_flag & INNER_BATCH) for each in iter_records(pulled.body)]
    assert wrapped[0] is (queue_type == "BatchCQ")
    assert len(wrapped) == (4 if queue_type == "BatchCQ" else PER_QUEUE)
