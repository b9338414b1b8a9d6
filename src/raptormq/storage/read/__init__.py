"""Reading messages: by queue and offset, out of batches, by their place in the log.

Changes nothing but damaged items of queues, which it writes again from the log.
"""

from __future__ import annotations

from raptormq.storage.read.batch_unpacker import BatchUnpacker
from raptormq.storage.read.message_lookup import KeyQuery, MessageLookup
from raptormq.storage.read.options import Boundary, GetResult, GetStatus, ReadOptions, StoreStats
from raptormq.storage.read.queue_reader import QueueReader

__all__ = [
    "BatchUnpacker",
    "Boundary",
    "GetResult",
    "GetStatus",
    "KeyQuery",
    "MessageLookup",
    "QueueReader",
    "ReadOptions",
    "StoreStats",
]
