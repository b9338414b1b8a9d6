"""How far every queue was at the last checkpoint: the file ``queueEnds``, ours alone; RocketMQ leaves it unread.

Queues are built again from the log, but a queue whose files are gone leaves nothing behind that says so, and one that
has been idle has no record in the part of the log that a start walks. This file says which queues there have to be::

     0  "RQE1"
     4  CRC32 u32              of all that follows
     8  offset i64             of the log: queues are listed with all records before it
    16  entries, one for each queue that ever had a message:
         length u16            of the topic, 0: the topic of the entry before
         topic
         queue id i32
         min offset i64        the first message, as far as known
         max offset i64        behind the last message
         physical offset i64   of the last item

It is replaced by rename before the checkpoint is written, so the checkpoint is never ahead of it, unless another
program has gone on with the store: then nothing in it counts. Neighbour: :mod:`~raptormq.storage.queue_check`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from raptormq.files import read_file
from raptormq.logs import get_logger
from raptormq.storage.consume_queue import ConsumeQueue
from raptormq.storage.filesystem import FileSystem

logger = get_logger(__name__)

_MAGIC = b"RQE1"
_HEAD = struct.Struct(">4sIq")
_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">H")
_ENTRY = struct.Struct(">iqqq")
_BODY_AT = 8


class QueueEnd(NamedTuple):
    """One entry."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical: int


class QueueEnds(NamedTuple):
    """Contents of the file."""

    offset: int
    queues: list[QueueEnd]


class EndsPacker:
    """Packs the contents, some queues at a time: others may have turns, and queues may grow, in between."""

    def __init__(self, offset: int, queues: Iterable[ConsumeQueue]) -> None:
        """``offset`` is where in the log the next record to dispatch is."""
        self._parts = [_OFFSET.pack(offset)]
        self._queues = iter(list(queues))
        self._topic = ""

    def add(self, limit: int) -> bool:
        """Pack up to ``limit`` queues; True when none is left."""
        parts, pack = self._parts, _ENTRY.pack
        queues = list(islice(self._queues, limit))
        for queue in queues:
            if not queue.max_offset or queue.deleted:
                continue
            name = queue.topic.encode() if queue.topic != self._topic else b""
            self._topic = queue.topic
            entry = pack(queue.queue_id, queue.min_offset, queue.max_offset, queue.max_physical)
            parts.append(_LENGTH.pack(len(name)) + name + entry)
        return len(queues) < limit

    def packed(self) -> bytes:
        """Return the whole file."""
        body = b"".join(self._parts)
        return _MAGIC + crc32(body).to_bytes(4, "big") + body


def load_ends(filesystem: FileSystem, path: str) -> QueueEnds | None:
    """Return the contents, None without a file or with one that is damaged."""
    try:
        data = read_file(filesystem, path)
    except FileNotFoundError:
        return None
    if len(data) < _HEAD.size or data[:4] != _MAGIC or crc32(data[_BODY_AT:]) != int.from_bytes(data[4:_BODY_AT]):
        logger.warning("%s is damaged, and is not used", path)
        return None
    queues: list[QueueEnd] = []
    topic, at = "", _HEAD.size
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length:
            topic = data[at : at + length].decode()
            at += length
        queues.append(QueueEnd(topic, *_ENTRY.unpack_from(data, at)))
        at += _ENTRY.size
    return QueueEnds(_HEAD.unpack_from(data)[2], queues)
