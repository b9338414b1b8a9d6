"""Consumer lag for the exporter, and the age of queues.

:class:`LagCollector` computes lags in messages, also for batch queues. The lag of a group in a topic is the number of
messages behind its committed offsets, summed over the queues of the topic. In a queue without a committed offset, all
messages count. Messages that retention deleted before the group consumed them are counted separately. There is no lag
for:

- a group in a topic in which it has never committed an offset
- a broadcasting group, whose members store their progress themselves
- internal groups of brokers and tools, whose offsets do not show pending work. For example, the broker's offset in the
  half queue remains at the oldest open transaction.

:func:`first_stored_at` and :func:`last_stored_at` return the store times of the first and last message of a queue.
:func:`is_young` returns whether a queue still has its first message.

:mod:`raptormq.broker.handlers.consumers` reports the lag of each queue to administration tools.
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
"""Fraction of the physical memory that is assumed to hold the newest part of the log (the default of
``accessMessageInMemoryMaxRatio``).
"""
_IN_MEMORY_BYTES = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _IN_MEMORY_RATIO)


async def stored_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return the store time (ms since 1970) of the message at a queue offset, or -1 if there is none.

    The time is read from the header of the record without unpacking a batch, because callers query many queues.
    """
    items = await store.queue_items(topic, queue_id, offset, 1)
    if not items:
        return NO_TIMESTAMP
    physical, size, _ = items[0]
    stored = await store.store_timestamp_at(physical, size)
    return NO_TIMESTAMP if stored is None else stored


async def first_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms since 1970) of the oldest message of a queue, or -1 if the queue is empty."""
    low, _ = await store.queue_bounds(topic, queue_id)
    return await stored_at(store, topic, queue_id, low)


async def last_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms since 1970) of the newest message of a queue, or -1 if the queue is empty."""
    return await stored_at(store, topic, queue_id, store.queue_end(topic, queue_id) - 1)


async def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Return whether the queue still has its message at offset 0, and this message is close enough to the end of the
    log to be in memory. The function does not check whether its pages are resident.
    """
    first = await store.queue_items(topic, queue_id, 0, 1)
    return bool(first) and store.end_offset - first[0][0] <= _IN_MEMORY_BYTES


COLLECT_TIMEOUT_S = 1.5
"""Time limit for the lags of a scrape, in seconds. Prometheus has a timeout of 10 s, and clients have priority."""
MAX_PAIRS = 10_000
"""Maximum number of pairs of group and topic in a scrape. Each pair is a time series."""


class TopicLag(NamedTuple):
    """Lag of one group in one topic."""

    group: str
    topic: str
    lag: GroupLag


class GroupLags(NamedTuple):
    """The lags collected within the time limit."""

    lags: list[TopicLag]
    left_out: int
    """Number of pairs of group and topic without a lag: the time limit was reached, or a queue cannot be read."""


class LagCollector:
    """Collects the lags of all groups. After a time limit, the next scrape continues with the remaining groups."""

    def __init__(self, store: MessageStore, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics
        self._begin = 0

    async def collect(self) -> GroupLags:
        """Return the lags of the groups that can be read within the time limit. Yields to the event loop."""
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
                        pass  # the consumers of the queue receive the error; other lags are still reported
                    done += 1
        except TimeoutError:
            done = max(done, 1)  # skip a lag that takes longer than the limit, or it would block all others
        self._begin = begin + done
        return GroupLags(found, len(pairs) - len(found))

    async def _lag(self, topic: str, group: str) -> GroupLag:
        config = self._topics.get(topic)
        progress = self._store.consumer_offsets.row(topic, group)
        lag = NO_LAG
        async for queue_id in cooperatively(range(config.read_queue_nums if config is not None else 0)):
            consumed, high = progress.get(queue_id), self._store.queue_end(topic, queue_id)
            if consumed is None or consumed < high:  # otherwise the lag is 0
                lag = lag.plus(GroupLag.between(consumed, *await self._store.queue_bounds(topic, queue_id)))
        return lag
