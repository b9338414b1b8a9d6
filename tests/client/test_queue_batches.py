"""The Python client and a RaptorMQ broker: batches for many queues in one request, for both queue types."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.send.queue_batches import MAX_NEW_TOPICS
from raptormq.client import (
    AdminClient,
    ClientConfig,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    SendResult,
)
from raptormq.errors import NoRoute
from raptormq.protocol.codes import RequestCode
from raptormq.transport.pool import ConnectionPool
from tests.client.embedded_cluster import Cluster
from tests.client.single_key import OneKey

QUEUES = 40


class Requests:
    """Counts the requests of a client by code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.codes: list[int] = []
        request = ConnectionPool.request

        async def counted(pool: ConnectionPool, address: str, message: object, timeout: float) -> object:
            self.codes.append(message.code)  # type: ignore[attr-defined]
            return await request(pool, address, message, timeout)  # type: ignore[arg-type]

        monkeypatch.setattr(ConnectionPool, "request", counted)

    def shipped(self) -> int:
        return self.codes.count(RequestCode.SEND_QUEUE_BATCHES)


def body(queue_id: int, number: int) -> bytes:
    """Some queues get individually compressed messages."""
    return b"%d to %d again and again " % (number, queue_id) * (300 if queue_id % 5 == 0 else 10)


async def send(cluster: Cluster, client: ClientConfig, config: ProducerConfig, rounds: int) -> list[SendResult]:
    async with Producer("p", client_config=client, config=config) as producer:
        results: list[SendResult] = []
        for first in range(0, rounds * 3, 3):
            results += await asyncio.gather(
                *(
                    producer.submit(
                        Message("t", body(number, each), "A", (f"k{each}",) if each % 2 else ()),
                        queue=MessageQueue("t", "broker-0", number),
                    )
                    for each in range(first, first + 3)
                    for number in range(QUEUES)
                )
            )
        return results


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
@pytest.mark.parametrize("form", ["plain", "compressed", "encrypted"])
async def test_every_message_arrives_once_in_the_order_of_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue_type: str, form: str
) -> None:
    config = ProducerConfig(
        auto_batch=True, compress_batches=form == "compressed", encrypt=form == "encrypted", retries=0
    )
    async with Cluster(tmp_path) as cluster:
        client = ClientConfig(cluster.name_servers, keys=OneKey())
        async with AdminClient(client_config=client) as admin:
            await admin.create_topic("t", QUEUES, QUEUES, attributes={"queue.type": queue_type})
            while await admin.route("t") is None:
                await asyncio.sleep(0.01)
        requests = Requests(monkeypatch)
        results = await send(cluster, client, config, 3)
        assert requests.shipped() >= 3
        async with PullConsumer(client_config=client) as consumer:
            for number in range(QUEUES):
                queue = MessageQueue("t", "broker-0", number)
                stored: list[MessageExt] = []
                while len(stored) < 9:
                    stored += (await consumer.pull(queue, len(stored), 32)).messages()
                own = [result for result in results if result.queue == queue]
                assert [each.body for each in stored] == [body(number, each) for each in range(9)]
                assert [each.queue_offset for each in stored] == list(range(9))
                assert [each.message_id for each in stored] == [each.message_id for each in own]
                assert [each.queue_offset for each in own] == list(range(9))
                assert [each.tags for each in stored] == ["A"] * 9
    assert len({result.message_id for result in results}) == QUEUES * 9


async def test_a_topic_that_does_not_exist_fails_its_senders_and_no_others(tmp_path: Path) -> None:
    async with Cluster(tmp_path, autoCreateTopicEnable="false") as cluster:
        await cluster.create_topic("good")
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=True) as producer:
            queues = await producer.queues("good")
            # It is the only batch of its queue, so it is the first part of the request.
            lost = producer.submit(Message("missing", b"x"), queue=MessageQueue("missing", "broker-0", 0))
            good = [producer.submit(Message("good", b"x"), queue=queue) for queue in queues * 5]
            results = await asyncio.gather(*good)
            with pytest.raises(NoRoute, match="no route for topic missing"):
                await lost
    assert sorted((result.queue.queue_id, result.queue_offset) for result in results) == [
        (number, offset) for number in range(4) for offset in range(5)
    ]


async def test_messages_to_many_new_topics_are_sent_as_without_batches(tmp_path: Path) -> None:
    """A request creates a limited number of topics. The rest is sent separately."""
    names = [f"new{number}" for number in range(3 * MAX_NEW_TOPICS + 2)]
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, auto_batch=True) as producer,
    ):
        await producer.send(
            Message("known", b"x")
        )  # the client knows that the broker supports requests for several queues
        sent = [producer.submit(Message(name, b"x"), queue=MessageQueue(name, "broker-0", 0)) for name in names]
        assert [each.queue.topic for each in await asyncio.gather(*sent)] == names
