"""Reads messages: by queue and offset, by log offset, and out of batches.

The only writes are repairs of damaged queue items from the log.
"""

from __future__ import annotations

from raptormq.storage.read.batch_unpacker import BatchUnpacker
from raptormq.storage.read.known_damage import KnownDamage
from raptormq.storage.read.message_lookup import KeyQuery, MessageLookup
from raptormq.storage.read.options import Boundary, GetResult, GetStatus, ReadOptions, StoreStats
from raptormq.storage.read.queue_reader import QueueReader

__all__ = [
    "BatchUnpacker",
    "Boundary",
    "GetResult",
    "GetStatus",
    "KeyQuery",
    "KnownDamage",
    "MessageLookup",
    "QueueReader",
    "ReadOptions",
    "StoreStats",
]
