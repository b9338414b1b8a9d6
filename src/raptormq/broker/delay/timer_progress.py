"""Delivery progress of timer messages (``config/timercheck``, ``TimerCheckpoint``).

The file has 4,096 bytes: these fields (big-endian), zeros, and a checksum (:mod:`~raptormq.storage.fs.page_checksum`)::

     0  lastReadTimeMs i64            messages due before this time (ms since 1970) are delivered, if their queue
                                      offset is below lastTimerQueueOffset
     8  lastTimerLogFlushPos i64      0; above 0 in a file of RocketMQ, from a second after the first timer message
    16  lastTimerQueueOffset i64      end of the indexed part of the timer queue
    24  masterTimerQueueOffset i64    no message below this offset is waiting; RocketMQ reads the queue from here
    32  stateVersion i64              0
    40  timestamp i64                 0; never 0 in a file of RocketMQ

In a file of RocketMQ, ``masterTimerQueueOffset`` is the end of the part of the queue that ``timerlog`` contains.
Messages below it may be waiting. Such a file may contain an outdated checksum, because RocketMQ does not update it.

The file is written after the deliveries. The log is scanned for later deliveries (:mod:`raptormq.broker.delivered`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from raptormq.errors import StoreDamaged
from raptormq.files import read_file, replace_file
from raptormq.storage.fs import PAGE_BYTES, FileSystem, checksummed_page, has_wrong_checksum

_FIELDS = struct.Struct(">qqqq8xq")


class TimerProgress(NamedTuple):
    """The fields of the file that this broker uses. All zeros: no delivery is recorded."""

    read_ms: int = 0
    known_offset: int = 0
    first_waiting: int = 0

    def is_delivered(self, offset: int, due_ms: int) -> bool:
        """Return whether the message at ``offset`` of the timer queue was delivered."""
        return offset < self.known_offset and due_ms < self.read_ms


class TimerProgressFile:
    """The progress file at ``path``."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path

    def load(self) -> TimerProgress:
        """Read the file. A missing file yields empty progress.

        Raises:
            StoreDamaged: the file cannot be read, is truncated, or has a wrong checksum.
        """
        if not self._filesystem.exists(self._path):
            return TimerProgress()
        try:
            data = read_file(self._filesystem, self._path)
        except OSError as error:
            raise StoreDamaged(f"cannot read the progress of timer messages: {error}") from error
        if len(data) < _FIELDS.size:
            raise self._damaged(f"it has {len(data)} bytes of {PAGE_BYTES}")
        read_ms, log_position, last_offset, master_offset, version_ms = _FIELDS.unpack_from(data)
        is_foreign = log_position or version_ms
        if has_wrong_checksum(data) and not is_foreign:
            raise self._damaged("its CRC does not match")
        first = 0 if is_foreign else max(0, min(last_offset, master_offset))
        return TimerProgress(read_ms, last_offset, first)

    def _damaged(self, fault: str) -> StoreDamaged:
        remedy = "replace it with an undamaged copy, or remove it; without it timer messages are delivered again"
        return StoreDamaged(f"{self._path} is damaged: {fault}; {remedy}")

    def save(self, progress: TimerProgress) -> None:
        """Replace the file and sync it. Blocking.

        Raises:
            OSError: the write failed. The file has its old or its new content.
        """
        data = _FIELDS.pack(progress.read_ms, 0, progress.known_offset, progress.first_waiting, 0)
        replace_file(self._filesystem, self._path, checksummed_page(data))
