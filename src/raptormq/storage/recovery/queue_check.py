"""Checks that the loaded queues hold every log record before the offset where the replay starts.

:class:`QueueCheck` uses two sources. The first is :class:`QueueEnds`, which records the end of each queue, also of idle
ones, at the last checkpoint. The second is the replay: the first record of a queue has to continue where the queue
ends. For a store written by another program only the second source is available.

:class:`QueueEnds` is the contents of the file ``queueEnds``, which only RaptorMQ writes; RocketMQ ignores it. The file
lists the queues that have to exist. Without it, a start could not detect that the files of an idle queue are lost,
because such a queue has no record in the part of the log that is replayed::

     0  "RQE1"
     4  CRC32 u32              of all that follows
     8  offset i64             of the log: queues are listed with all records before it
    16  entries, one for each queue that ever had a message:
         length u16            of the topic, 0: the topic of the entry before
         topic
         queue id i32
         min offset i64        of the first message, as far as known
         max offset i64        of the next message
         physical offset i64   of the last item

The file is replaced by rename before the checkpoint is written, so the checkpoint is never ahead of the file unless
another program has used the store. In that case the file is ignored.

See also: :mod:`~raptormq.storage.recovery.recovery` runs the checks,
:mod:`~raptormq.storage.maintenance.checkpointer` writes the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from raptormq.files import read_file
from raptormq.logs import get_logger
from raptormq.storage.fs import FileSystem
from raptormq.storage.queue import AppendResult, BatchConsumeQueue, ConsumeQueue, QueueTable
from raptormq.storage.recovery.queue_loading import RebuildRequired

logger = get_logger(__name__)


_MAGIC = b"RQE1"
_HEAD = struct.Struct(">4sIq")
_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">H")
_ENTRY = struct.Struct(">iqqq")
_BODY_AT = 8


class QueueEnd(NamedTuple):
    """One entry of the file ``queueEnds``: a queue at the last checkpoint."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical: int


class QueueEnds(NamedTuple):
    """Contents of the file ``queueEnds``."""

    offset: int
    queues: list[QueueEnd]


class EndsPacker:
    """Packs the contents of ``queueEnds``, some queues at a time.

    Other tasks may run, and queues may grow, between two calls.
    """

    def __init__(self, offset: int, queues: Iterable[ConsumeQueue]) -> None:
        """``offset`` is the log offset of the next record to dispatch."""
        self._parts = [_OFFSET.pack(offset)]
        self._queues = iter(list(queues))
        self._topic = ""

    def add(self, limit: int) -> bool:
        """Pack up to ``limit`` queues; return True when none is left."""
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
    """Return the contents of ``queueEnds``; None when the file is missing or damaged."""
    try:
        data = read_file(filesystem, path)
    except FileNotFoundError:
        return None
    if len(data) < _HEAD.size or data[:4] != _MAGIC or crc32(data[_BODY_AT:]) != int.from_bytes(data[4:_BODY_AT]):
        logger.warning("%s is damaged and is ignored", path)
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
    _, _, offset = _HEAD.unpack_from(data)
    return QueueEnds(offset, queues)


