"""Selects the queues that a pop reads, and their order.

A pop reads the queues of its topic and those of the group's retry topic. It starts with a random queue. A pop of a
PRIORITY topic (RIP-80) reads the queues by number, because the queue number of a message is its priority: the highest
first, or the lowest with ``priorityOrderAsc = false``. The group's ``priority.factor`` is the percentage of its pops
that use this order. Orderly pops do not use it.
"""

from __future__ import annotations

import random

from raptormq.broker.config import BrokerConfig
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.protocol.topic_attributes import MESSAGE_TYPE, PRIORITY
from raptormq.protocol.topic_names import RETRY_PREFIX


class QueueOrder:
    """Lists the queues of a pop in reading order."""

    def __init__(self, topics: TopicTable, groups: GroupTable, config: BrokerConfig) -> None:
        self._topics = topics
        self._groups = groups
        self._pulling = config.pulling
        self._order = config.pop_order

    def queues(self, topic: str, group: str, queue_id: int, *, orderly: bool) -> list[tuple[str, int]]:
        """Return pairs of topic and queue id. A ``queue_id`` below 0 means all queues of ``topic``."""
        percent = random.randrange(100)
        by_priority = not orderly and self._is_by_priority(topic, group, percent)
        queue_ids = [queue_id] if queue_id >= 0 else self._queue_ids(topic, by_priority=by_priority)
        own = [(topic, each) for each in queue_ids]
        if orderly or topic.startswith(RETRY_PREFIX):
            return own
        v2, v1_too = self._pulling.retry_topic_v2, self._pulling.retry_topic_v1_too
        kinds = [True, False] if v2 and v1_too else [v2]
        retry_topics = [pop_retry_topic(topic, group, v2=kind) for kind in kinds]
        retries = [(retry, each) for retry in retry_topics for each in self._queue_ids(retry, by_priority=by_priority)]
        order = self._order
        retry_first = percent < (order.retry_first_percent_by_priority if by_priority else order.retry_first_percent)
        return retries + own if retry_first else own + retries

    def _is_by_priority(self, topic: str, group: str, percent: int) -> bool:
        """Return whether a pop reads the queues in the order of priority. ``percent`` is the random number of the pop
        (0 to 99), which is compared with the priority factor of the group.
        """
        config, settings = self._topics.get(topic), self._groups.get(group)
        if config is None or config.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        return settings is None or percent < settings.priority_factor

    def _queue_ids(self, topic: str, *, by_priority: bool) -> list[int]:
        config = self._topics.get(topic)
        count = config.read_queue_nums if config is not None else 0
        if by_priority:
            return list(range(count - 1, -1, -1) if self._order.highest_first else range(count))
        first = random.randrange(count) if count else 0
        return [(first + number) % count for number in range(count)]
