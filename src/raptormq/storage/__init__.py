"""The message store: commit log, consume queues, offsets and checkpoint, in the formats of Apache RocketMQ 5.x.

The commit log is the only truth; everything else is derived from it and can be rebuilt.
:class:`~raptormq.storage.store.MessageStore` is the facade that the broker uses; all access to the disk goes through
:mod:`raptormq.storage.filesystem`.
"""

from raptormq.storage.config import FlushDiskType, StoreConfig
from raptormq.storage.consumer_offsets import ConsumerOffsets
from raptormq.storage.log_batch import AppendedLists, AppendResult, Arrival, PendingList, PendingRecord
from raptormq.storage.recovery import RecoveryReport
from raptormq.storage.results import GetResult, GetStatus, StoreStats
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
]
