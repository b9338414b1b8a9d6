"""Packs messages into log bytes and appends them. This is the hottest loop of the broker.

:class:`Appender` appends a group atomically with one write (Apache RocketMQ ``CommitLog.asyncPutMessage``).
A :class:`Packer` encodes the records and assigns the offsets. Physical offsets follow the end of the log, queue offsets
come from the queues. The wrapper of a batch takes one queue offset per message and gets the property INNER_BASE. If the
group is not appended, its queue offsets are released.

There are two packers, with identical records (layout: :mod:`raptormq.protocol.record`):

- :class:`RecordPacker` packs single messages.
- :class:`ListPacker` packs lists of messages that a producer sent in one request. Everything except sizes, CRC, flag
  and offsets is packed once per list, and bodies are written to the log without being copied.

Everything here belongs to one thread. :mod:`~raptormq.storage.log.commit_log` writes the bytes,
:mod:`~raptormq.storage.queue.append_batches` defines the groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

from isal.isal_zlib import crc32

from raptormq.errors import StorageError
from raptormq.protocol.record import BLANK_BYTES, BLANK_MAGIC, SysFlag
from raptormq.storage.fs import Buffer
from raptormq.storage.log import CommitLog, SegmentWrite, WriteGate
from raptormq.storage.queue import AppendedLists, AppendResult, ConsumeQueue, PendingList, PendingRecord, message_count

_FILLER = struct.Struct(">ii")
_PROPERTIES_LENGTH = struct.Struct(">h")
BORN_V6 = int(SysFlag.BORN_HOST_V6)
WITHOUT_HOST_BITS = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
"""Mask that clears the bits for the length of the hosts. The packer sets these bits itself, whatever a producer or an
older record declares.
"""
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_UNUSUAL = _INNER_BATCH | ~WITHOUT_HOST_BITS
NOT_IN_QUEUE = int(SysFlag.TRANSACTION_PREPARED)
"""Bit of sysFlag that is set for prepared and rolled back messages (4 and 12), and clear for plain and committed ones
(0 and 8)."""


def store_host_flag(store_host: bytes) -> int:
    """Return the sysFlag bit for the length of STOREHOST, which consists of ip and port."""
    return int(SysFlag.STORE_HOST_V6) if len(store_host) == 20 else 0


def _fixed_part(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    return struct.Struct(f">iiIiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


class RecordPacker:
    """Packs single messages for a log with segments of ``segment_size`` bytes. ``find_queue`` creates queues that do
    not exist.
    """

    def __init__(self, find_queue: Callable[[str, int], ConsumeQueue], segment_size: int, store_host: bytes) -> None:
        self._find_queue = find_queue
        self._segment_size = segment_size
        self._store_host = store_host
        self._store_flag = store_host_flag(store_host)
        self._fixed_v4 = _fixed_part(8, len(store_host))
        self._fixed_v6 = _fixed_part(20, len(store_host))

    def pack(
        self, pending: Sequence[PendingRecord], start: int, timestamp: int
    ) -> tuple[AppendResult, list[SegmentWrite]]:
        """Pack ``pending`` for log offset ``start`` with the store time ``timestamp`` (ms).

        Raises:
            StorageError: a record does not fit into a segment, or a value into its field; no queue offsets are used.
        """
        result = AppendResult(pending, start, [timestamp] * len(pending))
        try:
            writes = self._pack(result, timestamp)
        except struct.error as error:
            self.restore_offsets(result)
            raise StorageError(f"record {len(result.sizes)} of the group does not fit its fields: {error}") from error
        except BaseException:
            self.restore_offsets(result)
            raise
        return result, writes

    def _pack(self, result: AppendResult, timestamp: int) -> list[SegmentWrite]:
        store_host, store_flag = self._store_host, self._store_flag
        pack_v4, pack_v6, pack_length = self._fixed_v4.pack, self._fixed_v6.pack, _PROPERTIES_LENGTH.pack
        overhead = self._fixed_v4.size + _PROPERTIES_LENGTH.size
        queues, queue_offsets = result.queues, result.queue_offsets
        physical_offsets, sizes = result.physical_offsets, result.sizes
        find_queue = self._find_queue
        offset = result.start_offset
        room_end = offset - offset % self._segment_size + self._segment_size - BLANK_BYTES
        parts: list[Buffer] = []
        write_start = offset
        writes: list[SegmentWrite] = []
        topic, queue_id = "", -1
        queue: ConsumeQueue
        for record in result.records:
            (
                record_topic, record_queue_id, body, properties, _, born_timestamp, born_host, flag, sys_flag, times,
                prepared
            ) = record  # fmt: skip
            if record_queue_id != queue_id or record_topic != topic:
                topic, queue_id = record_topic, record_queue_id
                queue = find_queue(topic, queue_id)
            count = 1
            if sys_flag & _UNUSUAL:
                sys_flag &= WITHOUT_HOST_BITS
                if sys_flag & _INNER_BATCH:
                    count = message_count(record)
                    result.message_count += count - 1
                    properties += b"INNER_BASE\x01%d\x02" % queue.next_offset
            body_length = len(body)
            size = overhead + body_length + len(queue.topic_field) + len(properties)
            pack = pack_v4
            if len(born_host) != 8:
                size += 12
                pack = pack_v6
                sys_flag |= BORN_V6
            if offset + size > room_end:
                offset = end_segment(writes, write_start, parts, offset, size, self._segment_size)
                write_start, parts, room_end = offset, [], offset + self._segment_size - BLANK_BYTES
            if sys_flag & NOT_IN_QUEUE:
                queue_offset = 0
                queues.append(None)
            else:
                queue_offset = queue.next_offset
                queue.next_offset = queue_offset + count
                queues.append(queue)
            queue_offsets.append(queue_offset)
            fixed = pack(
                size, queue.magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, offset, sys_flag |
                store_flag, born_timestamp, born_host, timestamp, store_host, times, prepared, body_length,
            )  # fmt: skip
            parts += (fixed, body, queue.topic_field, pack_length(len(properties)), properties)
            physical_offsets.append(offset)
            sizes.append(size)
            offset += size
        result.end_offset = offset
        writes.append(SegmentWrite(write_start, parts, offset - write_start))
        return writes

    @staticmethod
    def restore_offsets(group: AppendResult) -> None:
        """Release the queue offsets of a group that was not appended."""
        for queue, queue_offset in zip(reversed(group.queues), reversed(group.queue_offsets), strict=False):
            if queue is not None:
                queue.next_offset = queue_offset


def end_segment(
    writes: list[SegmentWrite], start: int, parts: list[Buffer], offset: int, size: int, segment_size: int
) -> int:
    """Fill the rest of the current segment at ``offset``, because a record of ``size`` bytes does not fit. Return the
    first offset of the next segment.

    ``start`` is the offset of the current write.

    Raises:
        StorageError: the record does not fit into an empty segment either.
    """
    if size + BLANK_BYTES > segment_size:
        raise StorageError(f"a record of {size} bytes does not fit a segment of {segment_size}")
    segment_end = start - start % segment_size + segment_size
    parts.append(_FILLER.pack(segment_end - offset, BLANK_MAGIC))
    writes.append(SegmentWrite(start, parts, offset - start + BLANK_BYTES))
    return segment_end


_PAIR = ord("\x02")


@lru_cache(maxsize=16)
def _before_body(common_bytes: int) -> struct.Struct:
    """Return the struct of a record up to its body. Fields that are common to a list are one field of the struct."""
    return struct.Struct(f">iiIiiqq{common_bytes}si")


@lru_cache(maxsize=256)
def _after_body(topic_bytes: int) -> struct.Struct:
    """Return the struct of the topic with its length, and PROPLEN."""
    return struct.Struct(f">{topic_bytes}sh")


class ListPacker:
    """Packs lists for a log with segments of ``segment_size`` bytes. ``find_queue`` creates queues that do
    not exist.
    """

    def __init__(self, find_queue: Callable[[str, int], ConsumeQueue], segment_size: int, store_host: bytes) -> None:
        self._find_queue = find_queue
        self._segment_size = segment_size
        self._store_host = store_host

    def pack(
        self, pending: Sequence[PendingList], start: int, timestamp: int
    ) -> tuple[AppendedLists, list[SegmentWrite]]:
        """Pack ``pending`` for log offset ``start`` with the store time ``timestamp`` (ms).

        Raises:
            StorageError: a message does not fit into a segment, or a value into its field; no queue offsets are used.
        """
        result = AppendedLists(pending, start, timestamp)
        writes: list[SegmentWrite] = []
        parts: list[Buffer] = []
        try:
            for one in pending:
                parts = self._pack_list(one, result, writes, parts)
        except struct.error as error:
            self.restore_offsets(result)
            raise StorageError(f"a list for topic {one.topic} does not fit its fields: {error}") from error
        except BaseException:
            self.restore_offsets(result)
            raise
        write_start = self._write_start(result, writes)
        writes.append(SegmentWrite(write_start, parts, result.end_offset - write_start))
        return result, writes

    def _pack_list(
        self, pending: PendingList, result: AppendedLists, writes: list[SegmentWrite], parts: list[Buffer]
    ) -> list[Buffer]:
        """Append the records of one list to ``parts``, the parts of the current write. Return the parts of the last
        write.
        """
        queue = self._find_queue(pending.topic, pending.queue_id)
        queue_id, magic, topic_field = pending.queue_id, queue.magic, queue.topic_field
        common = self._common_part(pending, result.store_timestamp)
        before, after = _before_body(len(common)), _after_body(len(topic_field))
        overhead = before.size + after.size
        more = pending.common_properties
        separated = b"\x02" + more if more else b""
        pack, pack_after, view = before.pack, after.pack, memoryview(pending.batch)
        first = queue_offset = queue.next_offset
        result.queues.append(queue)
        offset = result.end_offset
        room_end = offset - offset % self._segment_size + self._segment_size - BLANK_BYTES
        places, sizes = result.physical_offsets, result.sizes
        for flag, body_at, body_end, properties in pending.rows:
            behind = more if not properties or properties[-1] == _PAIR else separated
            properties_length = len(properties) + len(behind)
            body_length = body_end - body_at
            size = overhead + body_length + properties_length
            if offset + size > room_end:
                start = self._write_start(result, writes)
                offset = end_segment(writes, start, parts, offset, size, self._segment_size)
                parts, room_end = [], offset + self._segment_size - BLANK_BYTES
            body = view[body_at:body_end]
            crc = crc32(body) & 0x7FFFFFFF
            parts += (
                pack(size, magic, crc, queue_id, flag, queue_offset, offset, common, body_length),
                body,
                pack_after(topic_field, properties_length),
                properties,
                behind,
            )
            places.append(offset)
            sizes.append(size)
            offset += size
            queue_offset += 1
        queue.next_offset = queue_offset
        result.queue_offsets += range(first, queue_offset)
        result.end_offset = offset
        return parts

    def _write_start(self, result: AppendedLists, writes: list[SegmentWrite]) -> int:
        """Return the offset of the current write: the start of the group, or the start of the segment after the last
        write.
        """
        if not writes:
            return result.start_offset
        last = writes[-1].offset
        return last - last % self._segment_size + self._segment_size

    def _common_part(self, pending: PendingList, timestamp: int) -> bytes:
        """Return the bytes of a record between physical offset and body length, which are the same for the
        whole list.
        """
        born_host, store_host = pending.born_host, self._store_host
        sys_flag = (
            pending.sys_flag & WITHOUT_HOST_BITS | store_host_flag(store_host) | (BORN_V6 if len(born_host) != 8 else 0)
        )
        return struct.pack(
            f">iq{len(born_host)}sq{len(store_host)}siq",
            sys_flag, pending.born_timestamp, born_host, timestamp, store_host, 0, 0,
        )  # fmt: skip

    @staticmethod
    def restore_offsets(group: AppendedLists) -> None:
        """Release the queue offsets of a group that was not appended."""
        for _, queue, first, _ in reversed(list(group.parts())):
            if queue is not None and first < len(group.queue_offsets):
                queue.next_offset = group.queue_offsets[first]


Pending_contra = TypeVar("Pending_contra", contravariant=True)
Group = TypeVar("Group", AppendResult, AppendedLists)


class Packer(Protocol[Pending_contra, Group]):
    """Encodes records to append, and assigns offsets."""

    def pack(self, pending: Sequence[Pending_contra], start: int, timestamp: int) -> tuple[Group, list[SegmentWrite]]:
        """Pack for log offset ``start`` with the store time ``timestamp`` (ms). If it raises, no queue offsets are
        used.
        """

    def restore_offsets(self, group: Group) -> None:
        """Release the queue offsets of a group that was not appended."""


class Appender:
    """Appends groups of messages to ``log``."""

    def __init__(
        self,
        log: CommitLog,
        gate: WriteGate,
        find_queue: Callable[[str, int], ConsumeQueue],
        clock: Callable[[], int],
        store_host: bytes,
    ) -> None:
        self._log = log
        self._gate = gate
        self._find_queue = find_queue
        self._clock = clock
        self.last_timestamp = 0
        """Store time of the last record, in ms. It never decreases."""
        self.record_count = 0
        self.byte_count = 0
        self.set_store_host(store_host)

    def set_store_host(self, host: bytes) -> None:
        """Set the STOREHOST of later records: ip (4 or 16 bytes) and port (4)."""
        self._records = RecordPacker(self._find_queue, self._log.segment_size, host)
        self._lists = ListPacker(self._find_queue, self._log.segment_size, host)

    def append(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Append single messages. Raises like :meth:`~raptormq.storage.store.MessageStore.append`."""
        return self._append(self._records, records)

    def append_lists(self, lists: Sequence[PendingList]) -> AppendedLists:
        """Append lists of messages. Raises like :meth:`~raptormq.storage.store.MessageStore.append`."""
        return self._append(self._lists, lists)

    def _append(self, packer: Packer[Pending_contra, Group], pending: Sequence[Pending_contra]) -> Group:
        self._gate.check()
        timestamp = max(self._clock(), self.last_timestamp)
        group, writes = packer.pack(pending, self._log.end_offset, timestamp)
        try:
            self._log.write(writes, group.end_offset)
        except BaseException:
            packer.restore_offsets(group)
            raise
        self.last_timestamp = timestamp
        self.record_count += group.message_count
        self.byte_count += group.end_offset - group.start_offset
        return group
