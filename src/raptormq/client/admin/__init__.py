"""Administration of topics, groups, brokers and users, and message lookups by key and id.

Independent of producers and consumers.
"""

from __future__ import annotations

from raptormq.client.admin.access_requests import DECISIONS, GRANTABLE_ACTIONS, USER_STATUSES, USER_TYPES
from raptormq.client.admin.client import AdminClient
from raptormq.client.admin.group_settings import GroupSettings
from raptormq.client.admin.message_query import MAX_QUERY_RESULTS, FoundMessages

__all__ = [
    "DECISIONS",
    "GRANTABLE_ACTIONS",
    "MAX_QUERY_RESULTS",
    "USER_STATUSES",
    "USER_TYPES",
    "AdminClient",
    "FoundMessages",
    "GroupSettings",
]
