"""Converts the queues of a topic between SimpleCQ and BatchCQ while the topic is in use.

The rest of the store depends only on the current type of a topic's queues.
"""

from __future__ import annotations

from raptormq.storage.conversion.manager import QueueConverter

__all__ = [
    "QueueConverter",
]