class QueueCheck:
    """Checks the queues of ``table`` as loaded, before a replay from ``start`` of a log that begins at ``log_min``."""

    def __init__(
        self, table: QueueTable, log_min: int, start: int, ends: QueueEnds | None, topics: frozenset[str] | None
    ) -> None:
        """``topics`` are the topics in the broker's table; None without the table."""
        self._table = table
        self._log_min = log_min
        self._start = start
        if ends is None or ends.offset < start:  # another program has used the store since
            ends = QueueEnds(start, [])
        self._ends = ends
        self._listed = {(end.topic, end.queue_id) for end in ends.queues if end.max_physical >= start}
        self._topics = topics
        self._loaded = frozenset(table.topics())
        self._checked_queues: set[ConsumeQueue] = set()

    def compare_with_ends(self) -> None:
        """Compare the queues with their state at the last checkpoint.

        Raises:
            RebuildRequired: a queue is shorter than it was.
        """
        dead = self._table.topic_tombstones
        for end in self._ends.queues:
            if end.max_physical < dead.get(end.topic, 0):
                continue  # the queue belongs to a deleted topic; a later topic may have the same name
            missing_part = self._missing_part(end)
            if missing_part and not self._is_deleted(end.topic):
                raise RebuildRequired(f"{end.topic}/{end.queue_id} {missing_part}")

    def check_tombstones(self) -> None:
        """Check that no queue has messages of a deleted topic. RocketMQ restores such messages when it recovers from a
        crash, and then omits those of a later topic of the same name.

        Raises:
            RebuildRequired: a queue has such messages.
        """
        for topic, dead in self._table.topic_tombstones.items():
            for queue in self._table.queues_of(topic):
                is_alive = self._table.min_offset(queue, self._log_min, wait=True) < queue.max_offset
                if is_alive and self._first_physical_offset(queue) < dead:
                    raise RebuildRequired(f"{topic}/{queue.queue_id} has messages of a topic that was deleted")

    def _missing_part(self, end: QueueEnd) -> str:
        """Describe what the queue lacks compared to ``end``. Return an empty string if the replay adds everything
        missing."""
        if end.max_physical < self._log_min:
            return ""  # no replay restores the queue
        queue = self._table.get(end.topic, end.queue_id)
        is_walked = end.max_physical >= self._start
        if queue is None or not queue.max_offset:
            return "" if is_walked else "has no item"
        if queue.max_offset < end.max_offset and not is_walked:
            return f"ends at offset {queue.max_offset} instead of {end.max_offset}"
        if queue.min_offset > end.min_offset and not self._begins_with_log(queue):
            return f"begins at offset {queue.min_offset} instead of {end.min_offset}"
        return ""

    def _begins_with_log(self, queue: ConsumeQueue) -> bool:
        """Return whether the missing items at the beginning of the queue pointed to deleted records: the record of the
        first item is deleted or is the first of the log. The result for a queue without items is true if the replay
        covers the whole log.
        """
        if queue.max_physical < 0:
            return self._start <= self._log_min
        return self._first_physical_offset(queue) <= self._log_min

    def _first_physical_offset(self, queue: ConsumeQueue) -> int:
        """Return the log offset of the record of the first item."""
        if isinstance(queue, BatchConsumeQueue):
            return self._table.batch_search.item(queue, queue.first_live_item).physical
        physical, _, _ = self._table.item(queue, queue.min_offset)
        return physical

    def _is_deleted(self, topic: str) -> bool:
        """Return whether the topic was deleted shortly before a crash: the broker does not know it, and it has no
        queue.
        """
        return self._topics is not None and topic not in self._topics and topic not in self._loaded

    def check(self, batch: AppendResult) -> None:
        """Check that ``batch``, the next one of the replay, continues each queue without a gap. Called before the batch
        is added.

        Only the first record of a queue is checked. Later gaps come from damaged records, and a scan of the whole log
        would not find those either.

        Raises:
            RebuildRequired: there is a gap.
        """
        for queue, offset, physical in zip(batch.queues, batch.queue_offsets, batch.physical_offsets, strict=True):
            if queue is None or queue in self._checked_queues:
                continue
            self._checked_queues.add(queue)
            if offset > queue.max_offset and not self._was_deleted(queue, physical):
                where = f"{queue.topic}/{queue.queue_id} ends at offset {queue.max_offset}"
                raise RebuildRequired(f"{where}, but the log continues at {offset}")

    def _was_deleted(self, queue: ConsumeQueue, physical: int) -> bool:
        """Return whether the queue, with a record at ``physical``, did not exist at the last checkpoint or was deleted
        since.
        """
        listed = physical >= self._ends.offset or (queue.topic, queue.queue_id) in self._listed
        return not listed or self._is_deleted(queue.topic)
