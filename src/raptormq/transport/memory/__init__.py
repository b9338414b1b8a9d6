"""Memory that peers may hold: answers that they do not read, requests that do not get complete."""

from __future__ import annotations

from raptormq.transport.memory.receive_budget import FrameBudget
from raptormq.transport.memory.send_budget import AnswerBudget, Reading, patience

__all__ = [
    "AnswerBudget",
    "FrameBudget",
    "Reading",
    "patience",
]
