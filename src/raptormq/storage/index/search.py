"""Searches one file of the key index for a hash, in bounded steps, however long the chain is.

The first links of a chain are followed one by one; most chains end there. After that, the older entries are scanned in
file order with the same result. Following 600,000 links, each with a page read, took half a minute. Entries in memory
are scanned on the event loop. A thread scans the others with numpy, which releases the GIL. Entries never change, so
the position of a search stays valid as long as the file exists.
"""

from __future__ import annotations

import contextlib

import numpy as np

from raptormq.storage.fs import FileSystem
from raptormq.storage.index.index_file import ENTRIES, ENTRY_BYTES, EntryRows, IndexFile

MAX_LINKS = 1_000
"""Maximum number of links followed in one file, which takes 2 ms."""
OFFSETS_AT_ONCE = 64
_BLOCK = 16_384
"""Number of entries scanned at once, which takes 0.2 ms."""
_BLOCKS_AT_ONCE = 64
"""Number of blocks that a thread scans before it serves other work."""


class FileSearch:
    """Finds log offsets of messages with the hash ``hashed`` that were stored between ``begin`` and ``end`` (ms, to the
    second), the newest first. Messages indexed after the first step are not found.
    """

    def __init__(self, file: IndexFile, hashed: int, begin: int, end: int) -> None:
        self._file = file
        self._hashed = hashed
        self._begin = begin
        self._end = end
        self._number: int | None = None  # number of the next entry to examine; 0 at the end
        self._links = 0
        self._found: list[int] = []

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._file.path

    @property
    def is_done(self) -> bool:
        """Whether the search is complete."""
        return self._number == 0

    @property
    def needs_thread(self) -> bool:
        """Whether :meth:`scan` has to continue the search, not :meth:`step`."""
        return (
            self._number is not None
            and self._links >= MAX_LINKS
            and self._file.is_open
            and 0 < self._number < self._file.first_in_memory
        )

    def step(self, *, wait: bool) -> list[int]:
        """Continue the search and return the log offsets found.

        Raises:
            PagesMissing: ``wait`` is false and the call would block on the disk; repeat the call.
        """
        if not self._file.is_open:
            self._number = 0  # retention has removed the file with its messages
        elif self._number is None:
            self._number = self._file.newest(self._hashed, wait=wait)
        if self._links < MAX_LINKS:
            self._follow(wait)
        elif self._number:
            first = max(self._file.first_in_memory, self._number + 1 - _BLOCK)
            self._take(self._file.entries_in_memory(first, self._number + 1), first)
        found, self._found = self._found, []
        return found

    def _follow(self, wait: bool) -> None:
        file, number = self._file, self._number
        while number and self._links < MAX_LINKS and len(self._found) < OFFSETS_AT_ONCE:
            hashed, offset, seconds, older = file.entry(number, wait=wait)
            stored = file.begin_timestamp + seconds * 1000
            self._links += 1
            if stored + 999 < self._begin or older >= number:
                older = 0  # the entry is older than the search, or the chain is damaged
            if hashed == self._hashed and self._begin <= stored + 999 and stored <= self._end:
                self._found.append(offset)
            self._number = number = max(0, older)

    def scan(self, filesystem: FileSystem) -> list[int]:
        """Continue the search through the entries on disk and return the log offsets found. Any thread may call this,
        while no step runs.

        Raises:
            OSError: the disk failed.
        """
        number = self._number or 0
        try:
            file = filesystem.open(self._file.path)
        except FileNotFoundError:
            self._number = 0
            return []
        with contextlib.closing(file):
            for _ in range(_BLOCKS_AT_ONCE):
                if not number or len(self._found) >= OFFSETS_AT_ONCE:
                    break
                first = max(1, number + 1 - _BLOCK)
                data = file.read_at(self._file.entry_offset(first), (number + 1 - first) * ENTRY_BYTES)
                self._take(np.frombuffer(data, dtype=ENTRIES, count=len(data) // ENTRY_BYTES), first)
                number = self._number or 0
        found, self._found = self._found, []
        return found

    def _take(self, rows: EntryRows, first: int) -> None:
        """Add the matches in ``rows``, the entries from number ``first`` to the next one to examine."""
        slot = self._hashed % self._file.slot_count
        chain = rows[np.flatnonzero(rows["hash"].astype(np.int32) % self._file.slot_count == slot)][::-1]
        stored = chain["seconds"].astype(np.int64) * 1000 + self._file.begin_timestamp
        before = np.flatnonzero(stored + 999 < self._begin)
        if len(before):
            chain, stored = chain[: before[0]], stored[: before[0]]
        self._found += chain["offset"][(chain["hash"] == self._hashed) & (stored <= self._end)].tolist()
        self._number = 0 if len(before) else first - 1
