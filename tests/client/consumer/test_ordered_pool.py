"""Listener calls in order."""

from __future__ import annotations

from typing import cast

import pytest

from raptormq.client import ConsumerConfig, MessageExt, Order
from raptormq.client.consumer.listener_call import Listener
from raptormq.client.consumer.ordered_pool import OrderedPool
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from tests.client.listener_pools import Giving, Reader, message


@pytest.mark.parametrize("order", [Order.BY_QUEUE, Order.BY_KEY])
async def test_messages_of_one_retry_topic_go_to_the_listeners_of_their_own_topics(order: Order) -> None:
    seen: list[tuple[str, list[int]]] = []

    def listener_for(topic: str) -> Listener:
        async def listener(messages: list[MessageExt]) -> None:
            seen.append((topic, [each.queue_offset for each in messages]))

        return listener

    reader, redelivery = Reader(), cast("Redelivery", Giving(takes=False))
    listeners = {"a": listener_for("a"), "b": listener_for("b")}
    config = ConsumerConfig(order=order, consume_batch=10)
    pool = OrderedPool(config, "g", listeners.get, ConsumeChain("g", ()), redelivery, lambda _: None)
    pool.start()
    try:
        retried = [message(offset, "%RETRY%g", RETRY_TOPIC="aab"[offset]) for offset in range(3)]
        for each in retried:
            reader.process_queue.add(each.queue_offset, 1)
        pool.submit(cast("QueueReader", reader), reader.process_queue, retried)
        await reader.until(3)
    finally:
        await pool.stop(0.1)
    assert sorted(seen) == [("a", [0, 1]), ("b", [2])]
