"""Delivery progress of timer messages (``config/timercheck``, ``TimerCheckpoint``).

4,096 bytes, big-endian, with a checksum (:mod:`~raptormq.storage.fs.page_checksum`), the rest zeros. Unused
fields of RocketMQ are 0::

     0  lastReadTimeMs i64            all messages due before then are delivered (those due then are not), of those ...
     8  lastTimerLogFlushPos i64      0; RocketMQ's own file has more in it a second after the first timer was set
    16  lastTimerQueueOffset i64      ... before this offset of the queue of timers
    24  masterTimerQueueOffset i64    no message before this offset waits; RocketMQ reads the queue from here on
    32  stateVersion i64              0
    40  timestamp i64                 0; RocketMQ's own file has a time in it, always

In RocketMQ's own file ``masterTimerQueueOffset`` says how far its ``timerlog`` has the queue: what is before may wait;
it may have a seal of ours, which RocketMQ has not brought up to date.

It is written a little after the delivery; what was delivered since the log tells (:mod:`raptormq.broker.delivered`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from raptormq.errors import StoreDamaged
from raptormq.files import read_file, replace_file
from raptormq.storage.fs import PAGE_BYTES, FileSystem, checksummed_page, has_wrong_checksum

_FIELDS = struct.Struct(">qqqq8xq")


class TimerProgress(NamedTuple):
    """All zeros means that no delivery is recorded."""

    read_ms: int = 0
    known_offset: int = 0
    first_waiting: int = 0

    def is_delivered(self, offset: int, due_ms: int) -> bool:
        """Whether the message at ``offset`` of the queue was delivered."""
        return offset < self.known_offset and due_ms < self.read_ms


class TimerProgressFile:
    """The file at ``path``."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path

    def load(self) -> TimerProgress:
        """Read the file; a missing file yields empty progress.

        Raises:
            StoreDamaged: the file cannot be read, is truncated, or has a wrong checksum.
        """
        if not self._filesystem.exists(self._path):
            return TimerProgress()
        try:
            data = read_file(self._filesystem, self._path)
        except OSError as error:
            raise StoreDamaged(f"the progress of timer messages cannot be read: {error}") from error
        if len(data) < _FIELDS.size:
            raise self._damaged(f"it has {len(data)} bytes of {PAGE_BYTES}")
        read_ms, log_position, last_offset, master_offset, version_ms = _FIELDS.unpack_from(data)
        is_foreign = log_position or version_ms
        if has_wrong_checksum(data) and not is_foreign:
            raise self._damaged("its CRC is wrong")
        first = 0 if is_foreign else max(0, min(last_offset, master_offset))
        return TimerProgress(read_ms, last_offset, first)

    def _damaged(self, fault: str) -> StoreDamaged:
        remedy = "replace it with an undamaged copy, or remove it; without it timer messages are delivered again"
        return StoreDamaged(f"{self._path} is damaged: {fault}; {remedy}")

    def save(self, progress: TimerProgress) -> None:
        """Replace the file; durable on return. Blocks on the disk.

        Raises:
            OSError: the old contents are still there.
        """
        data = _FIELDS.pack(progress.read_ms, 0, progress.known_offset, progress.first_waiting, 0)
        replace_file(self._filesystem, self._path, checksummed_page(data))
