"""Headers of topic and group administration (17, 21, 26, 201, 202, 207, 208, 215, 303, 314, 343, 345, 351 to 353)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class CreateTopicRequestHeader(Header):
    """17: create or update a topic. ``attributes`` is ``+key=value,-key``; see TopicConfig for the numbers."""

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    order: bool
    topic_sys_flag: int | None = None
    attributes: str | None = None
    force: bool | None = None


@dataclass(slots=True)
class TopicRequestHeader(Header):
    """202, 215, 300, 351: a topic."""

    topic: str


@dataclass(slots=True)
class GroupRequestHeader(Header):
    """343, 352: a consumer group."""

    group: str


@dataclass(slots=True)
class GroupAndTopicRequestHeader(Header):
    """303, 345: a consumer group and a topic."""

    group: str
    topic: str


@dataclass(slots=True)
class CloneGroupOffsetRequestHeader(Header):
    """314: copy the offsets of ``src_group`` to ``dest_group``, in one topic or in all topics. If ``src_group`` has
    members and ``offline`` is false, only topics to which they subscribe are copied.
    """

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class GroupForbiddenRequestHeader(Header):
    """353: set whether a group may read a topic. Without ``readable`` the request gets the setting."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(slots=True)
class DeleteGroupRequestHeader(Header):
    """207: delete a consumer group, with ``clean_offset`` also its offsets."""

    group_name: str
    clean_offset: bool | None = None


@dataclass(slots=True)
class ConsumeStatsRequestHeader(Header):
    """208: get the progress of a group in one topic or in all topics."""

    consumer_group: str
    topic: str | None = None


@dataclass(slots=True)
class BrokerConsumeStatsRequestHeader(Header):
    """317: get the progress of all groups, in ordered topics only or in all topics."""

    is_order: bool = False


@dataclass(slots=True)
class AllTopicsRequestHeader(Header):
    """21: all topics, or from RocketMQ 5.5 on one page of them: up to ``max_topic_num`` topics in the order of their
    names, from the one at ``topic_seq`` on. ``data_version`` is the version of the table in the response to the first
    page, as JSON. If the table has changed since, the response is the first page again. ``with_topic_ids`` is specific
    to RaptorMQ's slaves: the attributes in the response include the ids of the topics
    (:mod:`~raptormq.protocol.topic_ids`). ``with_unreadable`` is specific to RaptorMQ's operator: the response includes
    the messages that no read queue has (:mod:`~raptormq.protocol.bodies.unreadable`).
    """

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None
    with_topic_ids: bool | None = None
    with_unreadable: bool | None = None


@dataclass(slots=True)
class AllGroupsRequestHeader(Header):
    """201: all groups, or one page of them, with the fields of 21."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@dataclass(slots=True)
class TotalTopicResponseHeader(Header):
    """21: number of topics, in all pages."""

    total_topic_num: int | None = None


@dataclass(slots=True)
class TotalGroupResponseHeader(Header):
    """201: number of groups, in all pages."""

    total_group_num: int


@dataclass(slots=True)
class VersionResponseHeader(Header):
    """26: the version (DataVersion) of the topic table as JSON."""

    version: str


@dataclass(slots=True)
class ViewStatisticsRequestHeader(Header):
    """315: name of a statistic and its key: ``topic``, ``topic@group`` or the cluster."""

    stats_name: str
    stats_key: str
