"""The message store: commit log, consume queues, offsets and checkpoint, in the formats of Apache RocketMQ 5.x.

The commit log is the source of truth. Consume queues and the key index are derived from it and can be rebuilt.
:class:`~raptormq.storage.store.MessageStore` is the facade that the broker uses; all access to the disk goes through
:mod:`raptormq.storage.fs.filesystem`.
"""

from raptormq.storage.config import FlushDiskType, StoreConfig
from raptormq.storage.queue import (
    AppendedLists,
    AppendResult,
    Arrival,
    ConsumerOffsets,
    PendingList,
    PendingRecord,
    TopicHistory,
)
from raptormq.storage.read import GetResult, GetStatus, StoreStats
from raptormq.storage.recovery import RecoveryReport
from raptormq.storage.store import MessageStore

__all__ = [
    "AppendResult",
    "AppendedLists",
    "Arrival",
    "ConsumerOffsets",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "PendingList",
    "PendingRecord",
    "RecoveryReport",
    "StoreConfig",
    "StoreStats",
    "TopicHistory",
]
