"""Creates a topic when its first message arrives (``AbstractSendMessageProcessor.msgCheck``).

As in RocketMQ, a retry topic is created also with ``autoCreateTopicEnable=false``, because clients send retries
themselves when a request to send a message back (36) fails. Unlike in RocketMQ, its group must exist or be allowed to
be created.
"""

from __future__ import annotations

from raptormq.broker.config import Policies
from raptormq.broker.retries import RetryTopics
from raptormq.broker.tables import TopicTable
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.topic_names import RETRY_PREFIX, is_derived_topic, topic_name_error
from raptormq.transport.router import Refused

MAX_TOPICS = 200_000
"""No topic is auto-created beyond this number of topics, so that random topic names cannot fill disk and memory."""


class TopicCreator:
    """Creates missing topics if the settings and the template topic allow it."""

    def __init__(self, topics: TopicTable, retries: RetryTopics, policies: Policies) -> None:
        self._topics = topics
        self._retries = retries
        self._policies = policies

    def create(self, topic: str, template: str, queues: str) -> TopicConfig:
        """Create ``topic`` as a copy of ``template`` with at most ``queues`` (decimal text) queues, and return it. A
        retry or dead-letter topic is created with one queue and without a template.

        Raises:
            Refused: 29 for an invalid name, 17 if the topic may not be created, 26 if it is the retry topic of a group
                that does not exist and may not be created.
        """
        if (fault := topic_name_error(topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        is_retry = topic.startswith(RETRY_PREFIX)
        if is_retry or self._policies.auto_create_topic:
            if len(self._topics.configs) >= MAX_TOPICS:
                remark = f"topic[{topic}] not exist, and the limit of {MAX_TOPICS} topics is reached"
                raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
            if is_retry:
                self._retries.group(topic.removeprefix(RETRY_PREFIX))
            if is_derived_topic(topic):
                self._topics.put(TopicConfig(topic, 1, 1))
                return self._topics.configs[topic]
            count = int(queues) if queues.isdecimal() and len(queues) < 6 else 1
            created = self._topics.auto_create(topic, template, count)
            if created is not None:
                return created
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
