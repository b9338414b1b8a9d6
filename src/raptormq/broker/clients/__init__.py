"""Who is connected: members of groups, their subscriptions, queue locks, assignments."""

from __future__ import annotations

from raptormq.broker.clients.assignment import STRATEGIES, RequestMode, assign
from raptormq.broker.clients.queue_locks import QueueLocks
from raptormq.broker.clients.registry import ClientRegistry, Member, Presence, RepeatedHeartbeats
from raptormq.broker.clients.subscription_filter import (
    MATCH_ALL,
    SubscriptionFilter,
    Subscriptions,
    compiled,
    is_tag_type,
)

__all__ = [
    "MATCH_ALL",
    "STRATEGIES",
    "ClientRegistry",
    "Member",
    "Presence",
    "QueueLocks",
    "RepeatedHeartbeats",
    "RequestMode",
    "SubscriptionFilter",
    "Subscriptions",
    "assign",
    "compiled",
    "is_tag_type",
]
