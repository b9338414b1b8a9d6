"""Finds messages by their keys (Apache RocketMQ ``IndexService``): the files of the index, newest last.

Every message is entered under its unique key and under each word of KEYS, in the dispatch after the consume queues;
rolled back halves of transactions are not. Files are ``index/<yyyyMMddHHmmssSSS>`` by the time of their creation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from raptormq.protocol.record import SysFlag
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.index_file import IndexFile
from raptormq.storage.key_hash import key_hash
from raptormq.storage.log_batch import AppendResult

logger = logging.getLogger(__name__)

_ROLLED_BACK = int(SysFlag.TRANSACTION_ROLLBACK)
_UNIQUE_KEY = b"UNIQ_KEY\x01"
_KEYS = b"KEYS\x01"
_PAIR = 2


class KeyIndex:
    """The index in ``folder``; an IndexBuilder of the dispatch."""

    def __init__(
        self, filesystem: FileSystem, folder: str, slot_count: int, entry_count: int, clock: Callable[[], int]
    ) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._clock = clock
        self._files: list[IndexFile] = []
        self._unsynced: set[str] = set()
        self._end_offset = -1

    # --- life ---

    def open(self, *, crashed: bool) -> None:
        """Load the files; one that is no index file is removed, since the index can be missed and a start cannot.

        Raises:
            OSError: the disk failed.
        """
        self._filesystem.make_folders(self._folder)
        for name in self._filesystem.names(self._folder):
            path = f"{self._folder}/{name}"
            try:
                self._files.append(IndexFile(self._filesystem, path, self._slot_count, self._entry_count))
            except ValueError as error:
                logger.warning("removed from the index: %s", error)
                self._filesystem.remove(path)
        if self._files and crashed:
            self._files[-1].repair()
        self._end_offset = max((file.end_offset for file in self._files if len(file)), default=-1)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    # --- adding ---

    def build(self, batch: AppendResult) -> None:
        """Enter the records of ``batch``; those that are in already are left alone."""
        if not batch.physical_offsets or batch.physical_offsets[-1] <= self._end_offset:
            return
        try:
            self._enter(batch)
        except OSError as error:  # consumers must get their messages all the same
            logger.error("messages from offset %d on cannot be found by key: %s", batch.start_offset, error)
        self._end_offset = batch.physical_offsets[-1]

    def _enter(self, batch: AppendResult) -> None:
        for record, offset, timestamp in zip(
            batch.records, batch.physical_offsets, batch.store_timestamps, strict=True
        ):
            if offset <= self._end_offset or record.sys_flag & _ROLLED_BACK == _ROLLED_BACK:
                continue
            properties = record[3]
            keys = _words(properties)
            unique = _value(properties, _UNIQUE_KEY)
            if unique:
                keys.append(unique)
            if keys:
                self._put(record[0], keys, offset, timestamp)

    def _put(self, topic: str, keys: list[bytes], offset: int, timestamp: int) -> None:
        file = self._files[-1] if self._files else None
        if file is None or not file.has_room(len(keys)):
            file = self._new_file()
        for key in keys:
            file.put(key_hash(topic, key), offset, timestamp)

    def _new_file(self) -> IndexFile:
        now = self._clock()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now / 1000)) + f"{now % 1000:03d}"
        while any(file.path.endswith(name) for file in self._files):
            name = str(int(name) + 1)
        file = IndexFile(self._filesystem, f"{self._folder}/{name}", self._slot_count, self._entry_count)
        self._files.append(file)
        return file

    # --- keeping ---

    def flush(self, pages: int) -> bool:
        """Write what was added, up to so many pages of slots; True when everything that was there at the first call
        is written.

        Raises:
            OSError: nothing is lost, it comes again.
        """
        for file in self._files:
            if file.is_dirty:
                self._unsynced.add(file.path)
                if not file.flush(pages):
                    return False
            if file is not self._files[-1]:
                file.release_slots()
        return True

    def take_unsynced(self) -> frozenset[str]:
        """Return the files and folders to be made durable, which the caller does."""
        taken = frozenset(self._unsynced)
        self._unsynced.clear()
        return taken

    def put_back(self, paths: frozenset[str]) -> None:
        """Take again what :meth:`take_unsynced` returned: it may not have become durable."""
        self._unsynced |= paths

    def remove_before(self, log_min: int) -> None:
        """Remove the files that only have messages before ``log_min``, except the last one."""
        while len(self._files) > 1 and self._files[0].end_offset < log_min:
            file = self._files.pop(0)
            file.close()
            self._unsynced.discard(file.path)
            self._filesystem.remove(file.path)

    # --- finding ---

    @property
    def end(self) -> tuple[int, int]:
        """Store time (ms) and log offset of the newest message that is in."""
        file = self._files[-1] if self._files else None
        return (file.end_timestamp, file.end_offset) if file is not None else (0, 0)

    def find(self, topic: str, key: str, begin: int, end: int, *, wait: bool) -> Iterator[int]:
        """Yield log offsets of messages that may have ``key`` (a hash decides), the newest first.

        Raises:
            PagesMissing: without ``wait``, when the disk would have to be waited for.
        """
        hashed = key_hash(topic, key.encode())
        for file in reversed(self._files):
            if len(file) and file.begin_timestamp <= end and file.end_timestamp >= begin:
                yield from file.find(hashed, begin, end, wait=wait)


def _value(properties: bytes, name: bytes) -> bytes:
    """Return the value of a property of a text form, the last one of the name; empty without."""
    at = properties.rfind(name)
    while at > 0 and properties[at - 1] != _PAIR:  # the end of a longer name
        at = properties.rfind(name, 0, at)
    if at < 0:
        return b""
    start = at + len(name)
    end = properties.find(b"\x02", start)
    return properties[start:end] if end >= 0 else properties[start:]


def _words(properties: bytes) -> list[bytes]:
    return [] if _KEYS not in properties else _value(properties, _KEYS).split()
