"""The seam between the store and the disk: what the store needs of a file system, and what its files are called.

:class:`FileSystem`, :class:`File` and :class:`Lock` are protocols with what the store needs, and nothing more.
:mod:`~raptormq.storage.fs.real` is the implementation for Linux. The tests have two others, in ``tests/storage``: a
volume in memory that keeps what would survive a power cut apart from what was merely written, and one that fails or
crashes at the n-th operation.

What the calls do NOT promise: ``write_at``, ``truncate`` and ``allocate`` are durable only after ``sync`` of that
file. A created, renamed or removed name is durable only after ``sync_directory`` of its folder. A ``write_at`` that
raises may have written any part. All failures are ``OSError`` with an errno, and the store translates them. ``sync``,
``sync_directory`` and ``sync_volume`` fail with EMFILE, ENFILE or ENOMEM only where nothing was begun, so that they can
be called again. After any other failure of theirs nobody knows what the disk holds.

:class:`StorePaths` names the files and folders of a store (Apache RocketMQ ``StorePathConfigHelper``)::

    <root>/commitlog/<offset, 20 digits>                        segments, named by their first byte
    <root>/consumequeue/<topic>/<queue id>/<offset, 20 digits>  queue files, named by their first byte
    <root>/batchconsumequeue/<topic>/<queue id>/<offset>        the same of BatchCQ topics
    <root>/index/<yyyyMMddHHmmssSSS>                            index by message keys
    <root>/config/*.json                                        consumer offsets and the broker's tables
    <root>/deleted/<number>                                     folders of deleted topics, which somebody removes
    <root>/checkpoint  queueEnds  abort  lock
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raptormq.files import Files, SmallFile

Buffer = bytes | bytearray | memoryview


class DiskUsage(NamedTuple):
    """Bytes of the volume that holds a path; ``free`` is what an ordinary user may still take."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        """Share of the volume in use, 0.0 to 1.0."""
        return 1.0 - self.free / self.total if self.total else 1.0


class File(SmallFile, Protocol):
    """An open file, read and written at explicit positions; reads may come from any thread."""

    def read_cached(self, offset: int, size: int) -> bytes | bytearray | None:
        """Like ``read_at``, but return None instead of waiting for the disk."""

    def load(self, offset: int, size: int) -> None:
        """Have the pages that hold these bytes in memory, also those that nothing was ever written to; waits for the
        disk. What is beyond the end of the file is left out.
        """

    def evict(self, offset: int, size: int) -> None:
        """Keep none of the pages in memory that lie within these bytes, are durable and not mapped."""

    def write_at(self, offset: int, parts: Sequence[Buffer], size: int) -> None:
        """Write ``parts``, together ``size`` bytes, with one system call unless the kernel stops half-way."""

    def allocate(self, size: int) -> None:
        """Grow to ``size`` bytes that are all backed by the volume; ENOSPC when it has no room."""

    def next_data(self, offset: int) -> int | None:
        """Return the first position >= ``offset`` that may hold anything but zeros, None when there is none."""

    def map(self, size: int) -> memoryview:
        """Return the first ``size`` bytes as a read-only view that shows later writes; valid as long as it is
        referenced.
        """

    def release(self, view: memoryview, size: int) -> None:
        """Take the first ``size`` bytes of a view of ``map`` out of the memory of this process; they come back when
        they are used.
        """

    def close(self) -> None:
        """Close; views of ``map`` stay valid."""


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Give the lock back."""


class FileSystem(Files, Protocol):
    """The names of a volume. Paths are absolute, with ``/``."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or ``create`` is given."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; empty when there is no such folder."""

    def remove(self, path: str) -> None:
        """Remove a file; no error when there is none."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all it holds; no error when there is none."""

    def sync_volume(self, path: str) -> None:
        """Make everything on the volume of ``path`` durable."""

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change of a file's contents, in ms since 1970."""

    def usage(self, path: str) -> DiskUsage:
        """Return size and free space of the volume of ``path``."""

    def lock(self, path: str) -> Lock:
        """Lock a file, created if need be, for this process; BlockingIOError when another one holds it."""


def is_no_room(error: OSError) -> bool:
    """Whether the volume, or what its user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether this process, or the machine, has as many open files as it may have."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def is_exhausted(error: OSError) -> bool:
    """Whether something is used up that may be free again any moment: room, descriptors, memory. The disk is sound."""
    return is_no_room(error) or is_out_of_descriptors(error) or error.errno == errno.ENOMEM


NAME_DIGITS = 20


class StorePaths(NamedTuple):
    """Absolute paths of a store."""

    root: str
    log: str

    @property
    def queues(self) -> str:
        """Folder of the consume queues."""
        return f"{self.root}/consumequeue"

    @property
    def batch_queues(self) -> str:
        """Folder of the consume queues of BatchCQ topics."""
        return f"{self.root}/batchconsumequeue"

    @property
    def key_index(self) -> str:
        """Folder of the index by message keys."""
        return f"{self.root}/index"

    @property
    def config(self) -> str:
        """Folder of the JSON files."""
        return f"{self.root}/config"

    @property
    def deleted(self) -> str:
        """Folder of what is to be removed."""
        return f"{self.root}/deleted"

    @property
    def checkpoint(self) -> str:
        """The checkpoint file."""
        return f"{self.root}/checkpoint"

    @property
    def queue_ends(self) -> str:
        """The file that says how far every queue was at the checkpoint."""
        return f"{self.root}/queueEnds"

    @property
    def abort(self) -> str:
        """The file that exists while a broker runs."""
        return f"{self.root}/abort"

    @property
    def lock(self) -> str:
        """The lock file."""
        return f"{self.root}/lock"


def file_name(offset: int) -> str:
    """Name of the file whose first byte has this offset."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_offsets(names: list[str]) -> list[int]:
    """First offsets of the files in a folder, ascending; other names are not ours and skipped."""
    return sorted(int(name) for name in names if len(name) == NAME_DIGITS and name.isascii() and name.isdigit())
