"""Consume queues of both types, their files, and the state of topics.

Handles items and offsets; never reads the commit log.
"""

from __future__ import annotations

from raptormq.storage.queue.append_batches import (
    Appended,
    AppendedLists,
    AppendResult,
    Arrival,
    PendingBatch,
    PendingList,
    PendingRecord,
)
from raptormq.storage.queue.batch_queue import (
    BATCH_ITEM,
    BATCH_ITEM_BYTES,
    BatchConsumeQueue,
    BatchItem,
    message_count,
    unpack_item,
)
from raptormq.storage.queue.batch_search import BatchSearch
from raptormq.storage.queue.consume_queue import FILLER_SIZE, ITEM, ITEM_BYTES, ConsumeQueue, encode_topic_field
from raptormq.storage.queue.consumer_offsets import ConsumerOffsets, Snapshot, offsets_file
from raptormq.storage.queue.files import QueueFiles
from raptormq.storage.queue.table import QueueTable
from raptormq.storage.queue.topic_state import (
    BUILDING,
    STOPPED,
    SWITCHED,
    ConversionEntry,
    ConversionLedger,
    DeletionLedger,
    TopicHistory,
    declared_topics,
    topics_file,
)

__all__ = [
    "BATCH_ITEM",
    "BATCH_ITEM_BYTES",
    "BUILDING",
    "FILLER_SIZE",
    "ITEM",
    "ITEM_BYTES",
    "STOPPED",
    "SWITCHED",
    "AppendResult",
    "Appended",
    "AppendedLists",
    "Arrival",
    "BatchConsumeQueue",
    "BatchItem",
    "BatchSearch",
    "ConsumeQueue",
    "ConsumerOffsets",
    "ConversionEntry",
    "ConversionLedger",
    "DeletionLedger",
    "PendingBatch",
    "PendingList",
    "PendingRecord",
    "QueueFiles",
    "QueueTable",
    "Snapshot",
    "TopicHistory",
    "declared_topics",
    "encode_topic_field",
    "message_count",
    "offsets_file",
    "topics_file",
    "unpack_item",
]
