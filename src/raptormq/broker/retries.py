"""Retry and dead-letter topics of messages that a consumer group failed to process (``AbstractSendMessageProcessor``,
``SendMessageProcessor.handleRetryAndDLQ``).

A failed message is stored in ``%RETRY%group``, which the group's consumers also read. After too many attempts it is
stored in the dead-letter topic ``%DLQ%group``, which no consumer reads by default. The request of the consumer may
contain the maximum number of attempts. Otherwise the limit of the group applies (default 16). As in RocketMQ, the limit
is one higher for a message that the client sends to the retry topic than for a message that it sends back (36).
"""

from __future__ import annotations

import random

from raptormq.broker.config import Policies
from raptormq.broker.tables import GroupConfig, GroupTable, TopicTable
from raptormq.broker.validation import require_group
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.topic_names import RETRY_PREFIX, dlq_topic
from raptormq.storage.fs import TableSaver
from raptormq.transport.router import Refused

_LIMIT_DIGITS = 10
"""Longer numbers exceed 32 bits and are ignored."""


class RetryTopics:
    """Selects the retry or dead-letter topic of a message and creates missing topics."""

    def __init__(self, topics: TopicTable, topics_saver: TableSaver, groups: GroupTable, policies: Policies) -> None:
        self._topics = topics
        self._topics_saver = topics_saver
        self._groups = groups
        self._policies = policies

    def group(self, name: str) -> GroupConfig:
        """Return the settings of a consumer group.

        Raises:
            Refused: 26 if the group does not exist and may not be created, 29 for an invalid name.
        """
        return require_group(self._groups, name, auto_create=self._policies.auto_create_group)

    def retry_queue(self, group: GroupConfig) -> tuple[TopicConfig, int]:
        """Return the retry topic of ``group`` and a random queue of it. Create the topic if it does not exist.

        Raises:
            Refused: 16 if the topic is not writable.
        """
        config = self._topics.ensure_retry_topic(group.name, group.retry_queue_nums)
        if not config.perm & Perm.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {config.topic_name} is not writable")
        # The group's setting may exceed the number of queues of the topic, which consumers read.
        return config, random.randrange(max(1, min(group.retry_queue_nums, config.read_queue_nums)))

    def dead_letter_topic(self, group: str) -> str:
        """Return the dead-letter topic of ``group``. Create it if it does not exist."""
        topic = dlq_topic(group)
        if self._topics.get(topic) is None:
            self._topics.put(TopicConfig(topic, 1, 1))
        return topic

    def exists(self, topic: str, group: str) -> bool:
        """Return whether ``topic`` and ``group`` exist. Messages of a deleted topic or group are not retried."""
        return self._topics.get(topic) is not None and self._groups.get(group) is not None

    def ensure_pop_topic(self, topic: str) -> None:
        """Create ``topic``, a retry topic of POP consumption, unless it exists."""
        if self._topics.get(topic) is None:
            self._topics.put(TopicConfig(topic, 1, 1))

    async def saved(self) -> None:
        """Wait until created topics are on disk. If a crash removed a topic, its messages could not be read.

        Raises:
            StorageError: the table cannot be written.
        """
        await self._topics_saver.saved()

    def redirected(self, topic: str, times: int, limit: str | None) -> str | None:
        """Return the dead-letter topic if ``topic`` is a retry topic and ``times`` exceeds the limit, otherwise None.

        ``limit`` is the value of the request (text), or None if the request has none.

        Raises:
            Refused: 26 if the group does not exist and may not be created.
        """
        if not topic.startswith(RETRY_PREFIX):
            return None
        group = self.group(topic[len(RETRY_PREFIX) :])
        most = parse_natural(limit, _LIMIT_DIGITS)
        if most is None:
            most = group.retry_max_times
        return self.dead_letter_topic(group.name) if times > most else None
