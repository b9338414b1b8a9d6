"""The pull service: long polling, coalesced responses, offset resets, and advice on the next broker to read from.

The package depends on the store, connections, and the tables of topics and groups. It does not depend on permissions,
subscriptions or routing.
"""

from __future__ import annotations

from raptormq.broker.pull.answers import PullAnswers
from raptormq.broker.pull.offset_resets import OffsetResets
from raptormq.broker.pull.read_advice import ReadAdvice
from raptormq.broker.pull.request import Attempt, PullRequest
from raptormq.broker.pull.service import Outcome, PullService

__all__ = [
    "Attempt",
    "OffsetResets",
    "Outcome",
    "PullAnswers",
    "PullRequest",
    "PullService",
    "ReadAdvice",
]
