"""Rebalancing of a consumer with very many topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from raptormq.client import ClientConfig, ConsumerConfig, MessageModel
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.handover import Handover
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.rebalance import Rebalancer
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.client.interceptors import ConsumeChain
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message import MessageQueue
from tests.client.member import Member
from tests.client.scripted_peer import ScriptedPeer, route

TOPICS = [f"t{number}" for number in range(640)]


def reader(queue: MessageQueue, subscription: Subscription, _: object) -> QueueReader:
    return cast("QueueReader", SimpleNamespace(queue=queue, subscription=subscription))


@asynccontextmanager
async def of_many_topics() -> AsyncIterator[Rebalancer]:
    """Return the readers of a broadcasting consumer, which requests no members."""
    subscriptions = {topic: Subscription(topic) for topic in TOPICS}
    async with ScriptedPeer() as names, ScriptedPeer() as broker:
        names.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(2, broker))
        instance = ClientInstance.acquire(ClientConfig(names.address))
        instance.register_consumer("g", Member())
        handover = Handover(None, cast("Any", None), 1.0, RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ())))
        config = ConsumerConfig(message_model=MessageModel.BROADCASTING)
        try:
            yield Rebalancer(
                instance,
                "g",
                config,
                lambda: subscriptions,
                reader,
                handover,
                RebalanceCalls(None, "g", 1.0, ConsumeChain("g", ())),
            )
        finally:
            await instance.release()


async def test_while_a_thousand_topics_are_looked_at_others_have_their_turns() -> None:
    async with of_many_topics() as rebalancing:
        assert await rebalancing._rebalance(False)
        assert len(rebalancing.readers) == 2 * len(TOPICS)
        look = asyncio.create_task(rebalancing._rebalance(False))
        turns = 0
        while not look.done():
            await asyncio.sleep(0)
            turns += 1
        assert look.result()
        assert turns >= len(TOPICS) / 64
