"""One file of the key index (Apache RocketMQ ``IndexFile``): a hash table on disk whose chains run back in time.

Big-endian; 5,000,000 slots and 20,000,000 entries by default, sparse::

     0  beginTimestamp i64      store time (ms) of the first message
     8  endTimestamp i64        of the last one
    16  beginPhyOffset i64      its place in the log
    24  endPhyOffset i64
    32  hashSlotCount i32       slots in use
    36  indexCount i32          number of the next entry; the first one is 1
    40  slots i32 * n           number of the newest entry of the slot, 0 for none; slot = hash % n
        entries                 hash i32 | physical offset i64 | seconds after beginTimestamp i32 | older entry i32

A file is written behind in the order entries, slots, header, so that after a killed process every slot leads to entries
that are there; what the header does not count yet is put in again by the replay of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from raptormq.storage.filesystem import File, FileSystem
from raptormq.storage.page_cache import Extent, PagesMissing

_HEADER = struct.Struct(">qqqqii")
HEADER_BYTES = _HEADER.size
_ENTRY = struct.Struct(">iqii")
ENTRY_BYTES = _ENTRY.size
_SLOT = struct.Struct(">i")
_SLOT_BYTES = 4
_PAGE_BYTES = 4096


class IndexFile:
    """A file of ``slot_count`` slots for ``entry_count`` entries; belongs to one thread."""

    def __init__(self, filesystem: FileSystem, path: str, slot_count: int, entry_count: int) -> None:
        """Open a file, created when there is none.

        Raises:
            OSError: it cannot be opened or grown.
            ValueError: it is of another size.
        """
        self.path = path
        self._slot_count = slot_count
        self._entry_count = entry_count
        self._entries_at = HEADER_BYTES + slot_count * _SLOT_BYTES
        size = self._entries_at + entry_count * ENTRY_BYTES
        self._file: File = filesystem.open(path, create=True)
        if self._file.size() == 0:
            self._file.truncate(size)
        if self._file.size() != size:
            self._file.close()
            raise ValueError(f"{path} is not of {size} bytes")
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self._used_slots,
            next_entry,
        ) = _HEADER.unpack(self._file.read_at(0, HEADER_BYTES))
        self._next = max(1, next_entry)
        self._slots: bytearray | None = None
        """All slots, read when the first entry is added."""
        self._tail = bytearray()
        self._tail_from = self._next
        self._dirty: set[int] = set()
        self._round: list[int] = []
        self._round_header = b""

    def __len__(self) -> int:
        return int(self._next) - 1

    def has_room(self, keys: int) -> bool:
        """Whether so many entries more fit."""
        return len(self) + keys < self._entry_count

    # --- adding ---

    def put(self, hashed: int, offset: int, timestamp: int) -> None:
        """Add an entry; there is room for it."""
        slots = self._slots
        if slots is None:
            slots = self._load_slots()
        if self._next == 1:
            self.begin_timestamp, self.begin_offset = timestamp, offset
        at = hashed % self._slot_count * _SLOT_BYTES
        (older,) = _SLOT.unpack_from(slots, at)
        if not older:
            self._used_slots += 1
        seconds = min(max(timestamp - self.begin_timestamp, 0) // 1000, 0x7FFFFFFF)
        self._tail += _ENTRY.pack(hashed, offset, seconds, older)
        _SLOT.pack_into(slots, at, self._next)
        self._dirty.add(at // _PAGE_BYTES)
        self._next += 1
        self.end_timestamp, self.end_offset = timestamp, offset

    def _load_slots(self) -> bytearray:
        self._slots = bytearray(self._file.read_at(HEADER_BYTES, self._slot_count * _SLOT_BYTES))
        return self._slots

    def repair(self) -> None:
        """After a crash: let every slot lead to an entry that the header counts."""
        slots = self._load_slots()
        for index, (number,) in enumerate(_SLOT.iter_unpack(bytes(slots))):
            found = number
            while found >= self._next:
                older = self._entry(found, wait=True)[3]
                found = older if 0 <= older < found else 0
            if found != number:
                _SLOT.pack_into(slots, index * _SLOT_BYTES, max(found, 0))
                self._dirty.add(index * _SLOT_BYTES // _PAGE_BYTES)

    # --- writing behind ---

    @property
    def is_dirty(self) -> bool:
        """Whether the file lacks something that was added."""
        return bool(self._dirty or self._round or self._tail)

    def flush(self, pages: int) -> bool:
        """Write some of what was added; True at the end of a round, when the header counts what was there at its start.

        Raises:
            OSError: it comes again with the next call.
        """
        if not self._round and not self._round_header:
            self._round, self._dirty = sorted(self._dirty), set()
            self._round_header = self._header()
        if self._tail:
            at = self._entries_at + self._tail_from * ENTRY_BYTES
            self._file.write_at(at, [self._tail], len(self._tail))
            self._tail_from, self._tail = self._next, bytearray()
        slots = self._slots
        while self._round and pages and slots is not None:
            at = self._round[-1] * _PAGE_BYTES
            data = slots[at : at + _PAGE_BYTES]
            self._file.write_at(HEADER_BYTES + at, [data], len(data))
            self._round.pop()
            pages -= 1
        if self._round:
            return False
        self._file.write_at(0, [self._round_header], HEADER_BYTES)
        self._round_header = b""
        return True

    def _header(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self._used_slots,
            self._next,
        )

    # --- finding ---

    def find(self, hashed: int, begin: int, end: int, *, wait: bool) -> Iterator[int]:
        """Yield the log offsets of messages with this hash stored between ``begin`` and ``end`` (ms, give or take a
        second), the newest first.

        Raises:
            PagesMissing: without ``wait``, when the disk would have to be waited for.
        """
        number = self._slot(hashed, wait=wait)
        while 0 < number < self._next:
            found, offset, seconds, older = self._entry(number, wait=wait)
            stored = self.begin_timestamp + seconds * 1000
            if stored + 999 < begin:
                return  # the chain runs back in time
            if found == hashed and stored <= end:
                yield offset
            if older >= number:
                return  # damaged: chains run back
            number = older

    def _slot(self, hashed: int, *, wait: bool) -> int:
        at = hashed % self._slot_count * _SLOT_BYTES
        data = self._slots[at : at + _SLOT_BYTES] if self._slots is not None else self._read(HEADER_BYTES + at, 4, wait)
        (number,) = _SLOT.unpack(data)
        return int(number)

    def _entry(self, number: int, *, wait: bool) -> tuple[int, int, int, int]:
        if number >= self._tail_from and self._tail:
            return _ENTRY.unpack_from(self._tail, (number - self._tail_from) * ENTRY_BYTES)
        return _ENTRY.unpack(self._read(self._entries_at + number * ENTRY_BYTES, ENTRY_BYTES, wait))

    def _read(self, at: int, size: int, wait: bool) -> bytes | bytearray:
        data = self._file.read_at(at, size) if wait else self._file.read_cached(at, size)
        if data is None:
            raise PagesMissing([Extent(self.path, at, size)])
        return data

    def release_slots(self) -> None:
        """Give the memory of the slots back: no entry will be added any more."""
        if not self.is_dirty:
            self._slots = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
