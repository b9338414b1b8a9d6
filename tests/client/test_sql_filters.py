"""Filters by properties in Python consumers: delivered messages, and rejected expressions."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.client import Message, MessageQueue, Producer, PullConsumer, PullStatus, PushConsumer, Sql
from raptormq.errors import MessageError, ServerError
from tests.client.consumer.test_push_consumer import FAST, Collector
from tests.client.embedded_cluster import Cluster

DEAR = Sql("price > 5 AND region = 'north'")
QUEUE = MessageQueue("t", "broker-0", 0)


async def fill(cluster: Cluster) -> None:
    await cluster.create_topic("t", 1)
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number in range(10):
            region = "north" if number % 2 else "south"
            properties = {"price": str(number), "region": region}
            await producer.send(Message("t", b"%d" % number, tags="A", properties=properties))


async def test_a_push_consumer_gets_what_its_filter_wants(tmp_path: Path) -> None:
    async with Cluster(tmp_path, enablePropertyFilter="true") as cluster:
        await fill(cluster)
        collector = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", DEAR, collector)
            await collector.until(lambda: len(collector.messages) >= 2)
            async with Producer("p", name_servers=cluster.name_servers) as producer:
                await producer.send(Message("t", b"last", properties={"price": "99", "region": "north"}))
            await collector.until(lambda: len(collector.messages) >= 3)
        assert sorted(collector.bodies) == [b"7", b"9", b"last"]


async def test_a_pull_consumer_gets_what_its_filter_wants(tmp_path: Path) -> None:
    async with Cluster(tmp_path, enablePropertyFilter="true") as cluster:
        await fill(cluster)
        async with PullConsumer(name_servers=cluster.name_servers, expression=DEAR) as consumer:
            consumer.assign([QUEUE])
            assert [message.body for message in await consumer.poll(10)] == [b"7", b"9"]
            found = await consumer.pull(QUEUE, 8, expression=DEAR)
            assert [message.body for message in found.messages()] == [b"9"]
            nothing = await consumer.pull(QUEUE, 0, expression=Sql("price > 1000"))
            assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 10)


async def test_a_broker_that_does_not_filter_says_so(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            with pytest.raises(ServerError, match="filter message by SQL92"):
                await consumer.pull(QUEUE, 0, expression=DEAR)


@pytest.mark.parametrize("text", ["", "price >", "price > 'x' AND AND", "(" * 100 + "a"])
def test_what_is_no_expression_is_refused_at_once(text: str) -> None:
    with pytest.raises(MessageError, match="not a filter"):
        Sql(text)
