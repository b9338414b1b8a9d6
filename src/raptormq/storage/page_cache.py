"""Reads that would have to wait for the disk, or for long work: how they are told, and how the pages are fetched.

The event loop reads with RWF_NOWAIT. Where a page is missing it gets :class:`PagesMissing` with what to fetch, lets a
thread :func:`fetch` it, and tries again. The thread opens files by name and shares no descriptor with the loop, so
neither can close one under the other's hands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from raptormq.storage.filesystem import FileSystem

_STEP_BYTES = 1 << 20


class Extent(NamedTuple):
    """A piece of a file."""

    path: str
    offset: int
    size: int


class PagesMissing(Exception):
    """Not an error: ``extents`` have to be fetched, and ``work`` done, before the call can be answered without
    waiting.
    """

    def __init__(self, extents: list[Extent], work: Sequence[Callable[[], None]] = ()) -> None:
        super().__init__(f"{len(extents)} extents are not in memory, {len(work)} batches are too large to be unpacked")
        self.extents = extents
        self.work = work

    def settle(self, filesystem: FileSystem) -> None:
        """Do what is missing; to be called by a thread."""
        fetch(filesystem, self.extents)
        for each in self.work:
            each()


def fetch(filesystem: FileSystem, extents: Iterable[Extent]) -> None:
    """Read ``extents`` and drop them, which leaves their pages in memory; files that are gone by now are skipped."""
    for path, offset, size in extents:
        with contextlib.suppress(FileNotFoundError):
            file = filesystem.open(path)
            try:
                for start in range(offset, offset + size, _STEP_BYTES):
                    file.read_at(start, min(_STEP_BYTES, offset + size - start))
            finally:
                file.close()
