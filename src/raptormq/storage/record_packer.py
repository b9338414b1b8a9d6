"""Packs groups of messages into the bytes of the log; the hottest loop of the broker.

Layout of a record: :mod:`raptormq.protocol.record`. Offsets are handed out here: physical ones follow the end of the
log, queue offsets come from the queues (the wrapper of a batch takes one for each of its messages, and gets INNER_BASE
behind its properties) and are taken back when the group does not make it into the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from isal.isal_zlib import crc32

from raptormq.errors import StorageError
from raptormq.protocol.record import BLANK_BYTES, BLANK_MAGIC, SysFlag
from raptormq.storage.batch_queue import message_count
from raptormq.storage.commit_log import Run
from raptormq.storage.consume_queue import ConsumeQueue
from raptormq.storage.filesystem import Buffer
from raptormq.storage.log_batch import AppendResult, PendingRecord

_FILLER = struct.Struct(">ii")
_PROPERTIES_LENGTH = struct.Struct(">h")
BORN_V6 = int(SysFlag.BORN_HOST_V6)
NO_HOSTS = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
"""All but the bits that tell how long hosts are: they are set here, whatever a producer or an older record says."""
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_UNUSUAL = _INNER_BATCH | ~NO_HOSTS
NOT_IN_QUEUE = int(SysFlag.TRANSACTION_PREPARED)
"""Set for prepared and rolled back messages (4 and 12), clear for plain and committed ones (0 and 8)."""


def store_host_flag(store_host: bytes) -> int:
    """Return the bit that the length of STOREHOST (ip and port) sets in sysFlag."""
    return int(SysFlag.STORE_HOST_V6) if len(store_host) == 20 else 0


def _fixed_part(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    return struct.Struct(f">iiIiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


class RecordPacker:
    """Packs for a log with segments of ``segment_size`` bytes; ``find_queue`` makes queues that do not exist yet."""

    def __init__(self, find_queue: Callable[[str, int], ConsumeQueue], segment_size: int, store_host: bytes) -> None:
        self._find_queue = find_queue
        self._segment_size = segment_size
        self._store_host = store_host
        self._store_flag = store_host_flag(store_host)
        self._fixed_v4 = _fixed_part(8, len(store_host))
        self._fixed_v6 = _fixed_part(20, len(store_host))

    def pack(self, pending: Sequence[PendingRecord], start: int, timestamp: int) -> tuple[AppendResult, list[Run]]:
        """Pack ``pending`` for the place ``start`` with the store time ``timestamp`` (ms).

        Raises:
            StorageError: a record does not fit a segment, or a field its width; no offsets have been used up.
        """
        result = AppendResult(pending, start, [timestamp] * len(pending))
        try:
            runs = self._pack(result, timestamp)
        except struct.error as error:
            self.take_back(result)
            raise StorageError(f"record {len(result.sizes)} of the group does not fit its fields: {error}") from error
        except BaseException:
            self.take_back(result)
            raise
        return result, runs

    def _pack(self, result: AppendResult, timestamp: int) -> list[Run]:
        store_host, store_flag = self._store_host, self._store_flag
        pack_v4, pack_v6, pack_length = self._fixed_v4.pack, self._fixed_v6.pack, _PROPERTIES_LENGTH.pack
        overhead = self._fixed_v4.size + _PROPERTIES_LENGTH.size
        queues, queue_offsets = result.queues, result.queue_offsets
        physical_offsets, sizes = result.physical_offsets, result.sizes
        find_queue = self._find_queue
        offset = result.start_offset
        room_end = offset - offset % self._segment_size + self._segment_size - BLANK_BYTES
        parts: list[Buffer] = []
        run_start = offset
        runs: list[Run] = []
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
                sys_flag &= NO_HOSTS
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
                offset = end_run(runs, run_start, parts, offset, size, self._segment_size)
                run_start, parts, room_end = offset, [], offset + self._segment_size - BLANK_BYTES
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
        runs.append(Run(run_start, parts, offset - run_start))
        return runs

    @staticmethod
    def take_back(group: AppendResult) -> None:
        """Return the queue offsets of a group that did not make it into the log."""
        for queue, queue_offset in zip(reversed(group.queues), reversed(group.queue_offsets), strict=False):
            if queue is not None:
                queue.next_offset = queue_offset


def end_run(runs: list[Run], start: int, parts: list[Buffer], offset: int, size: int, segment_size: int) -> int:
    """End the segment of the run that began at ``start`` with a filler at ``offset``, since a record of ``size`` bytes
    does not fit any more; return the first offset of the next segment.

    Raises:
        StorageError: it does not fit an empty segment either.
    """
    if size + BLANK_BYTES > segment_size:
        raise StorageError(f"a record of {size} bytes does not fit a segment of {segment_size}")
    segment_end = start - start % segment_size + segment_size
    parts.append(_FILLER.pack(segment_end - offset, BLANK_MAGIC))
    runs.append(Run(start, parts, offset - start + BLANK_BYTES))
    return segment_end
