"""Who is connected: members of groups, their subscriptions, queue locks, assignments."""

from __future__ import annotations

from raptormq.broker.clients.assignment import STRATEGIES, RequestMode, assign
from raptormq.broker.clients.queue_locks import QueueLocks
from raptormq.broker.clients.registry import ClientRegistry, Member, Presence, RepeatedHeartbeats
from raptormq.broker.clients.subscription_filter import EVERYTHING, Subscriptions, Wanted, compiled, is_tag_type

__all__ = [
    "EVERYTHING",
    "STRATEGIES",
    "ClientRegistry",
    "Member",
    "Presence",
    "QueueLocks",
    "RepeatedHeartbeats",
    "RequestMode",
    "Subscriptions",
    "Wanted",
    "assign",
    "compiled",
    "is_tag_type",
]
