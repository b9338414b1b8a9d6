"""Where a message goes that a consumer group failed to consume (``AbstractSendMessageProcessor``,
``SendMessageProcessor.handleRetryAndDLQ``).

To ``%RETRY%group``, from which the group's consumers read too, until it has been consumed too often; then to the dead
letters, ``%DLQ%group``, which nobody reads by himself. "Too often" is the consumer's own limit where it names one, else
that of the group's settings (16). One rule of RocketMQ's to know: a message that is given back (36) may be consumed as
often as the limit says, one that the client itself sends to the retry topic once more.
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
"""Delay level of the first retry (10 s); each further one waits a level longer."""
_LIMIT_DIGITS = 10
"""More than a number of 32 bits has says nothing."""


class RetryTopics:
    """Chooses retry or dead letters, and creates the topics for them."""

    def __init__(self, topics: TopicTable, groups: GroupTable, policies: Policies) -> None:
        self._topics = topics
        self._groups = groups
        self._policies = policies

    def group(self, name: str) -> GroupConfig:
        """Return the settings of a consumer group.

        Raises:
            Refused: 26 when there is none and none may be created, 29 for a bad name.
        """
        return require_group(self._groups, name, auto_create=self._policies.auto_create_group)

    def retry_queue(self, group: GroupConfig) -> tuple[TopicConfig, int]:
        """Return the group's retry topic, created if need be, and one of its queues.

        Raises:
            Refused: 16, the topic is not writable.
        """
        config = self._topics.ensure_retry_topic(group.name, group.retry_queue_nums)
        if not config.perm & Perm.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {config.topic_name} is not writable")
        # The group may have got more queues than its topic has: nobody would read the others.
        return config, random.randrange(max(1, min(group.retry_queue_nums, config.read_queue_nums)))

    def dead_letter_topic(self, group: str) -> str:
        """Return the group's topic of dead letters, created if need be."""
        topic = dlq_topic(group)
        if self._topics.get(topic) is None:
            self._topics.put(TopicConfig(topic, 1, 1))
        return topic

    def redirected(self, topic: str, times: int, limit: str | None) -> str | None:
        """Return the topic of dead letters for a send to a retry topic that was consumed too often, else None.

        ``limit`` is the consumer's (text of a number), where it names one.

        Raises:
            Refused: 26 when the group does not exist and must not be created.
        """
        if not topic.startswith(RETRY_PREFIX):
            return None
        group = self.group(topic[len(RETRY_PREFIX) :])
        most = parse_natural(limit, _LIMIT_DIGITS)
        if most is None:
            most = group.retry_max_times
        return self.dead_letter_topic(group.name) if times > most else None
