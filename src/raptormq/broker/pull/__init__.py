"""Serving pulls: the service with its outcomes, held pulls, coalesced answers, offset resets.

The room knows the store, the topic table and connections. It does not know permissions, subscriptions or routing.
"""

from __future__ import annotations

from raptormq.broker.pull.answers import PullAnswers
from raptormq.broker.pull.offset_resets import OffsetResets
from raptormq.broker.pull.request import Attempt, PullRequest
from raptormq.broker.pull.service import Outcome, PullService

__all__ = [
    "Attempt",
    "OffsetResets",
    "Outcome",
    "PullAnswers",
    "PullRequest",
    "PullService",
]
