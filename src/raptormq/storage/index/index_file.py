"""One file of the key index (Apache RocketMQ ``IndexFile``): a hash table on disk whose chains run back in time.

Numbers are big-endian. A file has 5,000,000 slots and 20,000,000 entries by default, and is sparse::

     0  beginTimestamp i64      store time (ms) of the first message
     8  endTimestamp i64        of the last one
    16  beginPhyOffset i64      its place in the log
    24  endPhyOffset i64
    32  hashSlotCount i32       slots in use
    36  indexCount i32          number of the next entry; the first one is 1
    40  slots i32 * n           number of the newest entry of the slot, 0 for none; slot = hash % n
        entries                 hash i32 | physical offset i64 | seconds after beginTimestamp i32 | older entry i32

:class:`IndexFile` buffers writes and performs them in the order entries, slots, header. A thread makes entries and
slots durable before the header is written, so the entries that a header counts survive a killed process and a power
cut. The next start repairs slots that point beyond them, and the replay of the log inserts the uncounted entries again.
A thread may write entries at any time: no reader follows them before a slot points to them.

:func:`set_aside` renames files that have another number of slots or are no index files. Their keys are not found. Such
a file is kept while the log contains messages that it indexes, so that an operator can configure the old number of
slots again. After that :func:`remove_set_aside` removes it.

See also: :mod:`~raptormq.storage.index.key_index` manages the files and calls :func:`set_aside`;
:mod:`~raptormq.storage.maintenance.maintenance` has the timer that removes them.
"""

from __future__ import annotations

import contextlib
import re
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raptormq.logs import get_logger
from raptormq.storage.fs import Extent, File, FileSystem, PagesMissing

logger = get_logger(__name__)


_ASIDE = ".aside"
"""Suffix of a file that was set aside."""
_NAME = re.compile(r"[0-9]{17}\.aside")


def set_aside(filesystem: FileSystem, path: str, reason: Exception) -> None:
    """Rename the file at ``path`` and log a warning.

    Raises:
        OSError: the file cannot be renamed.
    """
    aside = f"{path}{_ASIDE}"
    filesystem.replace(path, aside)
    logger.warning("keys in %s cannot be found; the file has been renamed to %s: %s", path, aside, reason)


def remove_set_aside(filesystem: FileSystem, folder: str, log_min: int) -> None:
    """Remove files below ``folder`` that were set aside and only have messages before ``log_min``. A file without a
    valid header is kept, because it may be anything. Blocks.

    Raises:
        OSError: a file cannot be read or removed.
    """
    for name in filesystem.names(folder):
        path = f"{folder}/{name}"
        if not _NAME.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            if _end_offset(filesystem, path, log_min) < log_min:
                filesystem.remove(path)
                logger.info("removed %s: the log no longer has any of its messages", path)


def _end_offset(filesystem: FileSystem, path: str, unknown: int) -> int:
    """Return the log offset of the last message of a file, ``unknown`` when it has no valid header."""
    try:
        file = filesystem.open(path)
    except IsADirectoryError:
        return unknown
    with contextlib.closing(file):
        data = file.read_at(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return unknown
    begin_timestamp, end_timestamp, begin, end, _, next_entry = HEADER.unpack(data)
    is_header = 0 < begin_timestamp <= end_timestamp and 0 <= begin <= end and next_entry > 1
    return int(end) if is_header else unknown


HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = HEADER.size
_ENTRY = struct.Struct(">iqii")
ENTRY_BYTES = _ENTRY.size
ENTRIES = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("older", ">i4")])
_SLOT_BYTES = 4
_PAGE_BYTES = 4096
_PAGE_SLOTS = _PAGE_BYTES // _SLOT_BYTES
_ENTRIES_AT_ONCE = 1 << 16
_WRITE_BYTES = 128 << 10
"""Bytes per write; file systems lock a file during a write, 50 ms for 16 MiB."""
EntryRows = NDArray[np.void]
_Column = NDArray[np.int32]


class Entries(NamedTuple):
    """Index entries that are not written yet. Any thread may write them."""

    path: str
    first: int
    """Number of the first entry."""
    at: int
    data: bytes

    def write(self, filesystem: FileSystem) -> bool:
        """Write the entries; return False when the file does not exist any more. The file is opened by name, so that
        neither thread closes the other's descriptor. It is written in pieces, so that writes of the event loop wait for
        one piece at most.

        Raises:
            OSError: the disk is full, or failed.
        """
        data = memoryview(self.data)
        try:
            with contextlib.closing(filesystem.open(self.path)) as file:
                for start in range(0, len(data), _WRITE_BYTES):
                    piece = data[start : start + _WRITE_BYTES]
                    file.write_at(self.at + start, [piece], len(piece))
        except FileNotFoundError:
            return False
        return True


