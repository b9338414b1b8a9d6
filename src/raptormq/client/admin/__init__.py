"""Administration: topics, groups, brokers, messages by key and id.

Knows neither producers nor consumers.
"""

from __future__ import annotations

from raptormq.client.admin.client import AdminClient
from raptormq.client.admin.message_query import MAX_QUERY_RESULTS, FoundMessages

__all__ = [
    "MAX_QUERY_RESULTS",
    "AdminClient",
    "FoundMessages",
]
