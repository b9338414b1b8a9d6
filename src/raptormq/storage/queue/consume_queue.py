"""A consume queue: the place in the log of the n-th message of a queue (Apache RocketMQ ``ConsumeQueue``, SimpleCQ).

Item ``n`` is at byte ``n * 20``, counted over the queue's files of equal size (6,000,000 bytes, sparse; see
:mod:`~raptormq.storage.queue.files`)::

     0  physical offset i64
     8  total size i32         of the record
    12  tag code i64           hash of the TAGS property, sign-extended; 0 without one

Zeros follow the last item. Items without a message are fillers: ``0 | 0x7FFFFFFF | 0`` before the first message of a
queue that does not start at 0. Where a damaged log has lost messages in the middle, the filler has the physical offset
of the next message, so that offsets are monotonic and bisection works.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from raptormq.protocol.record import MAGIC_V1, MAGIC_V2, MAX_V1_TOPIC_BYTES

ITEM = struct.Struct(">qiq")
ITEM_BYTES = ITEM.size
FILLER_SIZE = 0x7FFFFFFF
FILLER = ITEM.pack(0, FILLER_SIZE, 0)


class ConsumeQueue:
    """State of one queue. Items from ``written`` on are in ``tail``.

    A broker has tens of thousands of queues, so the state is kept small. Invariants: ``0 <= min_offset <= max_offset <=
    next_offset`` and ``written <= max_offset = written + len(tail) / 20``.
    """

    is_batch: ClassVar[bool] = False
    """Whether this is the queue of a BatchCQ topic (:mod:`~raptormq.storage.queue.batch_queue`)."""

    __slots__ = (
        "delay_ms",
        "deleted",
        "has_expired_files",
        "magic",
        "max_offset",
        "max_physical",
        "min_checked_at",
        "min_offset",
        "next_offset",
        "queue_id",
        "tail",
        "topic",
        "topic_field",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, topic_field: bytes) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_field = topic_field
        """Topic as encoded in records: its length and the name. Shared by the queues of a topic."""
        self.magic = MAGIC_V1 if len(topic_field) <= MAX_V1_TOPIC_BYTES + 1 else MAGIC_V2
        self.next_offset = 0
        """Offset of the next message to append."""
        self.max_offset = 0
        """Offset after the last message that is visible to consumers."""
        self.min_offset = 0
        """Offset of the first message whose record is still in the log, as of ``min_checked_at``."""
        self.min_checked_at = 0
        """The log's first offset when ``min_offset`` of this queue was determined."""
        self.max_physical = -1
        """Physical offset of the last item."""
        self.written = 0
        """Number of items that are written to files."""
        self.tail: bytearray | None = None
        """Items that are not written to a file, None if there are none."""
        self.deleted = False
        self.has_expired_files = False
        """Whether files hold only items before ``first_item`` and :mod:`~raptormq.storage.maintenance.retention` has
        not processed them yet.
        """
        self.delay_ms: int | None = None
        """Delay in ms of a queue of delayed messages, whose tag codes are delivery times; None for other queues."""

    @property
    def first_item(self) -> int:
        """Number of the item of ``min_offset``; here items are numbered like messages."""
        return self.min_offset


def encode_topic_field(topic: str) -> bytes:
    """Return length (1 byte, or 2 for names of 128 bytes and more) and name, as in a record."""
    name = topic.encode()
    return len(name).to_bytes(1 if len(name) <= MAX_V1_TOPIC_BYTES else 2, "big") + name
