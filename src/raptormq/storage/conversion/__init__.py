"""Conversion of a topic's queues between SimpleCQ and BatchCQ while the topic serves.

The rest of the store knows only that a topic has queues of one type.
"""

from __future__ import annotations

from raptormq.storage.conversion.manager import QueueConverter

__all__ = [
    "QueueConverter",
]
