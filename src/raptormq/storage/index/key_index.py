"""The index of messages by their keys (Apache RocketMQ ``IndexService``). The dispatcher adds the keys.

:class:`KeyIndex` manages the files of the index, the newest last. They are named ``index/<yyyyMMddHHmmssSSS>`` after
the time of their creation. Every message, also in a batch that is stored whole, is indexed by its unique key and by
each word of KEYS; rolled back halves of transactions are not. Only the keys of the batch itself are indexed when it is
compressed or encrypted as a whole: the dispatcher runs on the event loop, and inflating 32 KiB there takes 35 us.

:class:`PendingKeys` collects messages until there are enough of them, and returns their :class:`KeyRows` for insertion.
Insertion one by one would cost ten times as much. Most messages are added with their properties. When a batch that is
stored whole is known to have only unique keys of one length, they are added as one run: 0.1 us per message instead of
0.4.

See also: :mod:`~raptormq.storage.index.index_file` is one file, :mod:`~raptormq.storage.index.key_hash` hashes the
keys, and :mod:`~raptormq.storage.index.search` follows a hash through a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raptormq.errors import RecordError
from raptormq.logs import get_logger
from raptormq.protocol.batch import scan_batch
from raptormq.protocol.inner_ids import unpack_ids
from raptormq.protocol.keyed_batch import scan_keyed
from raptormq.protocol.properties import find_value
from raptormq.protocol.record import SysFlag
from raptormq.storage.fs import FileSystem
from raptormq.storage.index.index_file import Entries, Header, IndexFile, set_aside
from raptormq.storage.index.key_hash import hash_units, hashes_of_keys, key_hash, topic_hashes
from raptormq.storage.index.search import FileSearch
from raptormq.storage.queue import AppendedLists, AppendResult, PendingBatch, PendingRecord

logger = get_logger(__name__)


_Longs = NDArray[np.int64]


class KeyRows(NamedTuple):
    """Keys to insert into an index file, in columns: one row per key, in log order."""

    hashes: NDArray[np.int32]
    offsets: _Longs
    timestamps: _Longs


class _Run(NamedTuple):
    """Unique keys of equal length that belong to messages at one log offset."""

    topic: str
    offset: int
    timestamp: int
    """Store time in ms."""
    key_count: int
    keys: bytes
    """The keys in ASCII, concatenated."""


class PendingKeys:
    """Messages whose keys are to be inserted: columns of messages with their properties, and runs of unique keys."""

    __slots__ = ("_offsets", "_runs", "_texts", "_timestamps", "_topics", "count")

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._texts: list[bytes] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._runs: list[_Run] = []
        self.count = 0
        """Messages added, batches included."""

    def add(self, topic: str, text: bytes, offset: int, timestamp: int) -> None:
        """Add a message by its properties."""
        self._topics.append(topic)
        self._texts.append(text)
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self.count += 1

    def add_all(self, topic: str, texts: Sequence[bytes], offsets: Sequence[int], timestamp: int) -> None:
        """Add messages of one topic and store time by their properties."""
        count = len(texts)
        self._topics.extend([topic] * count)
        self._texts.extend(texts)
        self._offsets.extend(offsets)
        self._timestamps.extend([timestamp] * count)
        self.count += count

    def add_run(self, topic: str, keys: bytes, count: int, offset: int, timestamp: int) -> None:
        """Add ``count`` unique keys of one length, ASCII and back to back, of messages at one log offset."""
        self._runs.append(_Run(topic, offset, timestamp, count, keys))
        self.count += count

    def rows(self) -> KeyRows:
        """Return the rows of all messages added."""
        parts: list[KeyRows] = []
        if self._texts:
            parts.append(self._rows_of_texts())
        by_length: dict[int, list[_Run]] = {}
        for run in self._runs:
            by_length.setdefault(len(run.keys) // run.key_count, []).append(run)
        parts += [_rows_of_runs(runs, length) for length, runs in by_length.items()]
        if len(parts) == 1:
            return parts[0]
        hashes, offsets, timestamps = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(offsets, kind="stable")
        return KeyRows(hashes[order], offsets[order], timestamps[order])

    def _rows_of_texts(self) -> KeyRows:
        hashes, owners = hashes_of_keys(self._topics, self._texts)
        offsets, timestamps = np.array(self._offsets, dtype=np.int64), np.array(self._timestamps, dtype=np.int64)
        return KeyRows(hashes, offsets[owners], timestamps[owners])


def _rows_of_runs(runs: Sequence[_Run], length: int) -> KeyRows:
    topics, offsets, timestamps, counts, keys = zip(*runs, strict=True)
    units = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, length)
    hashes = hash_units(topic_hashes(topics).repeat(counts), units)
    return KeyRows(
        hashes,
        np.array(offsets, dtype=np.int64).repeat(counts),
        np.array(timestamps, dtype=np.int64).repeat(counts),
    )


_COMPRESSED = int(SysFlag.COMPRESSED)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_ROLLED_BACK = int(SysFlag.TRANSACTION_ROLLBACK)
_UNIQUE_KEY, _KEYS = b"UNIQ_KEY\x01", b"KEYS\x01"
_MAX_PENDING = 1024
"""Number of messages that are inserted together; one by one they would cost ten times as much."""
_MAX_WAITING_KEYS = 1 << 22
"""Maximum number of pending keys while no file can be created. They take 84 MB, and the store refuses writes before so
many arrive."""
_PROPERTIES = itemgetter(PendingRecord._fields.index("properties"))
_NAME = re.compile("[0-9]{17}")


class KeyIndex:
    """The index in ``folder``; a builder of the dispatcher."""

    def __init__(
        self, filesystem: FileSystem, folder: str, slot_count: int, entry_count: int, clock: Callable[[], int]
    ) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._clock = clock
        self._files: list[IndexFile] = []
        self._pending = PendingKeys()
        self._waiting: deque[KeyRows] = deque()
        """Rows that could not be inserted yet, in log order."""
        self._has_dropped = False
        self._indexed_offset = -1

    # --- start and stop ---

    def open(self, *, crashed: bool) -> None:
        """Load the files. A file that is no index file with ``slot_count`` slots is set aside, because the store can
        start without its keys. A file without counted entries is removed; the replay inserts its keys again.

        Raises:
            OSError: the disk failed.
        """
        self._filesystem.make_folders(self._folder)
        for name in self._filesystem.names(self._folder):
            if _NAME.fullmatch(name):
                self._open_file(f"{self._folder}/{name}")
        self._files.sort(key=lambda file: file.begin_offset)  # not by name: the clock may have been set back
        if self._files:  # only the last one: a file is complete before the next one counts entries
            self._files[-1].prepare()
        self._indexed_offset = max((file.end_offset for file in self._files), default=-1)
        if crashed:
            self._indexed_offset -= 1  # some keys of that message may be missing; duplicates are removed by searches

    def _open_file(self, path: str) -> None:
        try:
            file = IndexFile(self._filesystem, path, self._slot_count)
        except (ValueError, IsADirectoryError) as error:
            set_aside(self._filesystem, path, error)
            return
        if len(file):
            self._files.append(file)
        else:
            file.close()
            self._filesystem.remove(path)

    def log_ends_at(self, offset: int) -> None:
        """Set the end of the log after a recovery. Messages from ``offset`` on are indexed even if the index has
        entries at these offsets, because those entries belong to messages that the log has lost.
        """
        self._indexed_offset = min(self._indexed_offset, offset - 1)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    # --- adding ---

    def build(self, batch: AppendResult) -> None:
        """Add the keys of ``batch``; records that are already indexed are skipped."""
        last = self._indexed_offset
        if not batch.physical_offsets or batch.physical_offsets[-1] <= last:
            return
        pending = self._pending
        for record, offset, timestamp in zip(
            batch.records, batch.physical_offsets, batch.store_timestamps, strict=True
        ):
            if offset > last and record.sys_flag & _ROLLED_BACK != _ROLLED_BACK:
                if record.sys_flag & _INNER_BATCH and self._add_batch(record, offset, timestamp):
                    continue
                pending.add(record.topic, record.properties, offset, timestamp)
        self._indexed_offset = batch.physical_offsets[-1]
        if pending.count >= _MAX_PENDING:
            self._try_insert()

    def _add_batch(self, batch: PendingRecord, offset: int, timestamp: int) -> bool:
        """Add the keys of the messages in a batch that is stored whole, or the keys that its properties list when its
        body cannot be read. Return True when the keys of the batch itself are included.
        """
        if isinstance(batch, PendingBatch):
            if batch.keys:
                self._pending.add_run(batch.topic, batch.keys, batch.messages + 1, offset, timestamp)
                return True
            texts = batch.texts
        else:
            body = b"" if batch.sys_flag & _COMPRESSED else bytes(batch.body)
            if (keys := _alike_keys(body, batch.properties)) is not None:
                self._pending.add_run(batch.topic, *keys, offset, timestamp)
                return True
            texts = _texts(body)
        if texts:
            self._pending.add_all(batch.topic, texts, [offset] * len(texts), timestamp)
        elif ids := unpack_ids(batch.properties.decode("utf-8", "replace")):
            self._pending.add_run(batch.topic, "".join(ids).encode(), len(ids), offset, timestamp)
        return False

    def build_lists(self, batch: AppendedLists) -> None:
        """Add the keys of lists that have just been appended."""
        pending, timestamp = self._pending, batch.store_timestamp
        for part, _, first, after in batch.parts():
            texts = list(map(_PROPERTIES, part.rows))
            pending.add_all(part.topic, texts, batch.physical_offsets[first:after], timestamp)
        self._indexed_offset = batch.physical_offsets[-1]
        if pending.count >= _MAX_PENDING:
            self._try_insert()

    def insert(self) -> None:
        """Insert the pending keys into the files.

        Raises:
            OSError: some keys could not be inserted. They wait for the next call. When too many wait, they are dropped,
                and no key is inserted until a start recovers from the last checkpoint.
        """
        try:
            if self._pending.count:
                rows, self._pending = self._pending.rows(), PendingKeys()
                self._add_waiting(rows)
            while self._waiting:
                self._insert_first(self._waiting)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        if self._has_dropped:
            raise OSError(errno.EIO, "too many keys are waiting for disk space")

    def _try_insert(self) -> None:
        """Insert the pending keys as far as possible. The next flush reports an error; messages are accepted
        meanwhile.
        """
        with contextlib.suppress(OSError):
            self.insert()

    def _add_waiting(self, rows: KeyRows) -> None:
        if self._has_dropped or not len(rows.hashes):
            return
        self._waiting.append(rows)
        if sum(len(each.hashes) for each in self._waiting) > _MAX_WAITING_KEYS:
            offset = self._waiting[0].offsets[0]
            logger.error("messages from offset %d on cannot be found by key until the next start", offset)
            self._waiting.clear()
            self._has_dropped = True

    def _insert_first(self, waiting: deque[KeyRows]) -> None:
        rows = waiting[0]
        file = self._files[-1] if self._files else self._new_file()
        count = _whole_messages(rows.offsets, file.free_entries())
        if not count:
            file = self._new_file() if len(file) else file
            count = _whole_messages(rows.offsets, file.free_entries()) or file.free_entries()
        file.put(rows.hashes[:count], rows.offsets[:count], rows.timestamps[:count])
        if count < len(rows.hashes):
            waiting[0] = KeyRows(rows.hashes[count:], rows.offsets[count:], rows.timestamps[count:])
        else:
            waiting.popleft()

    def _new_file(self) -> IndexFile:
        now = self._clock()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now / 1000)) + f"{now % 1000:03d}"
        while self._filesystem.exists(f"{self._folder}/{name}"):
            name = str(int(name) + 1)
        file = IndexFile.create(self._filesystem, f"{self._folder}/{name}", self._slot_count, self._entry_count)
        self._files.append(file)
        return file

    # --- keeping ---

    def begin_flush(self) -> None:
        """Make the following :meth:`flush` calls write everything inserted so far, including the rest of an unfinished
        flush.

        Raises:
            OSError: some keys could not be inserted, see :meth:`insert`.
        """
        self.insert()
        for file in self._files:
            file.begin_flush()

    def flush(self, pages: int) -> bool:
        """Write about ``pages`` pages. Return True when everything inserted before :meth:`begin_flush` is written
        except the :meth:`headers`.

        Raises:
            OSError: the write failed; the next call repeats it.
        """
        self._try_insert()
        for file in self._files:
            if file.is_dirty and not file.flush(pages):
                return False
            if file is not self._files[-1]:
                # The file has grown during this flush, and its header has to be written before that of the next file.
                if file.is_dirty:
                    return False
                file.release_slots()
        return True

    def unwritten_entries(self, least: int, most: int) -> Entries | None:
        """Return between ``least`` and ``most`` bytes of entries for a thread to write, so that :meth:`flush` has few
        left; None when there are fewer.
        """
        for file in self._files:
            if file.unwritten_bytes >= least:
                return file.unwritten(most)
        return None

    def entries_written(self, entries: Entries) -> None:
        """Record that a thread has written the result of :meth:`unwritten_entries`."""
        for file in self._files:
            if file.path == entries.path:
                file.written(entries)

    def headers(self) -> list[Header]:
        """Return the headers to write and make durable last, the older files first."""
        return [header for file in self._files if (header := file.header) is not None]

    def headers_written(self, headers: Sequence[Header]) -> None:
        """Record that these headers, returned by :meth:`headers`, are durable."""
        for header in headers:
            for file in self._files:
                if file.path == header.path:
                    file.header_written(header)

    def drop_before(self, log_min: int) -> list[str]:
        """Drop the files that only have messages before ``log_min``, except the last one. Return their paths; the
        caller removes them, which takes 100 ms each.
        """
        taken: list[str] = []
        while len(self._files) > 1 and self._files[0].end_offset < log_min:
            file = self._files.pop(0)
            file.close()
            taken.append(file.path)
        return taken

    # --- finding ---

    @property
    def end(self) -> tuple[int, int]:
        """Store time (ms) and log offset of the newest indexed message."""
        self._try_insert()
        file = self._files[-1] if self._files else None
        return (file.end_timestamp, file.end_offset) if file is not None else (0, 0)

    def searches(self, topic: str, key: str, begin: int, end: int) -> list[FileSearch]:
        """Return searches for messages that may have ``key`` (the hash matches), one per file, the newest first."""
        self._try_insert()
        hashed = key_hash(topic, key)
        return [
            FileSearch(file, hashed, begin, end)
            for file in reversed(self._files)
            if len(file) and file.begin_timestamp <= end and file.end_timestamp >= begin
        ]


def _whole_messages(offsets: NDArray[np.int64], room: int) -> int:
    """Return the number of rows that fit in ``room`` without splitting the keys of one message."""
    count = min(room, len(offsets))
    while 0 < count < len(offsets) and offsets[count] == offsets[count - 1]:
        count -= 1
    return count


def _alike_keys(batch: bytes, properties: bytes) -> tuple[bytes, int] | None:
    """Return the unique keys of the messages of a batch and, last, of the batch itself, concatenated; and their number.
    Return None unless there are no other keys and all have one length.
    """
    keyed = scan_keyed(batch)
    if keyed is None:
        return None
    own, words = (find_value(properties, name) for name in (_UNIQUE_KEY, _KEYS))
    if len(own) * keyed.messages != len(keyed.keys) or not own.isascii() or words.strip(b" "):
        return None
    return keyed.keys + own, keyed.messages + 1


def _texts(batch: bytes) -> list[bytes]:
    """Return the properties of the messages of a batch; an empty list when it is damaged."""
    try:
        return list(map(_PROPERTIES, scan_batch(batch)))
    except RecordError:
        return []
