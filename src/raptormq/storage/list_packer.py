"""Packs lists of messages, as producers send them in one piece, into the bytes of the log.

Neighbour: :mod:`~raptormq.storage.record_packer`, which packs single messages; the records are the same. Of a list,
everything but sizes, CRC, flag and offsets is packed once, and bodies go from the request into the log as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from isal.isal_zlib import crc32

from raptormq.errors import StorageError
from raptormq.protocol.record import BLANK_BYTES
from raptormq.storage.commit_log import Run
from raptormq.storage.consume_queue import ConsumeQueue
from raptormq.storage.filesystem import Buffer
from raptormq.storage.log_batch import AppendedLists, PendingList
from raptormq.storage.record_packer import BORN_V6, NO_HOSTS, end_run, store_host_flag

_PAIR = ord("\x02")


@lru_cache(maxsize=16)
def _before_body(common_bytes: int) -> struct.Struct:
    """A record up to its body; what the messages of a list have in common is one field."""
    return struct.Struct(f">iiIiiqq{common_bytes}si")


@lru_cache(maxsize=256)
def _after_body(topic_bytes: int) -> struct.Struct:
    """Topic with its length, and PROPLEN."""
    return struct.Struct(f">{topic_bytes}sh")


class ListPacker:
    """Packs for a log with segments of ``segment_size`` bytes; ``find_queue`` makes queues that do not exist yet."""

    def __init__(self, find_queue: Callable[[str, int], ConsumeQueue], segment_size: int, store_host: bytes) -> None:
        self._find_queue = find_queue
        self._segment_size = segment_size
        self._store_host = store_host

    def pack(self, pending: Sequence[PendingList], start: int, timestamp: int) -> tuple[AppendedLists, list[Run]]:
        """Pack ``pending`` for the place ``start`` with the store time ``timestamp`` (ms).

        Raises:
            StorageError: a message does not fit a segment, or a field its width; no offsets have been used up.
        """
        result = AppendedLists(pending, start, timestamp)
        runs: list[Run] = []
        parts: list[Buffer] = []
        try:
            for one in pending:
                parts = self._pack_list(one, result, runs, parts)
        except struct.error as error:
            self.take_back(result)
            raise StorageError(f"a list for topic {one.topic} does not fit its fields: {error}") from error
        except BaseException:
            self.take_back(result)
            raise
        run_start = self._run_start(result, runs)
        runs.append(Run(run_start, parts, result.end_offset - run_start))
        return result, runs

    def _pack_list(
        self, pending: PendingList, result: AppendedLists, runs: list[Run], parts: list[Buffer]
    ) -> list[Buffer]:
        """Add the records of one list to ``parts``, which belong to the present run; return those of the last run."""
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
                start = self._run_start(result, runs)
                offset = end_run(runs, start, parts, offset, size, self._segment_size)
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

    def _run_start(self, result: AppendedLists, runs: list[Run]) -> int:
        """Return where the present run begins: with the group, or with the segment after the last run."""
        if not runs:
            return result.start_offset
        last = runs[-1].offset
        return last - last % self._segment_size + self._segment_size

    def _common_part(self, pending: PendingList, timestamp: int) -> bytes:
        """Return the bytes of a record between physical offset and body length: the same for the whole list."""
        born_host, store_host = pending.born_host, self._store_host
        sys_flag = pending.sys_flag & NO_HOSTS | store_host_flag(store_host) | (BORN_V6 if len(born_host) != 8 else 0)
        return struct.pack(
            f">iq{len(born_host)}sq{len(store_host)}siq",
            sys_flag, pending.born_timestamp, born_host, timestamp, store_host, 0, 0,
        )  # fmt: skip

    @staticmethod
    def take_back(group: AppendedLists) -> None:
        """Return the queue offsets of a group that did not make it into the log."""
        for _, queue, first, _ in reversed(list(group.parts())):
            if queue is not None and first < len(group.queue_offsets):
                queue.next_offset = group.queue_offsets[first]
