"""One file of the commit log.

A segment is allocated completely before its first byte is written, so a full disk is detected when a segment is created
and not in the middle of a record. Layout: records back to back (see :mod:`raptormq.protocol.record`). Where the next
record does not fit, a filler follows: ``remaining i32 | BLANK_MAGIC i32 | anything``. Zeros follow the last record of
the log.
"""

from __future__ import annotations

import contextlib

from raptormq.storage.fs import File, FileSystem, file_name

_PAGE_BYTES = 4096


class Segment:
    """The bytes ``[base, base + size)`` of the log. The file is opened on first use and mapped on the first read of
    resident bytes.
    """

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
        """Release the mapping of everything below log offset ``offset``. Slices that were handed out stay valid."""
        if self._view is not None and offset > self.base:
            self.file.release(self._view, min(offset, self.end) - self.base)
            if offset >= self.end:
                self._view = None

    def create(self) -> None:
        """Create and allocate the file. If that fails, the file is removed.

        Raises:
            OSError: ENOSPC if the volume has no room for the whole segment.
        """
        self._file = self._filesystem.open(self.path, create=True)
        try:
            self._file.allocate(self.size)
        except OSError:
            self.close()
            self._filesystem.remove(self.path)
            raise

    def truncate(self, offset: int) -> None:
        """End the file at log offset ``offset``, durably. Before the next write :meth:`allocate_rest` has
        to be called.
        """
        self._view = None
        self.file.truncate(offset - self.base)
        self.file.sync()

    @property
    def is_short(self) -> bool:
        """Whether the file is shorter than the segment: it was truncated, or a crash happened before it
        was allocated.
        """
        return self.file.size() < self.size

    def written_end(self, file: File) -> int | None:
        """Return the log offset after the last page of ``file`` that holds data, or None if no page does. ``file`` is
        the open file of this segment.
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
        """Extend the file to its full size with zeros, durably.

        Raises:
            OSError: the file is unchanged; ENOSPC if the volume has no room for all of it.
        """
        size = self.file.size()
        try:
            self.file.allocate(self.size)
            self.file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self.file.truncate(size)  # some file systems keep the blocks that they reserved before the failure
            raise

    def close_if_unmapped(self) -> None:
        """Close the file until its next use, unless it is mapped."""
        if self._file is not None and self._view is None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Close the file. Views that were handed out stay valid."""
        self._view = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        self._filesystem.remove(self.path)
