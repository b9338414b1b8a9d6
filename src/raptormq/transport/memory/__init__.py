"""Memory that peers may hold: answers that they do not read, requests that do not get complete."""

from __future__ import annotations

from raptormq.transport.memory.receive_budget import ReceiveBudget
from raptormq.transport.memory.send_budget import Reading, SendBudget, patience

__all__ = [
    "Reading",
    "ReceiveBudget",
    "SendBudget",
    "patience",
]
