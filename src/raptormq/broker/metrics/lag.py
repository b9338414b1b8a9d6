"""Consumer lag for the exporter, and the age of queues.

:class:`LagCollector` counts messages, in batch queues too. The lag of a group in a topic is the sum over the topic's
queues of the messages from its committed offset on; in a queue without a committed offset, of all messages. Messages
that retention deleted before the group consumed them are counted separately. Three kinds of groups have no lag:

- A group in a topic in which it has never committed an offset.
- A broadcasting group, whose members keep their progress themselves.
- Internal groups of brokers and tools: their messages are not work that is due (the broker's own offset in the queue of
  half messages stays at the oldest open transaction).

:func:`first_stored_at` and :func:`last_stored_at` return when the first and last messages of a queue were stored,
:func:`is_young` whether a queue is young.

:mod:`raptormq.broker.handlers.consumers` reports the same to tools, queue by queue.
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
"""Fraction of the memory within which the end of the log counts as being in memory
(``accessMessageInMemoryMaxRatio``)."""
_IN_MEMORY_BYTES = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _IN_MEMORY_RATIO)


async def stored_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return the store time (ms) of the message at a queue offset, -1 when there is none.

    It is read from the record, which may be a batch: reading the message would unpack the batch, for each of many
    queues.
    """
    items = await store.queue_items(topic, queue_id, offset, 1)
    if not items:
        return NO_TIMESTAMP
    physical, size, _ = items[0]
    stored = await store.store_timestamp_at(physical, size)
    return NO_TIMESTAMP if stored is None else stored


async def first_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the oldest message of a queue, -1 when it is empty."""
    low, _ = await store.queue_bounds(topic, queue_id)
    return await stored_at(store, topic, queue_id, low)


async def last_stored_at(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the store time (ms) of the newest message of a queue, -1 when it is empty."""
    return await stored_at(store, topic, queue_id, store.queue_end(topic, queue_id) - 1)


async def is_young(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Return whether the queue still has its very first message, and that message is close enough to the end of the log
    to be in memory. Whether it is in fact resident is not checked.
    """
    first = await store.queue_items(topic, queue_id, 0, 1)
    return bool(first) and store.end_offset - first[0][0] <= _IN_MEMORY_BYTES


COLLECT_TIMEOUT_S = 1.5
"""Longest time for all lags of a scrape: Prometheus gives up after 10 s, and clients come first."""
MAX_PAIRS = 10_000
"""Largest number of pairs of group and topic; each is a time series."""


class TopicLag(NamedTuple):
    """Lag of one group in one topic."""

    group: str
    topic: str
    lag: GroupLag


class GroupLags(NamedTuple):
    """The lags collected within the time limit."""

    lags: list[TopicLag]
    left_out: int
    """Number of pairs of group and topic without a lag: the time was up, or a queue cannot be read."""


class LagCollector:
    """Collects the lags of all groups. A scrape that runs out of time continues at the next one."""

    def __init__(self, store: MessageStore, topics: TopicTable) -> None:
        self._store = store
        self._topics = topics
        self._begin = 0

    async def collect(self) -> GroupLags:
        """Return the lags of as many groups as the time limit allows; yields to the event loop."""
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
                        pass  # the consumer of that queue gets the error; the other lags are still reported
                    done += 1
        except TimeoutError:
            done = max(done, 1)  # a lag that takes all the time must not block the others for ever
        self._begin = begin + done
        return GroupLags(found, len(pairs) - len(found))

    async def _lag(self, topic: str, group: str) -> GroupLag:
        config = self._topics.get(topic)
        progress = self._store.consumer_offsets.row(topic, group)
        lag = NO_LAG
        async for queue_id in cooperatively(range(config.read_queue_nums if config is not None else 0)):
            consumed, high = progress.get(queue_id), self._store.queue_end(topic, queue_id)
            if consumed is None or consumed < high:  # else the lag is 0, wherever the queue begins
                lag = lag.plus(GroupLag.between(consumed, *await self._store.queue_bounds(topic, queue_id)))
        return lag
