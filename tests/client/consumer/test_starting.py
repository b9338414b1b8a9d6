"""The start of a push consumer: conditions that it waits for, and its error after the time limit."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.handlers import offsets
from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.cluster import OffsetRequests, QueueOffset
from raptormq.client.consumer import queue_reader, rebalance
from raptormq.client.description import ReadState
from raptormq.errors import ClientClosed, NoRoute, RequestTimeout, ServerError
from raptormq.protocol.message import MessageQueue
from tests.client.consumer.test_push_consumer import FAST, Collector, send
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.start_limits import count_from_first_round

QUICK = replace(FAST, start_timeout=0.5)  # only with `count_from_first_round`


async def consume(_: list[MessageExt]) -> None:
    """A listener."""


def consumer_of(name_servers: str, config: ConsumerConfig = FAST, topic: str = "t") -> PushConsumer:
    consumer = PushConsumer("g", client_config=ClientConfig(name_servers), config=config)
    consumer.subscribe(topic, "*", consume)
    return consumer


async def test_a_wrong_name_server_is_an_error(
    free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    count_from_first_round(monkeypatch)
    [port] = free_ports(1)
    consumer = consumer_of(f"127.0.0.1:{port}", QUICK)
    with pytest.raises(
        RequestTimeout, match=f"group g could not start reading topic t within 0.5 s .*127.0.0.1:{port}"
    ):
        await consumer.start()
    await consumer.stop()  # and nothing must be stopped


async def test_a_topic_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_from_first_round(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        consumer = consumer_of(cluster.name_servers, QUICK)
        with pytest.raises(
            NoRoute, match=r"could not start reading topic t .*does not exist.*allow_missing_topics=True"
        ):
            await consumer.start()
        await cluster.create_topic("t", 1)
        consumer._config = replace(FAST, start_timeout=60)
        await consumer.start()
        assert [queue.topic for queue in consumer.assignment if queue.topic == "t"] == ["t"]
        await consumer.stop()


async def test_start_waits_for_a_topic_that_comes_in_time(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        consumer = consumer_of(cluster.name_servers, replace(FAST, start_timeout=60))
        starting = asyncio.create_task(consumer.start())
        await eventually(lambda: consumer._running is not None)
        assert not starting.done()
        await cluster.create_topic("t", 1)
        await starting
        assert "t" in {queue.topic for queue in consumer.assignment}
        await consumer.stop()


@pytest.fixture
def slow_start_offsets(monkeypatch: pytest.MonkeyPatch) -> list[MessageQueue]:
    """Delay the responses to queries of start offsets. Return the queues whose start offset is known, in order."""
    known = list[MessageQueue]()
    query = queue_reader.start_offset

    async def slow(
        requests: OffsetRequests, address: str, group: str, queue: MessageQueue, *rest: Any, **more: Any
    ) -> QueueOffset:
        try:
            for _ in range(100):  # turns of the loop, in which a start that does not wait returns
                await asyncio.sleep(0)
            return await query(requests, address, group, queue, *rest, **more)
        finally:
            known.append(queue)

    monkeypatch.setattr(queue_reader, "start_offset", slow)
    return known


async def test_messages_sent_after_the_start_of_a_new_group_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_start_offsets: list[MessageQueue]
) -> None:
    async def is_young(*_: object) -> bool:
        return False  # otherwise a new group gets all messages of the topic

    monkeypatch.setattr(offsets, "is_young", is_young)
    collector, config = Collector(), replace(FAST, consume_from=ConsumeFromWhere.LAST)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        await send(cluster, [b"before"])
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", collector)
        async with consumer:
            assert {queue.queue_id for queue in slow_start_offsets if queue.topic == "t"} == {0, 1, 2, 3}
            await send(cluster, [b"after"])
            await collector.until(lambda: len(collector.messages) == 1)
    assert [message.body for message in collector.messages] == [b"after"]


async def test_start_does_not_wait_for_a_start_offset_that_a_broker_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> QueueOffset:
        raise ServerError(1, "not now")

    monkeypatch.setattr(queue_reader, "start_offset", refused)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster.name_servers, replace(FAST, start_timeout=600)) as consumer:
            assert {queue.error for queue in consumer.describe().queues} == {"code 1: not now"}


async def test_a_consumer_can_be_stopped_while_it_queries_its_start_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def silent(*_: object, **__: object) -> QueueOffset:
        asked.set()
        return await asyncio.Future[QueueOffset]()

    monkeypatch.setattr(queue_reader, "start_offset", silent)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        consumer = consumer_of(cluster.name_servers, replace(FAST, start_timeout=600))
        starting = asyncio.create_task(consumer.start())
        await asked.wait()
        await consumer.stop()
        with pytest.raises(ClientClosed, match="stopped while it was starting"):
            await starting


async def test_start_waits_no_longer_than_its_time_limit_for_start_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object, **__: object) -> QueueOffset:
        return await asyncio.Future[QueueOffset]()

    monkeypatch.setattr(queue_reader, "start_offset", silent)
    count_from_first_round(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with consumer_of(cluster.name_servers, QUICK) as consumer:
            assert {queue.state for queue in consumer.describe().queues} == {ReadState.STARTING}


async def test_a_consumer_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        consumer = consumer_of(cluster.name_servers, replace(FAST, start_timeout=600))
        starting = asyncio.create_task(consumer.start())
        await eventually(lambda: consumer._running is not None)
        await consumer.stop()
        with pytest.raises(ClientClosed, match="stopped while it was starting"):
            await starting


async def test_a_consumer_may_start_before_its_topic_exists_and_warns_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebalance, "MISSING_WARNING_S", 0.05)
    collector = Collector()

    def warnings() -> list[str]:
        return [text for each in caplog.records if "waits for topic t: no route" in (text := each.getMessage())]

    async with Cluster(tmp_path) as cluster:
        config = replace(FAST, allow_missing_topics=True)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", collector)
        async with consumer:
            await eventually(lambda: len(warnings()) >= 3)
            await cluster.create_topic("t", 1)
            await send(cluster, [b"first"])
            await collector.until(lambda: len(collector.messages) == 1)
    assert "reads nothing" not in caplog.text


async def test_a_consumer_without_a_subscription_warns_that_it_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebalance, "MISSING_WARNING_S", 0.05)

    def warnings() -> int:
        return sum("group g reads nothing: it has no subscription" in each.getMessage() for each in caplog.records)

    async with Cluster(tmp_path) as cluster, Consumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
        await eventually(lambda: warnings() >= 2)
        await cluster.create_topic("t", 1)
        consumer.subscribe("t")
        await send(cluster, [b"first"])
        assert (await anext(consumer)).body == b"first"


async def test_a_refused_pull_says_that_the_members_of_a_group_need_the_same_subscriptions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path) as cluster:
        for topic in ("t", "other"):
            await cluster.create_topic(topic, 1)
        async with consumer_of(cluster.name_servers), consumer_of(cluster.name_servers, topic="other"):
            await eventually(lambda: "all members of a group need the same subscriptions" in caplog.text)
    assert "code 24" in caplog.text


def drop(clients: list[Any]) -> None:
    """Drop the references to clients, and collect garbage."""
    clients.clear()
    gc.collect()


@pytest.mark.parametrize("kind", [Producer, PullConsumer, AdminClient])
async def test_a_client_that_is_never_closed_is_reported(
    kind: type[Producer | PullConsumer | AdminClient], tmp_path: Path
) -> None:
    async with Cluster(tmp_path) as cluster:
        clients = [kind(name_servers=cluster.name_servers)]
        await clients[0].start()
        instance = clients[0]._instance
        assert instance is not None
        with pytest.warns(ResourceWarning, match=rf"unclosed {kind.__name__}: await its close\(\)"):
            drop(clients)
        await instance.release()


async def test_a_push_consumer_that_is_never_stopped_is_reported(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        consumers = [consumer_of(cluster.name_servers)]
        await consumers[0].start()
        running = consumers[0]._running
        assert running is not None
        with pytest.warns(ResourceWarning, match=r"unclosed PushConsumer: await its stop\(\)"):
            drop(consumers)
        await running.stop()


async def test_a_consumer_that_is_never_closed_is_reported(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        consumers = [Consumer("g", name_servers=cluster.name_servers)]
        consumers[0].subscribe("t")
        await consumers[0].start()
        running = consumers[0]._running
        assert running is not None
        with pytest.warns(ResourceWarning, match=r"unclosed Consumer: await its close\(\)"):
            drop(consumers)
        await running.stop()