class Header(NamedTuple):
    """The header of an index file, before it is written. Any thread may write it."""

    path: str
    data: bytes

    def make_durable(self, filesystem: FileSystem) -> None:
        """Sync the entries, then write and sync the header. Do nothing when the file does not exist any more.

        Raises:
            OSError: the disk failed.
        """
        with contextlib.suppress(FileNotFoundError), contextlib.closing(filesystem.open(self.path)) as file:
            file.sync()
            file.write_at(0, [self.data], len(self.data))
            file.sync()


class IndexFile:
    """A file of ``slot_count`` slots; its size determines the number of entries. Belongs to one thread."""

    def __init__(self, filesystem: FileSystem, path: str, slot_count: int) -> None:
        """Open a file. Call :meth:`prepare` before adding entries.

        Raises:
            OSError: the file cannot be opened or read.
            ValueError: it is no index file, or has another number of slots.
        """
        self.path = path
        self.slot_count = slot_count
        self._entries_at = HEADER_BYTES + slot_count * _SLOT_BYTES
        self._slots: NDArray[np.int32] | None = None
        """All slots; None for an older file before :meth:`prepare`."""
        self._dirty = np.zeros(-(-slot_count // _PAGE_SLOTS), dtype=np.bool_)
        """Pages of changed slots that are not written yet. Pages of the current flush are in ``_flushing_pages``."""
        self._file: File = filesystem.open(path)
        self.is_open = True
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise
        self._file_header = self._next_header = self._header()
        self._tail = bytearray()  # entries from number _tail_from on, which are not written yet
        self._tail_from = self._next
        self._flushing_pages: list[int] = []
        self._flushing_header = b""

    @classmethod
    def create(cls, filesystem: FileSystem, path: str, slot_count: int, entry_count: int) -> IndexFile:
        """Create a file for ``entry_count`` entries, ready for adding.

        Raises:
            OSError: the file cannot be created; nothing is left of it.
            MemoryError: likewise.
        """
        slots = np.zeros(slot_count, dtype=np.int32)
        try:
            with contextlib.closing(filesystem.open(path, create=True)) as file:
                file.truncate(HEADER_BYTES + slot_count * _SLOT_BYTES + entry_count * ENTRY_BYTES)
            made = cls(filesystem, path, slot_count)
        except (OSError, MemoryError):
            with contextlib.suppress(OSError):
                filesystem.remove(path)
            raise
        made._slots = slots
        return made

    def _read_header(self) -> None:
        size = self._file.size()
        self._entry_count, rest = divmod(size - self._entries_at, ENTRY_BYTES)
        if size and (self._entry_count < 1 or rest):
            raise ValueError(f"{size} bytes are not those of {self.slot_count} slots and entries")
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self._used_slots,
            next_entry,
        ) = HEADER.unpack(self._file.read_at(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
        if not 0 <= next_entry <= max(0, self._entry_count):
            raise ValueError(f"it counts {next_entry} of {self._entry_count} entries")
        self._next: int = max(1, next_entry)
        if len(self) and not self._is_first_entry_valid():
            raise ValueError(f"its entries do not begin behind {self.slot_count} slots")
        if not self._is_last_entry_valid():
            raise ValueError("its header is damaged: it does not end with the last entry")

    def _is_first_entry_valid(self) -> bool:
        """Return whether the first entry is valid and a slot leads to its chain. This also verifies the number of
        slots, which the file does not contain.
        """
        data = self._file.read_at(self.entry_offset(1), ENTRY_BYTES)
        hashed, offset, _, older = _ENTRY.unpack(data)
        return any(data) and offset == self.begin_offset and older == 0 and self._slot(hashed, wait=True) > 0

    def _is_last_entry_valid(self) -> bool:
        """Return whether the last counted entry has the log offset and time of the header. A file without entries must
        have no slot in use.
        """
        if not len(self):
            return not self._used_slots
        _, offset, seconds, _ = _ENTRY.unpack(self._file.read_at(self.entry_offset(self._next - 1), ENTRY_BYTES))
        after_begin = (self.end_timestamp - self.begin_timestamp) // 1000
        return bool(offset == self.end_offset and seconds == max(0, min(after_begin, 0x7FFFFFFF)))

    def __len__(self) -> int:
        return self._next - 1

    # --- adding ---

    def free_entries(self) -> int:
        """Return the number of entries that still fit."""
        return self._entry_count - self._next

    def put(self, hashes: NDArray[np.int32], offsets: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        """Add entries, one per row, in log order. The caller checks that they fit.

        Raises:
            MemoryError: no entry was added.
        """
        slots = self._slots
        assert slots is not None, "prepare() comes first"
        begin_timestamp = self.begin_timestamp if len(self) else int(timestamps[0])
        numbers = np.arange(self._next, self._next + len(hashes), dtype=np.int32)
        places = hashes % self.slot_count
        entries = np.empty(len(hashes), dtype=ENTRIES)
        entries["hash"], entries["offset"] = hashes, offsets
        seconds = (timestamps - begin_timestamp) // 1000
        np.minimum(seconds, 0x7FFFFFFF, out=seconds)
        entries["seconds"] = np.maximum(seconds, 0, out=seconds)
        pages, before, used_slots = places // _PAGE_SLOTS, slots[places], self._used_slots
        try:
            entries["older"] = self._link(slots, places, numbers)
            self._tail += entries.tobytes()
        except MemoryError:
            slots[places], self._used_slots = before, used_slots
            raise
        self._dirty[pages] = True
        if not len(self):
            self.begin_timestamp, self.begin_offset = begin_timestamp, int(offsets[0])
        self._next += len(hashes)
        self.end_timestamp, self.end_offset = int(timestamps[-1]), int(offsets[-1])

    def _link(self, slots: _Column, places: _Column, numbers: _Column) -> _Column:
        """Point the slots to the new entries; return the previous entry of each slot."""
        older = slots[places]
        slots[places] = numbers  # if several entries have the same slot, the last and newest entry remains
        self._used_slots += int(np.count_nonzero(older == 0))
        if (slots[places] == numbers).all():
            return older
        order = np.argsort(places, kind="stable")
        entry_offset, number = places[order], numbers[order]
        again = np.flatnonzero(entry_offset[1:] == entry_offset[:-1]) + 1
        self._used_slots -= int(np.count_nonzero(older[order[again]] == 0))
        older[order[again]] = number[again - 1]
        return older

    def prepare(self) -> None:
        """Load the slots of an existing file, so that entries can be added. A slot that points beyond the counted
        entries is repaired: an earlier crash may have left it, even one before the last run.

        Raises:
            OSError: the disk failed.
        """
        data = self._file.read_at(HEADER_BYTES, self.slot_count * _SLOT_BYTES)
        self._slots = slots = np.frombuffer(data, dtype=">i4").astype(np.int32)
        wrong = (slots >= self._next) | (slots < 0)
        if wrong.any():
            self._dirty[np.flatnonzero(wrong) // _PAGE_SLOTS] = True
            slots[wrong] = 0
            self._repair_slots(slots, wrong)

    def _repair_slots(self, slots: _Column, wrong: NDArray[np.bool_]) -> None:
        """Point the ``wrong`` slots to their newest counted entries. Entries beyond the counted ones are not read: they
        may be missing after a power cut, or overwritten by later runs.
        """
        after = self._next
        while after > 1 and wrong.any():
            first = max(1, after - _ENTRIES_AT_ONCE)
            data = self._file.read_at(self.entry_offset(first), (after - first) * ENTRY_BYTES)
            places = np.frombuffer(data, dtype=ENTRIES)["hash"].astype(np.int32) % self.slot_count
            rows = np.flatnonzero(wrong[places])
            slots[places[rows]] = (
                rows + first
            )  # if several entries have the same slot, the last and newest entry remains
            wrong[places[rows]] = False
            after = first

    # --- writing behind ---

    @property
    def is_dirty(self) -> bool:
        """Whether entries or slots are not written yet. The header is not considered."""
        return bool(self._flushing_pages or self._next_header != self._header() or self._dirty.any())

    def begin_flush(self) -> None:
        """Make the next :meth:`flush` start again and write everything added so far, regardless of the outcome of the
        previous flush.
        """
        self._dirty[self._flushing_pages] = True
        self._flushing_pages, self._flushing_header = [], b""

    def flush(self, pages: int) -> bool:
        """Write about ``pages`` pages. Return True when everything present at the beginning of the flush is written;
        :attr:`header` counts it then.

        Raises:
            OSError: the write failed; the next call repeats it.
        """
        if not self._flushing_pages and not self._flushing_header:
            self._flushing_pages = np.flatnonzero(self._dirty).tolist()
            self._dirty[:] = False
            self._flushing_header = self._header()
        if not self._write_entries(pages * _PAGE_BYTES):
            return False
        slots = self._slots
        while self._flushing_pages and pages and slots is not None:
            first = self._flushing_pages[-1] * _PAGE_SLOTS
            page = slots[first : first + _PAGE_SLOTS].astype(">i4").tobytes()
            self._file.write_at(HEADER_BYTES + first * _SLOT_BYTES, [page], len(page))
            self._flushing_pages.pop()
            pages -= 1
        if self._flushing_pages:
            return False
        self._next_header, self._flushing_header = self._flushing_header, b""
        return True

    @property
    def header(self) -> Header | None:
        """The header to write last. It counts the entries in the file, which may not be durable yet."""
        is_new = self._next_header != self._file_header
        return Header(self.path, self._next_header) if is_new else None

    def header_written(self, header: Header) -> None:
        """Record that ``header`` is written."""
        self._file_header = header.data

    def _write_entries(self, limit: int) -> bool:
        """Write up to ``limit`` bytes of entries; return True when none is left. Slots may be written after that,
        because they point to existing entries.
        """
        if self._tail:
            entries = self.unwritten(limit)
            self._file.write_at(entries.at, [entries.data], len(entries.data))
            self.written(entries)
        return not self._tail

    @property
    def unwritten_bytes(self) -> int:
        """Size in bytes of the entries that are not written yet."""
        return len(self._tail)

    def unwritten(self, limit: int) -> Entries:
        """Return the first unwritten entries, up to ``limit`` bytes."""
        size = min(len(self._tail), limit) // ENTRY_BYTES * ENTRY_BYTES
        # A copy, because a view that an exception references would prevent the buffer from growing.
        data = bytes(memoryview(self._tail)[:size])
        return Entries(self.path, self._tail_from, self.entry_offset(self._tail_from), data)

    def written(self, entries: Entries) -> None:
        """Record that ``entries`` are written. A flush may have written them as well."""
        count = entries.first + len(entries.data) // ENTRY_BYTES - self._tail_from
        if count > 0:
            del self._tail[: count * ENTRY_BYTES]
            self._tail_from += count

    def _header(self) -> bytes:
        return HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self._used_slots,
            self._next,
        )

    # --- finding ---

    @property
    def first_in_memory(self) -> int:
        """Number of the first entry that may not be written yet. Earlier entries never change."""
        return self._tail_from

    def newest(self, hashed: int, *, wait: bool) -> int:
        """Return the number of the newest entry in the chain of ``hashed``; 0 when there is none.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
        """
        number = self._slot(hashed, wait=wait)
        return number if 0 < number <= len(self) else 0

    def entry(self, number: int, *, wait: bool) -> tuple[int, int, int, int]:
        """Return hash, log offset, seconds and previous entry of an entry.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk.
        """
        if number >= self._tail_from and self._tail:
            return _ENTRY.unpack_from(self._tail, (number - self._tail_from) * ENTRY_BYTES)
        return _ENTRY.unpack(self._read(self.entry_offset(number), ENTRY_BYTES, wait))

    def entries_in_memory(self, first: int, after: int) -> EntryRows:
        """Return entries from :attr:`first_in_memory` on."""
        begin, end = (first - self._tail_from) * ENTRY_BYTES, (after - self._tail_from) * ENTRY_BYTES
        return np.frombuffer(self._tail[begin:end], dtype=ENTRIES)

    def entry_offset(self, number: int) -> int:
        """Return the offset of an entry in the file."""
        return self._entries_at + number * ENTRY_BYTES

    def _slot(self, hashed: int, *, wait: bool) -> int:
        slot = hashed % self.slot_count
        if self._slots is not None:
            return int(self._slots[slot])
        return int.from_bytes(self._read(HEADER_BYTES + slot * _SLOT_BYTES, _SLOT_BYTES, wait), "big", signed=True)

    def _read(self, at: int, size: int, wait: bool) -> bytes | bytearray:
        data = self._file.read_at(at, size) if wait else self._file.read_cached(at, size)
        if data is None:
            raise PagesMissing([Extent(self.path, at, size)])
        return data

    def release_slots(self) -> None:
        """Free the memory of the slots of a file that gets no more entries, unless some are still unwritten."""
        if not self.is_dirty:
            self._slots = None

    def close(self) -> None:
        """Close the file."""
        self.is_open = False
        self._file.close()
