"""Connected clients: members of groups, subscriptions, queue locks, queue assignments."""

from __future__ import annotations

from raptormq.broker.clients.assignment import STRATEGIES, assign
from raptormq.broker.clients.queue_locks import QueueLocks
from raptormq.broker.clients.registry import ClientRegistry, HeartbeatSender, Member, RepeatedHeartbeats
from raptormq.broker.clients.subscription_filter import (
    MATCH_ALL,
    SubscriptionFilter,
    SubscriptionFilters,
    compiled,
    is_tag_type,
)

__all__ = [
    "MATCH_ALL",
    "STRATEGIES",
    "ClientRegistry",
    "HeartbeatSender",
    "Member",
    "QueueLocks",
    "RepeatedHeartbeats",
    "SubscriptionFilter",
    "SubscriptionFilters",
    "assign",
    "compiled",
    "is_tag_type",
]
