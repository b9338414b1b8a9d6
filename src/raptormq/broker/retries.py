"""Retry and dead-letter topics of messages that a consumer group failed to process (``AbstractSendMessageProcessor``,
``SendMessageProcessor.handleRetryAndDLQ``).

A failed message goes to ``%RETRY%group``, which the group's consumers also read. After too many attempts it goes to the
dead-letter topic ``%DLQ%group``, which no consumer reads by default. The limit is the consumer's own, if it sends one,
otherwise that of the group (16). As in RocketMQ, a message that is sent back (36) is consumed at most that many times,
a message that the client itself sends to the retry topic once more.
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
from raptormq.transport.router import Refused

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry (10 s); each further retry uses the next level."""
_LIMIT_DIGITS = 10
"""Longer numbers do not fit into 32 bits and are ignored."""


class RetryTopics:
    """Selects the retry or dead-letter topic of a message, and creates it."""

    def __init__(self, topics: TopicTable, groups: GroupTable, policies: Policies) -> None:
        self._topics = topics
        self._groups = groups
        self._policies = policies

    def group(self, name: str) -> GroupConfig:
        """Return the settings of a consumer group.

        Raises:
            Refused: 26 when the group does not exist and may not be created, 29 for an invalid name.
        """
        return require_group(self._groups, name, auto_create=self._policies.auto_create_group)

    def retry_queue(self, group: GroupConfig) -> tuple[TopicConfig, int]:
        """Return the group's retry topic, created if necessary, and one of its queues.

        Raises:
            Refused: 16, the topic is not writable.
        """
        config = self._topics.ensure_retry_topic(group.name, group.retry_queue_nums)
        if not config.perm & Perm.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {config.topic_name} is not writable")
        # The group may have more retry queues than its topic; nobody would read the others.
        return config, random.randrange(max(1, min(group.retry_queue_nums, config.read_queue_nums)))

    def dead_letter_topic(self, group: str) -> str:
        """Return the group's dead-letter topic, created if necessary."""
        topic = dlq_topic(group)
        if self._topics.get(topic) is None:
            self._topics.put(TopicConfig(topic, 1, 1))
        return topic

    def redirected(self, topic: str, times: int, limit: str | None) -> str | None:
        """Return the dead-letter topic for a send to a retry topic whose message was consumed too often, else None.

        ``limit`` is the consumer's limit as text, if it sends one.

        Raises:
            Refused: 26 when the group does not exist and may not be created.
        """
        if not topic.startswith(RETRY_PREFIX):
            return None
        group = self.group(topic[len(RETRY_PREFIX) :])
        most = parse_natural(limit, _LIMIT_DIGITS)
        if most is None:
            most = group.retry_max_times
        return self.dead_letter_topic(group.name) if times > most else None
