"""Tables of topics, groups and request modes, and a barrier that waits until changes are saved and registered."""

from __future__ import annotations

from raptormq.broker.tables.change_barrier import ChangeBarrier
from raptormq.broker.tables.groups import GroupConfig, GroupTable, groups_file, with_attributes
from raptormq.broker.tables.request_modes import POP, PULL, RequestMode, RequestModeTable, request_modes_file
from raptormq.broker.tables.topics import MAX_QUEUES, TopicTable, apply_attributes, system_topics

__all__ = [
    "MAX_QUEUES",
    "POP",
    "PULL",
    "ChangeBarrier",
    "GroupConfig",
    "GroupTable",
    "RequestMode",
    "RequestModeTable",
    "TopicTable",
    "apply_attributes",
    "groups_file",
    "request_modes_file",
    "system_topics",
    "with_attributes",
]
