"""The topics that every broker owns from its first start (``TopicConfigManager``).

Tools rely on them: the topic named after the cluster gives the routes of all its brokers, the one named after the
broker the route to this one, and ``TBW102`` is the template that routes and configurations of unknown topics are
copied from.
"""

from __future__ import annotations

from raptormq.broker.config import Identity, Policies
from raptormq.protocol import topic_names
from raptormq.protocol.bodies.topic_config import READ_WRITE, Perm, TopicConfig

_TEMPLATE = READ_WRITE | int(Perm.INHERIT)
_DELAY_LEVELS = 18


def system_topics(identity: Identity, policies: Policies) -> list[TopicConfig]:
    """Return the system topics of a broker with these settings."""
    cluster, broker = identity.cluster_name, identity.broker_name
    topics = [
        _topic(topic_names.SELF_TEST_TOPIC, 1),
        _topic(topic_names.BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, _TEMPLATE if policies.cluster_topic else int(Perm.INHERIT)),
        _topic(broker, 1, _TEMPLATE if policies.broker_topic else int(Perm.INHERIT)),
        _topic(topic_names.OFFSET_MOVED_EVENT, 1),
        _topic(topic_names.SCHEDULE_TOPIC, _DELAY_LEVELS),
        _topic(topic_names.reply_topic(cluster), 1),
        _topic(f"{topic_names.REVIVE_PREFIX}{cluster}", 8),
        _topic(f"{topic_names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, int(Perm.INHERIT)),
        _topic(topic_names.HALF_TOPIC, 1),
        _topic(topic_names.OP_HALF_TOPIC, 1),
        _topic(topic_names.TIMER_TOPIC, 1),
    ]
    if policies.auto_create_topic:
        topics.append(_topic(topic_names.AUTO_CREATE_TOPIC, policies.default_queue_count, _TEMPLATE))
    if policies.trace_topic:
        topics.append(_topic(topic_names.TRACE_TOPIC, 1))
    return topics


def _topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)
