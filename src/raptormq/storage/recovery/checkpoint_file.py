"""Checkpoint file: up to when log and queues are known to be durable (Apache RocketMQ ``StoreCheckpoint``).

4,096 bytes, big-endian, with a seal (:mod:`~raptormq.storage.fs.page_checksum`), the rest zeros::

     0  physicMsgTimestamp i64    store time of the last durable record of the log, ms
     8  logicsMsgTimestamp i64    same, for the records whose queue items are durable
    16  indexMsgTimestamp i64     same, for the index files
    24  masterFlushedOffset i64
    32  confirmPhyOffset i64      end of what consumers may see

It is a hint that bounds the work of a recovery: too old is safe, too new hides messages. So a file whose seal is broken
counts as unknown, and so does one that names times which the log does not have, or, under our seal, an end of the
queues before the records that its times cover (:mod:`~raptormq.storage.recovery.recovery` looks).
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from raptormq.logs import get_logger
from raptormq.storage.fs import PAGE_BYTES, FileSystem, checksummed_page, has_checksum, has_wrong_checksum

logger = get_logger(__name__)

SAFETY_MARGIN_MS = 3000
"""Recovery starts this much before the checkpoint, as the reference does."""
_FIELDS = struct.Struct(">qqqqq")


@dataclass(slots=True)
class Checkpoint:
    """Contents of the file; all zeros mean "nothing is known"."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0

    @property
    def durable_ms(self) -> int:
        """Store time of the last record that is durable with its queue item."""
        return min(self.log_timestamp, self.queue_timestamp)

    @property
    def replay_from_ms(self) -> int:
        """Records stored up to this time need no replay."""
        return self.durable_ms - SAFETY_MARGIN_MS

    def encode(self) -> bytes:
        """Return the whole file."""
        return checksummed_page(_FIELDS.pack(*astuple(self)))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the contents; a file that is too short counts as unknown."""
    return Checkpoint(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else Checkpoint()


class CheckpointFile:
    """The file at ``path``, kept open and overwritten in place (one sector, so never torn)."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._path = path
        self._is_new = not filesystem.exists(path)
        self._file = filesystem.open(path, create=True)
        self.saved: Checkpoint | None = None
        """What the last :meth:`save` wrote."""

    def load_checked(self) -> Checkpoint | None:
        """Return what this program has written, None without or where another program has gone on with the file."""
        data = self._file.read_at(0, PAGE_BYTES)
        return decode_checkpoint(data) if has_checksum(data) and not has_wrong_checksum(data) else None

    def load(self) -> Checkpoint:
        """Read it; a file that is empty, short or not what its seal was put on counts as unknown, with a warning if it
        was there before.
        """
        data = self._file.read_at(0, PAGE_BYTES)
        if len(data) < _FIELDS.size and not self._is_new:
            logger.warning("%s is damaged (%d bytes): the whole log is walked", self._path, len(data))
        if has_wrong_checksum(data):
            what = "is damaged, or another program has gone on with it (its CRC does not fit)"
            logger.warning("%s %s: the whole log is walked", self._path, what)
            return Checkpoint()
        return decode_checkpoint(data)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write it and make it durable."""
        self._file.write_at(0, [checkpoint.encode()], PAGE_BYTES)
        self._file.sync()
        self.saved = checkpoint

    def close(self) -> None:
        """Close the file."""
        self._file.close()
