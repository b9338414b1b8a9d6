"""A consume queue of a BatchCQ topic: the log offsets of the batches of a queue (Apache RocketMQ
``BatchConsumeQueue``, RIP-26).

An item has 46 bytes, a file 13,800,000 bytes (:mod:`~raptormq.storage.queue.files`). The first item is at byte 0::

     0  physical offset i64
     8  total size i32         of the record
    12  tag code i64           hash of the batch's TAGS property, sign-extended; 0 without one
    20  store time i64         ms
    28  base offset i64        queue offset of the first message
    36  count i16              messages in the record, 1 to 32,767; 1 for a message that is no batch
    38  compacted offset i32   -1
    42  reserved i32           0

Zeros follow the last item. Unlike in a SimpleCQ queue, the number of an item is not the queue offset of its message, so
offsets are searched by bisection (:mod:`~raptormq.storage.queue.batch_search`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from raptormq.errors import RecordError
from raptormq.protocol.inner_batch import inner_count
from raptormq.protocol.record import SysFlag
from raptormq.storage.fs import Buffer
from raptormq.storage.queue.append_batches import PendingBatch, PendingRecord
from raptormq.storage.queue.consume_queue import ConsumeQueue

BATCH_ITEM = struct.Struct(">qiqqqhii")
BATCH_ITEM_BYTES = BATCH_ITEM.size
_HEAD = struct.Struct(">qiqqqh")
NOT_COMPACTED = -1
_INNER_BATCH = int(SysFlag.INNER_BATCH)


class BatchItem(NamedTuple):
    """One item without its constant fields."""

    physical: int
    size: int
    tag_code: int
    stored: int
    base: int
    messages: int

    @property
    def is_valid(self) -> bool:
        """Whether the values of the fields are possible; false for an item that is visibly damaged."""
        return self.physical >= 0 and self.size > 0 and self.base >= 0 and self.messages > 0

    @property
    def end(self) -> int:
        """Queue offset after the last message."""
        return self.base + self.messages

    def pack(self) -> bytes:
        """Return the encoded item."""
        return BATCH_ITEM.pack(*self, NOT_COMPACTED, 0)


class BatchConsumeQueue(ConsumeQueue):
    """State of one queue. Offsets count messages; ``written`` and all names with "item" count items::

    first_live_item <= item_count = written + len(tail) / 46
    """

    __slots__ = ("first_live_item", "last_read")

    is_batch = True

    def __init__(self, topic: str, queue_id: int, topic_field: bytes) -> None:
        super().__init__(topic, queue_id, topic_field)
        self.first_live_item = 0
        """Number of the item of ``min_offset``. The records of earlier items are deleted."""
        self.last_read = (-1, 0)
        """End of the last read: a queue offset, and the number of the item that begins there."""

    @property
    def first_item(self) -> int:
        """Number of the item of ``min_offset``."""
        return self.first_live_item

    @property
    def item_count(self) -> int:
        """Number of the next item."""
        return self.written + (len(self.tail) // BATCH_ITEM_BYTES if self.tail is not None else 0)


def unpack_item(data: Buffer, at: int = 0) -> BatchItem:
    """Return the item at byte ``at``."""
    return BatchItem._make(_HEAD.unpack_from(data, at))


def message_count(record: PendingRecord) -> int:
    """Return the number of messages in a record: INNER_NUM for the wrapper of a batch, else 1."""
    if not record[8] & _INNER_BATCH:
        return 1
    if isinstance(record, PendingBatch) and record.messages:
        return record.messages
    try:
        return inner_count(record[3].decode("utf-8", "replace"))
    except RecordError:
        return 1  # written by another broker; counted as one message it does not affect others
