"""Tables of topics and consumer groups, and a barrier that waits until changes are saved and registered."""

from __future__ import annotations

from raptormq.broker.tables.change_barrier import ChangeBarrier
from raptormq.broker.tables.groups import GroupConfig, GroupTable, groups_file, with_attributes
from raptormq.broker.tables.topics import MAX_QUEUES, TopicTable, apply_attributes, system_topics

__all__ = [
    "MAX_QUEUES",
    "ChangeBarrier",
    "GroupConfig",
    "GroupTable",
    "TopicTable",
    "apply_attributes",
    "groups_file",
    "system_topics",
    "with_attributes",
]
