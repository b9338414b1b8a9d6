"""Checks of topics, queues and groups that many handlers use.

A failed check raises :class:`~raptormq.transport.router.Refused` with the response code.
"""

from __future__ import annotations

from raptormq.broker.tables import GroupConfig, GroupTable, TopicTable
from raptormq.errors import MessageError
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.protocol.topic_names import check_group
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused

MAX_GROUPS = 100_000
"""Maximum number of groups that heartbeats and pulls create, so that random group names cannot fill disk and memory."""


def require_topic(topics: TopicTable, topic: str) -> TopicConfig:
    """Return the configuration of a topic.

    Raises:
        Refused: 17, the topic does not exist.
    """
    config = topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
    return config


def require_same_topic(topics: TopicTable, topic: str, requested_id: str | None) -> str | None:
    """Check that a request is for the current topic of this name. Return the topic id if the request queries it.

    ``requested_id`` is a field of the request (:mod:`raptormq.protocol.topic_ids`). A topic without an id matches every
    id.

    Raises:
        Refused: 31002 if the request is for a deleted topic of the same name, 17 if there is no topic.
    """
    if requested_id is None:
        return None
    if requested_id == TOPIC_ID_QUERY:
        return topics.published_id(topic)
    if is_other_topic(topics, topic, requested_id):
        raise topic_recreated(topic, requested_id)
    require_topic(topics, topic)
    return None


def topic_recreated(topic: str, requested_id: str) -> Refused:
    """Return the error for a request with the id of a deleted topic."""
    remark = f"topic {topic} was deleted and recreated; its id is no longer {requested_id:.40}"
    return Refused(ResponseCode.TOPIC_RECREATED, remark)


def is_other_topic(topics: TopicTable, topic: str, requested_id: str) -> bool:
    """Return whether the topic has an id other than ``requested_id``."""
    config = topics.get(topic)
    return config is not None and config.topic_id not in ("", requested_id)


def require_read_queue(topics: TopicTable, topic: str, queue_id: int, connection: Connection) -> TopicConfig:
    """Return the configuration of a topic that has the queue.

    Raises:
        Refused: 17 for an unknown topic, 29 for an unknown queue.
    """
    config = require_topic(topics, topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise Refused(ResponseCode.INVALID_PARAMETER, no_read_queue(config, queue_id, connection))
    return config


def no_read_queue(config: TopicConfig, queue_id: int, connection: Connection) -> str:
    """Return RocketMQ's remark for a read queue that the topic does not have."""
    limits = f"topic:[{config.topic_name}] topicConfig.readQueueNums:[{config.read_queue_nums}]"
    return f"queueId[{queue_id}] is illegal, {limits} consumer:[/{connection.peer_name}]"


def no_write_queue(config: TopicConfig, queue_id: int, producer: str) -> str:
    """Return RocketMQ's remark for a write queue that the topic does not have."""
    perm = "".join(
        letter if config.perm & bit else "-"
        for letter, bit in (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
    )
    attributes = ", ".join(f"{key}={value}" for key, value in config.attributes.items())
    description = (
        f"topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}"
    )
    return f"request queueId[{queue_id}] is illegal, TopicConfig [{description}] Producer: {producer}"


def require_group(groups: GroupTable, group: str, *, auto_create: bool) -> GroupConfig:
    """Return the settings of a group. With ``auto_create``, create a missing group with default settings.

    Raises:
        Refused: 26 for an unknown group, 29 for an invalid name, 2 if there are too many groups.
    """
    config = groups.get(group)
    if config is not None:
        return config
    if not auto_create:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {group} does not exist on this broker"
        )
    try:
        check_group(group)
    except MessageError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if len(groups.configs) >= MAX_GROUPS:
        raise Refused(ResponseCode.SYSTEM_BUSY, f"the limit of {MAX_GROUPS} consumer groups is reached")
    config = GroupConfig(group)
    groups.put(config)
    return config
