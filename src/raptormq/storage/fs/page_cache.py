"""Signals reads that would block on the disk or on long CPU work, and loads the missing pages.

The event loop reads with RWF_NOWAIT. If a page is not resident, the read raises :class:`PagesMissing` with the extents
to load. The caller runs :func:`load_pages` in a thread and reads again. The thread opens the files by name and shares
no descriptor with the event loop, so neither can close a file that the other one uses.
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
"""Maximum number of attempts to read without blocking. Each attempt gets further than the previous one, and no search
has this many steps, so the limit is reached only if pages are evicted as fast as they are loaded.
"""
_MAX_WORK = 64


class Extent(NamedTuple):
    """A byte range of a file."""

    path: str
    offset: int
    size: int


class PagesMissing(Exception):
    """Raised when a call cannot return without blocking. It is not an error.

    Before the call is repeated, ``extents`` have to be loaded and ``work`` has to be done. ``size`` is the number of
    bytes that the work copies, 0 if unknown.
    """

    def __init__(self, extents: list[Extent], work: Sequence[Callable[[], None]] = (), size: int = 0) -> None:
        super().__init__(f"{len(extents)} extents are not in memory, {len(work)} batches are too large to unpack")
        self.extents = extents
        self.work = work
        self.size = size

    def load(self, filesystem: FileSystem) -> None:
        """Load the extents and do the work. Blocks; call it in a thread.

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
    """Return the result of ``attempt``. After PagesMissing ``executor`` loads the pages, and the call is repeated.

    The argument of ``attempt`` is true if the call has to block on the disk instead of raising PagesMissing for
    extents: after ``attempts`` calls, and always without an executor. PagesMissing with ``work`` may be raised even
    then.

    Raises:
        StorageError: the work does not end, or a file cannot be read.
    """
    for number in range(attempts + _MAX_WORK):
        try:
            return attempt(executor is None or number >= attempts)
        except PagesMissing as missing:
            if executor is None:
                missing.load(filesystem)
            else:
                await executor.run(missing.load, filesystem)
    raise StorageError("the read takes too much work: the data is too damaged, or the request is too large")


def load_pages(filesystem: FileSystem, extents: Iterable[Extent]) -> None:
    """Load the pages of ``extents`` into the page cache. Files that do not exist any more are skipped."""
    for file, offset, size in _opened(filesystem, extents):
        file.load(offset, size)


def evict_pages(filesystem: FileSystem, extents: Iterable[Extent]) -> int:
    """Drop the pages of ``extents`` from the page cache and return their size in bytes. Files that do not exist any
    more are skipped. Errors of the disk are ignored here; writes report them.
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
