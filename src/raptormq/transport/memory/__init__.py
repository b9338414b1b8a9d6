"""Limits the memory that peers can hold: unread responses and incomplete request frames."""

from __future__ import annotations

from raptormq.transport.memory.receive_budget import ReceiveBudget
from raptormq.transport.memory.send_budget import Reading, SendBudget, patience

__all__ = [
    "Reading",
    "ReceiveBudget",
    "SendBudget",
    "patience",
]
