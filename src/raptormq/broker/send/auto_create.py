"""Creates a topic when its first message arrives (``TopicConfigManager.createTopicInSendMessageMethod``)."""

from __future__ import annotations

from raptormq.broker.config import Policies
from raptormq.broker.tables import TopicTable
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.topic_names import is_derived_topic, topic_name_error
from raptormq.transport.router import Refused

MAX_TOPICS = 200_000
"""No topic is auto-created beyond this number of topics, so that random topic names cannot fill disk and memory. The
limit does not apply to retry and dead-letter topics.
"""


class TopicCreator:
    """Creates missing topics if the settings and the template topic allow it."""

    def __init__(self, topics: TopicTable, policies: Policies) -> None:
        self._topics = topics
        self._policies = policies

    def create(self, topic: str, template: str, queues: str) -> TopicConfig:
        """Create ``topic`` as a copy of ``template`` with at most ``queues`` (decimal text) queues, and return it. A
        retry or dead-letter topic is created with one queue and without a template.

        Raises:
            Refused: 29 for an invalid name, 17 if the topic may not be created.
        """
        if (fault := topic_name_error(topic)) is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if is_derived_topic(topic):
            config = TopicConfig(topic, 1, 1)
            self._topics.put(config)
            return self._topics.configs[topic]
        if self._policies.auto_create_topic and len(self._topics.configs) < MAX_TOPICS:
            count = int(queues) if queues.isdecimal() and len(queues) < 6 else 1
            created = self._topics.auto_create(topic, template, count)
            if created is not None:
                return created
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
