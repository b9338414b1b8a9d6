"""One file of the commit log.

A segment is allocated whole before the first byte is written, so that a full disk shows when a segment is made and not
in the middle of a record. Layout: records back to back (see :mod:`raptormq.protocol.record`), and where the next
record does not fit, the filler ``remaining i32 | BLANK_MAGIC i32 | anything``. Zeros follow the last record of the
log.
"""

from __future__ import annotations

import contextlib

from raptormq.storage.fs import File, FileSystem, file_name

_PAGE_BYTES = 4096


class Segment:
    """The bytes ``[base, base + size)`` of the log; opened at the first use, mapped at the first hot read."""

    __slots__ = ("_file", "_filesystem", "_view", "base", "path", "size")

    def __init__(self, filesystem: FileSystem, folder: str, base: int, size: int) -> None:
        self._filesystem = filesystem
        self.base = base
        self.size = size
        self.path = f"{folder}/{file_name(base)}"
        self._file: File | None = None
        self._view: memoryview | None = None

    @property
    def end(self) -> int:
        """First offset after the segment."""
        return self.base + self.size

    @property
    def file(self) -> File:
        """The open file."""
        if self._file is None:
            self._file = self._filesystem.open(self.path)
        return self._file

    @property
    def view(self) -> memoryview:
        """The whole segment, mapped read-only."""
        if self._view is None:
            self._view = self.file.map(self.size)
        return self._view

    def unmap_before(self, offset: int) -> None:
        """Let go of the mapping of everything below log offset ``offset``; slices that were handed out stay valid."""
        if self._view is not None and offset > self.base:
            self.file.release(self._view, min(offset, self.end) - self.base)
            if offset >= self.end:
                self._view = None

    def create(self) -> None:
        """Make and allocate the file; nothing is left behind when that fails.

        Raises:
            OSError: ENOSPC where the volume has no room for the whole segment.
        """
        self._file = self._filesystem.open(self.path, create=True)
        try:
            self._file.allocate(self.size)
        except OSError:
            self.close()
            self._filesystem.remove(self.path)
            raise

    def truncate(self, offset: int) -> None:
        """End the file at log offset ``offset``, and make that durable; writes need :meth:`allocate_rest` first."""
        self._view = None
        self.file.truncate(offset - self.base)
        self.file.sync()

    @property
    def is_short(self) -> bool:
        """The file ends before the segment does: it was cut, or a crash came between making and allocating it."""
        return self.file.size() < self.size

    def written_end(self, file: File) -> int | None:
        """Return the log offset behind the last page of ``file``, which is its own, that holds data; None if none
        does.
        """
        written, unwritten = 0, self.size
        if file.next_data(0) is None:
            return None
        while unwritten - written > _PAGE_BYTES:
            middle = (written + unwritten) // 2
            if file.next_data(middle) is None:
                unwritten = middle
            else:
                written = middle
        return self.base + unwritten

    def allocate_rest(self) -> None:
        """Allocate what the file lacks, as zeros, and make that durable.

        Raises:
            OSError: nothing has changed; ENOSPC where the volume has no room for all of it.
        """
        size = self.file.size()
        try:
            self.file.allocate(self.size)
            self.file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self.file.truncate(size)  # some file systems keep what they found, and others need it more
            raise

    def close_if_unmapped(self) -> None:
        """Close the file until it is used again, unless it is mapped."""
        if self._file is not None and self._view is None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Close the file; views that were handed out stay valid."""
        self._view = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        self._filesystem.remove(self.path)
