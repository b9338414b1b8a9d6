"""Rebalance listeners: called before the first message and before the next owner, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.client import (
    AllocateStrategy,
    AveragelyByCircle,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageQueue,
    Order,
    Producer,
    PushConsumer,
    RebalanceListener,
)
from raptormq.errors import ClientError, ConfigError
from raptormq.protocol.message import MessageExt
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.start_limits import count_from_first_round

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5)


class Told(RebalanceListener):
    """Records its calls together with other events."""

    def __init__(self, name: str, events: list[str], topic: str = "t") -> None:
        self._topic = topic
        self._name = name
        self._events = events
        self.queues: set[int] = set()
        self.lost: list[MessageQueue] = []

    async def on_queues_assigned(self, queues: Sequence[MessageQueue]) -> None:
        assert all(queue.topic == self._topic for queue in queues)
        await asyncio.sleep(0)
        self.queues |= {queue.queue_id for queue in queues}
        self._events += [f"{self._name} has {queue.queue_id}" for queue in queues]

    async def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:
        await asyncio.sleep(0)
        self.queues -= {queue.queue_id for queue in queues}
        self._events += [f"{self._name} gives up {queue.queue_id}" for queue in queues]

    async def on_queues_lost(self, queues: Sequence[MessageQueue]) -> None:
        self.lost += queues


async def send(cluster: Cluster, queues: int, count: int) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number in range(count):
            await producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-0", number % queues))


@pytest.mark.parametrize("order", [Order.NONE, Order.BY_QUEUE], ids=str)
async def test_queues_change_hands_between_two_calls(tmp_path: Path, order: Order) -> None:
    events: list[str] = []
    first, second = Told("first", events), Told("second", events)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        await send(cluster, 4, 40)

        def member(name: str, told: Told) -> PushConsumer:
            async def consume(messages: list[MessageExt]) -> None:
                for message in messages:
                    assert message.queue.queue_id in told.queues
                    events.append(f"{name} reads {message.queue.queue_id}")

            config = replace(FAST, order=order, rebalance_listener=told, allocate_strategy=AveragelyByCircle())
            consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
            consumer.subscribe("t", "*", consume)
            return consumer

        async with member("first", first):
            await eventually(lambda: first.queues == {0, 1, 2, 3} and "first reads 3" in events)
            async with member("second", second):
                await eventually(lambda: len(second.queues) == 2 and first.queues | second.queues == {0, 1, 2, 3})
                assert sorted(map(sorted, (first.queues, second.queues))) == [[0, 2], [1, 3]]
                for number in second.queues:
                    assert events.index(f"first gives up {number}") < events.index(f"second has {number}")
                await send(cluster, 4, 40)
                await eventually(lambda: any(event.startswith("second reads") for event in events))
            assert second.queues == set()
            await eventually(lambda: first.queues == {0, 1, 2, 3})
        assert first.queues == set()
        assert not first.lost


async def test_calls_that_fail_or_hang_do_not_keep_queues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Bad(RebalanceListener):
        async def on_queues_assigned(self, queues: Sequence[MessageQueue]) -> None:
            raise KeyError(len(queues))

        async def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:
            while True:  # ignores its cancellation, too
                try:
                    await forever.wait()
                except asyncio.CancelledError:
                    if forever.is_set():
                        raise
                else:
                    return

    forever = asyncio.Event()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await send(cluster, 2, 2)
        config = replace(FAST, rebalance_listener=Bad(), hand_over_timeout=0.2)
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            await (await anext(consumer)).ack()
        forever.set()
    assert "on_queues_assigned of group g failed for t@broker-0:0, t@broker-0:1" in caplog.text
    assert "on_queues_revoked of group g was cancelled after 0.2 s (hand_over_timeout)" in caplog.text


async def test_lost_queues_are_told(tmp_path: Path) -> None:
    told = Told("only", [])
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        config = replace(FAST, rebalance_listener=told)
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            await eventually(lambda: told.queues == {0})
            assert consumer._running is not None
            consumer._running.rebalancer.locks_lost([MessageQueue("t", "broker-0", 0)])
            await eventually(lambda: told.lost == [MessageQueue("t", "broker-0", 0)])


class Broken(AllocateStrategy):
    """A strategy that fails, or returns an unknown queue."""

    def __init__(self, result: list[MessageQueue] | None) -> None:
        self._result = result

    def share_of(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if self._result is None:
            raise KeyError(client_id)
        return self._result


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "Broken could not divide the queues of topic t: KeyError"),
        ([MessageQueue("u", "b", 0)], "it has returned u@b:0, which is not a queue of the topic"),
    ],
    ids=["raises", "invents"],
)
async def test_a_broken_strategy_is_an_error_of_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: list[MessageQueue] | None, text: str
) -> None:
    count_from_first_round(monkeypatch)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        config = replace(FAST, allocate_strategy=Broken(result), start_timeout=1.0)
        consumer = Consumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t")
        with pytest.raises(ClientError, match=text):
            await consumer.start()


def test_a_plain_function_is_refused() -> None:
    class Plain(RebalanceListener):
        def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:  # type: ignore[override]
            """A function that is not async."""

    with pytest.raises(ConfigError, match=r"Plain\.on_queues_revoked must be async def"):
        ConsumerConfig(rebalance_listener=Plain())
    with pytest.raises(ConfigError, match="rebalance_listener must be RebalanceListener or None"):
        ConsumerConfig(rebalance_listener=cast("Any", print))
