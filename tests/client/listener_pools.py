"""Pools of listener calls without a broker, with replacements for their neighbours."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from raptormq.client import ConsumerConfig, MessageExt, MessageQueue
from raptormq.client.consumer.listener_call import Listener, WholeBatches
from raptormq.client.consumer.listener_pool import ListenerPool
from raptormq.client.consumer.process_queue import ProcessQueue, RunningCalls
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain

QUEUE = MessageQueue("t", "broker-0", 0)
RETRY_QUEUE = MessageQueue("%RETRY%g", "broker-0", 0)
"""The only kind of queue whose messages have different topics."""


class Reader:
    """Replacement for a queue reader. It records completed messages."""

    def __init__(self) -> None:
        self.queue = QUEUE
        self.is_paused = False
        self.locked_until = math.inf
        self.calls = RunningCalls()
        self.process_queue = ProcessQueue(0)
        self.finished_offsets: list[int] = []
        self._changed = asyncio.Event()

    def complete(self, process_queue: ProcessQueue, offset: int) -> None:
        assert process_queue is self.process_queue
        process_queue.complete(offset)
        self.finished_offsets.append(offset)
        self._changed.set()

    async def until(self, count: int) -> None:
        while len(self.finished_offsets) < count:
            self._changed.clear()
            await self._changed.wait()


class Giving:
    """Replacement for the redelivery. It accepts messages or refuses them."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.given: list[MessageExt] = []

    async def send_back(self, message: MessageExt) -> bool:
        self.given.append(message)
        return self.takes

    @staticmethod
    def retry_delay(times: int) -> float:
        return 0.01 * times


def message(offset: int, topic: str = "t", **properties: str) -> MessageExt:
    return MessageExt(topic, b"%d" % offset, properties, QUEUE, offset, offset, f"id{offset}", "", 0, 0)


HandOut = Callable[[list[MessageExt]], None]


@asynccontextmanager
async def listening(
    listener: Listener | WholeBatches | None,
    takes: bool = True,
    config: ConsumerConfig | None = None,
    later: Mapping[str, Listener] | None = None,
) -> AsyncIterator[tuple[ListenerPool, Reader, Giving, HandOut]]:
    reader, giving = Reader(), Giving(takes)
    calls = ListenerPool(
        config or ConsumerConfig(),
        "g",
        lambda topic: (later or {}).get(topic, listener),
        ConsumeChain("g", ()),
        cast("Redelivery", giving),
    )
    calls.start()

    def hand_out(messages: list[MessageExt]) -> None:
        reader.queue = QUEUE if {each.topic for each in messages} == {"t"} else RETRY_QUEUE
        for each in messages:
            reader.process_queue.add(each.queue_offset, 1)
        calls.submit(cast("QueueReader", reader), reader.process_queue, messages)

    try:
        yield calls, reader, giving, hand_out
    finally:
        await calls.stop(0.1)
