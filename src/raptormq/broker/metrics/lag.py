"""How many messages consumer groups have still to consume, for the broker's figures, and the ages of queues.

:class:`LagCollector` counts messages, in the queues of batches, too. The lag of a group in a topic is the sum over the
topic's queues of what is there behind its committed offset; in a queue without a committed offset, of all that is
there. What retention has deleted before the group came to it is counted by itself. Three kinds of groups have no lag
here:

- A group has none in a topic in which it has never committed anything.
- A broadcasting group has none, since its members keep their progress themselves.
- Groups of brokers and tools have none: what they leave behind is no work that is due (the broker's own offset in the
  queue of halves stays where the oldest open transaction is).

:func:`first_stored_at` and :func:`last_stored_at` say when the first and last messages of a queue were stored,
:func:`is_young` whether a queue is young.

Neighbour: :mod:`raptormq.broker.handlers.consumers` answers the same to tools, queue by queue.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from raptormq.broker.tables import TopicTable
from raptormq.errors import StorageError
from raptormq.protocol.bodies.group_progress import NO_LAG, GroupLag
from raptormq.protocol.topic_names import is_system_group
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore

NO_TIMESTAMP = -1
_IN_MEMORY_RATIO = 0.4
"""Share of the memory within which the end of the log counts as being in memory (``accessMessageInMemoryMaxRatio``)."""
_IN_MEMORY_BYTES = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _IN_MEMORY_RATIO)


async def stored_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return the store time (ms) of the message at a queue offset, -1 when there is none.

    It is in the record, batch or message: a read of the message would take its batch apart, in each of many queues.
    """
    items = await store.queue_items(topic, queue_id, offset, 1)
    if not items:
        return NO_TIMESTAMP
    physical, size, _ = items[0]
    stored = await store.store_timestamp_at(physical, size)
    return NO_TIMESTAMP if stored is None else stored


async def first_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the oldest message of a queue, -1 without one."""
    low, _ = await store.queue_bounds(topic, queue_id)
    return await stored_at(store, topic, queue_id, low)


async def last_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the newest message of a queue, -1 without one."""
    return await stored_at(store, topic, queue_id, store.queue_end(topic, queue_id) - 1)


async def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """True when the queue still has its very first message, and that is so near to the end of the log that it might be
    in memory; whether it is there does not matter.
    """
    first = await store.queue_items(topic, queue_id, 0, 1)
    return bool(first) and store.end_offset - first[0][0] <= _IN_MEMORY_BYTES


COLLECT_TIMEOUT_S = 1.5
"""Longest time for all of them: Prometheus gives up after 10 s, and who is busy serves clients first."""
MAX_PAIRS = 10_000
"""Groups times topics: each is a time series."""


class TopicLag(NamedTuple):
    """What one group has before it in one topic."""

    group: str
    topic: str
    lag: GroupLag


class GroupLags(NamedTuple):
    """What was found in the time there is."""

    lags: list[TopicLag]
    left_out: int
    """Pairs of group and topic that there was no time for, or that have a queue that cannot be read."""


class LagCollector:
    """Looks at all groups, round after round: what there was no time for comes first the next time."""

    def __init__(self, store: MessageStore, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics
        self._begin = 0

    async def collect(self) -> GroupLags:
        """Return the lags of as many groups as there is time for; others have their turn meanwhile."""
        everybody = cooperatively(self._store.consumer_offsets.topics_and_groups())
        topics = self._topics.configs
        pairs = [pair async for pair in everybody if pair[0] in topics and not is_system_group(pair[1])]
        begin = self._begin % max(len(pairs), 1)
        found: list[TopicLag] = []
        done = 0
        try:
            async with asyncio.timeout(COLLECT_TIMEOUT_S):
                async for topic, group in cooperatively((pairs[begin:] + pairs[:begin])[:MAX_PAIRS]):
                    try:
                        found.append(TopicLag(group, topic, await self._lag(topic, group)))
                    except StorageError:
                        pass  # whoever consumes there is told; the others have their figures
                    done += 1
        except TimeoutError:
            done = max(done, 1)  # one that takes all the time there is does not keep the others waiting for ever
        self._begin = begin + done
        return GroupLags(found, len(pairs) - len(found))

    async def _lag(self, topic: str, group: str) -> GroupLag:
        config = self._topics.get(topic)
        progress = self._store.consumer_offsets.row(topic, group)
        lag = NO_LAG
        async for queue_id in cooperatively(range(config.read_queue_nums if config is not None else 0)):
            consumed, high = progress.get(queue_id), self._store.queue_end(topic, queue_id)
            if consumed is None or consumed < high:  # else there is none, wherever the queue begins
                lag = lag.plus(GroupLag.between(consumed, *await self._store.queue_bounds(topic, queue_id)))
        return lag
