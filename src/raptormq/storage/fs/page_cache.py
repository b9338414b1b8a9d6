"""Reads that would have to wait for the disk, or for long work: how they are told, and how the pages are fetched.

The event loop reads with RWF_NOWAIT. Where a page is missing it gets :class:`PagesMissing` with what to fetch, lets a
thread :func:`fetch` it, and tries again. The thread opens files by name and shares no descriptor with the loop, so
neither can close one under the other's hands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from raptormq.errors import StorageError
from raptormq.storage.background import Executor
from raptormq.storage.fs.filesystem import File, FileSystem

T = TypeVar("T")
MAX_NOWAIT_ATTEMPTS = 128
"""How often a read that misses something is tried. Each goes further than the one before, and no search takes as many
steps: who gets here reads pages that others take away as fast as they are fetched.
"""
_MAX_WORK = 64


class Extent(NamedTuple):
    """A piece of a file."""

    path: str
    offset: int
    size: int


class PagesMissing(Exception):
    """Not an error: ``extents`` have to be fetched, and ``work`` done, before the call can be answered without
    waiting; what it then copies has ``size`` bytes, 0 where nobody knows yet.
    """

    def __init__(self, extents: list[Extent], work: Sequence[Callable[[], None]] = (), size: int = 0) -> None:
        super().__init__(f"{len(extents)} extents are not in memory, {len(work)} batches are too large to be unpacked")
        self.extents = extents
        self.work = work
        self.size = size

    def load(self, filesystem: FileSystem) -> None:
        """Do what is missing; to be called by a thread.

        Raises:
            StorageError: a file cannot be read.
        """
        try:
            load_pages(filesystem, self.extents)
        except OSError as error:
            where = ", ".join(dict.fromkeys(each.path for each in self.extents))
            raise StorageError(f"cannot read {where:.200}: {error.strerror or error}") from error
        for each in self.work:
            each()


async def with_pages(
    attempt: Callable[[bool], T], executor: Executor | None, filesystem: FileSystem, attempts: int = MAX_NOWAIT_ATTEMPTS
) -> T:
    """Return what ``attempt`` returns, after ``runner`` has settled what it misses. Its argument says whether it has to
    wait for the disk instead, as it has to after so many ``attempts`` and without a runner; work is never its own.

    Raises:
        StorageError: there is no end to the work, or a file cannot be read.
    """
    for number in range(attempts + _MAX_WORK):
        try:
            return attempt(executor is None or number >= attempts)
        except PagesMissing as missing:
            if executor is None:
                missing.load(filesystem)
            else:
                await executor.run(missing.load, filesystem)
    raise StorageError("what is to be read takes too much work: it is too damaged, or too much at once")


def load_pages(filesystem: FileSystem, extents: Iterable[Extent]) -> None:
    """Have the pages of ``extents`` in memory; files that are gone by now are skipped."""
    for file, offset, size in _opened(filesystem, extents):
        file.load(offset, size)


def evict_pages(filesystem: FileSystem, extents: Iterable[Extent]) -> int:
    """Let the kernel have the pages of ``extents`` for something else, and return how many bytes these are; files that
    are gone by now are skipped. A disk that fails is for the writes to tell of.
    """
    released = 0
    with contextlib.suppress(OSError):
        for file, offset, size in _opened(filesystem, extents):
            file.evict(offset, size)
            released += size
    return released


def _opened(filesystem: FileSystem, extents: Iterable[Extent]) -> Iterator[tuple[File, int, int]]:
    for path, offset, size in extents:
        try:
            file = filesystem.open(path)
        except FileNotFoundError:
            continue
        try:
            yield file, offset, size
        finally:
            file.close()
