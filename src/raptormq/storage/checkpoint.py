"""Checkpoint file: up to when log and queues are known to be durable (Apache RocketMQ ``StoreCheckpoint``).

4,096 bytes, big-endian, the rest zeros::

     0  physicMsgTimestamp i64    store time of the last durable record of the log, ms
     8  logicsMsgTimestamp i64    same, for the records whose queue items are durable
    16  indexMsgTimestamp i64     same, for the index files
    24  masterFlushedOffset i64
    32  confirmPhyOffset i64      end of what consumers may see

It is a hint that bounds the work of a recovery: too old is safe, so no part of it is ever trusted further than its
times say.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from raptormq.logs import get_logger
from raptormq.storage.filesystem import FileSystem

logger = get_logger(__name__)

CHECKPOINT_BYTES = 4096
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
    def replay_from_ms(self) -> int:
        """Records stored up to this time need no replay."""
        return min(self.log_timestamp, self.queue_timestamp) - SAFETY_MARGIN_MS

    def encode(self) -> bytes:
        """Return the whole file."""
        return _FIELDS.pack(*astuple(self)).ljust(CHECKPOINT_BYTES, b"\0")


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

    def load(self) -> Checkpoint:
        """Read it; an empty or short file counts as unknown, with a warning if it was there before."""
        data = self._file.read_at(0, CHECKPOINT_BYTES)
        if len(data) < _FIELDS.size and not self._is_new:
            logger.warning("%s is damaged (%d bytes): the whole log is walked", self._path, len(data))
        return decode_checkpoint(data)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write it and make it durable."""
        self._file.write_at(0, [checkpoint.encode()], CHECKPOINT_BYTES)
        self._file.sync()
        self.saved = checkpoint

    def close(self) -> None:
        """Close the file."""
        self._file.close()
