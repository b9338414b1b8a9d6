"""Headers of topic and group administration (17, 21, 26, 201, 202, 207, 208, 215, 303, 314, 343, 345, 351 to 353)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class CreateTopicRequestHeader(Header):
    """17. ``attributes`` is ``+key=value,-key``; see TopicConfig for the numbers."""

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
    """303, 345: a consumer group in a topic."""

    group: str
    topic: str


@dataclass(slots=True)
class CloneGroupOffsetRequestHeader(Header):
    """314: the progress of ``src_group``, in one topic or in all, becomes that of ``dest_group``. Without ``offline``
    only in topics that the members of ``src_group`` subscribe to, if there are any."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class GroupForbiddenRequestHeader(Header):
    """353: whether a group may read a topic; without ``readable`` that is asked, not changed."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(slots=True)
class DeleteGroupRequestHeader(Header):
    """207: a consumer group, and whether its offsets go too."""

    group_name: str
    clean_offset: bool | None = None


@dataclass(slots=True)
class ConsumeStatsRequestHeader(Header):
    """208: a group, for one topic or all."""

    consumer_group: str
    topic: str | None = None


@dataclass(slots=True)
class BrokerConsumeStatsRequestHeader(Header):
    """317: of ordered topics, or of all."""

    is_order: bool = False


@dataclass(slots=True)
class TotalTopicResponseHeader(Header):
    """21: how many topics there are."""

    total_topic_num: int | None = None


@dataclass(slots=True)
class TotalGroupResponseHeader(Header):
    """201: how many groups there are."""

    total_group_num: int


@dataclass(slots=True)
class VersionResponseHeader(Header):
    """26: DataVersion as JSON."""

    version: str


@dataclass(slots=True)
class ViewStatisticsRequestHeader(Header):
    """315: a statistic by name, and of what: ``topic``, ``topic@group`` or the cluster."""

    stats_name: str
    stats_key: str
