"""Checkpoint file: the time up to which log and queues are durable (Apache RocketMQ ``StoreCheckpoint``).

4,096 bytes, big-endian, with a checksum (:mod:`~raptormq.storage.fs.page_checksum`), the rest zeros::

     0  physicMsgTimestamp i64    store time of the last durable record of the log, ms
     8  logicsMsgTimestamp i64    same, for the records whose queue items are durable
    16  indexMsgTimestamp i64     same, for the index files
    24  masterFlushedOffset i64
    32  confirmPhyOffset i64      end of what consumers may see

The checkpoint bounds the work of a recovery. A checkpoint that is too old is safe. With one that is too new, messages
would be missing from the queues. Its contents are ignored in three cases: the checksum does not match; it names times
that the log does not have; or the file has RaptorMQ's checksum and its end of the queues lies before records that its
times cover (:mod:`~raptormq.storage.recovery.recovery` checks the last two).
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from raptormq.logs import get_logger
from raptormq.storage.fs import PAGE_BYTES, FileSystem, checksummed_page, has_checksum, has_wrong_checksum

logger = get_logger(__name__)

SAFETY_MARGIN_MS = 3000
"""Time in ms by which recovery starts before the checkpoint, as in Apache RocketMQ."""
_FIELDS = struct.Struct(">qqqqq")


@dataclass(slots=True)
class Checkpoint:
    """Contents of the file. All fields are 0 without a checkpoint."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0

    @property
    def durable_ms(self) -> int:
        """Store time of the last record that is durable together with its queue item."""
        return min(self.log_timestamp, self.queue_timestamp)

    @property
    def replay_from_ms(self) -> int:
        """Store time in ms up to which records need no replay."""
        return self.durable_ms - SAFETY_MARGIN_MS

    def encode(self) -> bytes:
        """Return the whole file."""
        return checksummed_page(_FIELDS.pack(*astuple(self)))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the contents; a file that is too short yields an empty checkpoint."""
    return Checkpoint(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else Checkpoint()


class CheckpointFile:
    """The file at ``path``. It is kept open and overwritten in place; it fits one sector, so no write is torn."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._path = path
        self._is_new = not filesystem.exists(path)
        self._file = filesystem.open(path, create=True)
        self.saved: Checkpoint | None = None
        """The checkpoint that the last :meth:`save` wrote."""

    def load_checked(self) -> Checkpoint | None:
        """Return the contents if this program wrote them last; None when there are none, or another program has changed
        the file.
        """
        data = self._file.read_at(0, PAGE_BYTES)
        return decode_checkpoint(data) if has_checksum(data) and not has_wrong_checksum(data) else None

    def load(self) -> Checkpoint:
        """Read the file. The checkpoint is empty when the file is empty, too short or fails its checksum; a warning is
        logged if the file existed before.
        """
        data = self._file.read_at(0, PAGE_BYTES)
        if len(data) < _FIELDS.size and not self._is_new:
            logger.warning("%s is damaged (%d bytes): the whole log is scanned", self._path, len(data))
        if has_wrong_checksum(data):
            what = "is damaged, or another program has changed it (its CRC does not match)"
            logger.warning("%s %s: the whole log is scanned", self._path, what)
            return Checkpoint()
        return decode_checkpoint(data)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint and sync the file."""
        self._file.write_at(0, [checkpoint.encode()], PAGE_BYTES)
        self._file.sync()
        self.saved = checkpoint

    def close(self) -> None:
        """Close the file."""
        self._file.close()
