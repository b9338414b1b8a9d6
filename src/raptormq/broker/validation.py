"""Checks shared by many handlers: the topic exists, it has the queue, the group may consume.

A failed check raises :class:`~raptormq.transport.router.Refused`, which becomes the answer.
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
"""Largest number of groups created by heartbeats and pulls: random group names must not fill disk and memory."""


def require_topic(topics: TopicTable, topic: str) -> TopicConfig:
    """Return the topic's configuration or refuse with 17."""
    config = topics.get(topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
    return config


def require_same_topic(topics: TopicTable, topic: str, meant: str | None) -> str | None:
    """Return the topic id to put into the answer, None unless the request asks for it. Refuse with 17 or 31002 when the
    request means a topic that was deleted.

    ``meant`` is the request's field, see :mod:`raptormq.protocol.topic_ids`. A topic without an id matches every id.
    """
    if meant is None:
        return None
    if meant == TOPIC_ID_QUERY:
        return topics.published_id(topic)
    if is_other_topic(topics, topic, meant):
        raise topic_recreated(topic, meant)
    require_topic(topics, topic)
    return None


def topic_recreated(topic: str, meant: str) -> Refused:
    """Return the refusal of a request that means a deleted topic."""
    remark = f"topic {topic} was deleted and recreated; its id is no longer {meant:.40}"
    return Refused(ResponseCode.TOPIC_RECREATED, remark)


def is_other_topic(topics: TopicTable, topic: str, meant: str) -> bool:
    """Return whether the topic has an id other than ``meant``."""
    config = topics.get(topic)
    return config is not None and config.topic_id not in ("", meant)


def require_read_queue(topics: TopicTable, topic: str, queue_id: int, connection: Connection) -> TopicConfig:
    """Return the topic's configuration if it has the queue; refuse with 17 or 29."""
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
    told = (
        f"topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}"
    )
    return f"request queueId[{queue_id}] is illegal, TopicConfig [{told}] Producer: {producer}"


def require_group(groups: GroupTable, group: str, *, auto_create: bool) -> GroupConfig:
    """Return the group's settings; a missing group is created with defaults where allowed. Refuse with 2, 26 or 29."""
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
        raise Refused(ResponseCode.SYSTEM_BUSY, f"there are {MAX_GROUPS} consumer groups already")
    config = GroupConfig(group)
    groups.put(config)
    return config
