"""Listener calls in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never, cast

import pytest

from raptormq.client import ConsumerConfig, MessageExt, Order
from raptormq.client.consumer.listener_call import Listener
from raptormq.client.consumer.ordered_pool import OrderedPool
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from tests.client.listener_pools import Giving, Reader, message


async def consume(
    reader: Reader,
    config: ConsumerConfig,
    listener_of: Callable[[str], Listener | None],
    messages: list[MessageExt],
) -> None:
    """Submit messages of one queue, and wait until all are completed."""
    redelivery = cast("Redelivery", Giving(takes=False))
    pool = OrderedPool(config, "g", listener_of, ConsumeChain("g", ()), redelivery, lambda _: None)
    pool.start()
    try:
        for each in messages:
            reader.process_queue.add(each.queue_offset, 1)
        pool.submit(cast("QueueReader", reader), reader.process_queue, messages)
        await reader.until(len(messages))
    finally:
        await pool.stop(0.1)


@pytest.mark.parametrize("order", [Order.BY_QUEUE, Order.BY_KEY])
async def test_messages_of_one_retry_topic_go_to_the_listeners_of_their_own_topics(order: Order) -> None:
    seen: list[tuple[str, list[int]]] = []

    def listener_for(topic: str) -> Listener:
        async def listener(messages: list[MessageExt]) -> None:
            seen.append((topic, [each.queue_offset for each in messages]))

        return listener

    reader, retried = Reader(), [message(offset, "%RETRY%g", RETRY_TOPIC="aab"[offset]) for offset in range(3)]
    listeners = {"a": listener_for("a"), "b": listener_for("b")}
    await consume(reader, ConsumerConfig(order=order, consume_batch=10), listeners.get, retried)
    assert sorted(seen) == [("a", [0, 1]), ("b", [2])]


@pytest.mark.parametrize("error", [ValueError("as planned"), BaseExceptionGroup("as planned", [BaseException()])])
async def test_messages_whose_key_cannot_be_computed_are_consumed_as_those_without_a_key(error: BaseException) -> None:
    seen: list[int] = []

    async def listener(messages: list[MessageExt]) -> None:
        seen.extend(each.queue_offset for each in messages)

    def order_key(_: MessageExt) -> Never:
        raise error

    config = ConsumerConfig(order=Order.BY_KEY, order_key=order_key)
    async with asyncio.timeout(5):
        await consume(Reader(), config, lambda _: listener, [message(0), message(1)])
    assert seen == [0, 1]
