"""Validation and encoding of requests that create topics. No I/O.

See also: `admin.client` asks all brokers. Source: RocketMQ `MQClientAPIImpl.createTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from raptormq.client.settings import Limits, check_setting
from raptormq.errors import ConfigError
from raptormq.protocol.bodies.topic_config import TopicConfig, format_attributes
from raptormq.protocol.headers.topic import CreateTopicRequestHeader
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC, check_topic

_Queues = Annotated[int, Limits(65_536)]
_Permission = Annotated[int, Limits(7, zero=True)]


def check_topic_arguments(
    topic: str,
    read_queues: int | None,
    write_queues: int | None,
    perm: int | None,
    attributes: Mapping[str, str] | None,
    order: bool | None,
) -> None:
    """Check the arguments of `AdminClient.create_topic`.

    Raises:
        MessageError: the topic name is invalid.
        ConfigError: another argument is invalid.
    """
    check_topic(topic)
    check_setting("read_queues", read_queues, _Queues | None)
    check_setting("write_queues", write_queues, _Queues | None)
    check_setting("perm", perm, _Permission | None)
    check_setting("attributes", attributes, Mapping | None)
    check_setting("order", order, bool | None)
    for each in (*(attributes or {}), *(attributes or {}).values()):
        if not isinstance(each, str):
            raise ConfigError(f"names and values of attributes must be text, not {each!r}")


def create_topic_request(wanted: TopicConfig, attributes: Mapping[str, str] | None) -> CreateTopicRequestHeader:
    """Return the request for this topic configuration; it contains only the attributes to be set."""
    return CreateTopicRequestHeader(
        topic=wanted.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=wanted.read_queue_nums,
        write_queue_nums=wanted.write_queue_nums,
        perm=int(wanted.perm),
        topic_filter_type=wanted.topic_filter_type,
        order=wanted.order,
        topic_sys_flag=wanted.topic_sys_flag,
        attributes=format_attributes(dict(attributes)) if attributes else None,
    )
