"""The interface between the store and the disk: the file operations that the store needs, and the names of its files.

:class:`FileSystem`, :class:`File` and :class:`Lock` are protocols. :mod:`~raptormq.storage.fs.real` implements them for
Linux. ``tests/storage`` has two more implementations: an in-memory volume that tracks what survives a power cut, and a
wrapper that fails or crashes at the n-th operation.

Durability: ``write_at``, ``truncate`` and ``allocate`` are durable only after ``sync`` of the file. A created, renamed
or removed name is durable only after ``sync_directory`` of its folder. A ``write_at`` that raises may have written any
part of its data. All failures are ``OSError`` with an errno, which the store translates. ``sync``, ``sync_directory``
and ``sync_volume`` raise EMFILE, ENFILE or ENOMEM only if the sync was not started; such a call can be repeated. After
any other failure of a sync the contents of the disk are unknown.

:class:`StorePaths` names the files and folders of a store (Apache RocketMQ ``StorePathConfigHelper``)::

    <root>/commitlog/<offset, 20 digits>                        segments, named by their first byte
    <root>/consumequeue/<topic>/<queue id>/<offset, 20 digits>  queue files, named by their first byte
    <root>/batchconsumequeue/<topic>/<queue id>/<offset>        the same for BatchCQ topics
    <root>/index/<yyyyMMddHHmmssSSS>                            index of message keys
    <root>/config/*.json                                        consumer offsets and the broker's tables
    <root>/deleted/<number>                                     folders of deleted topics, waiting for removal
    <root>/checkpoint  queueEnds  abort  lock
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raptormq.files import Files, SmallFile

Buffer = bytes | bytearray | memoryview


class DiskUsage(NamedTuple):
    """Size of the volume that holds a path, in bytes. ``free`` is what an unprivileged user may allocate."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        """Used share of the volume, 0.0 to 1.0."""
        return 1.0 - self.free / self.total if self.total else 1.0


class File(SmallFile, Protocol):
    """An open file that is read and written at explicit positions. Reads are allowed from any thread."""

    def read_cached(self, offset: int, size: int) -> bytes | bytearray | None:
        """Read like ``read_at`` if all pages are in the page cache; return None if the disk would have to be read."""

    def load(self, offset: int, size: int) -> None:
        """Read these bytes into the page cache, including holes. Blocks on the disk. Bytes beyond the end of the file
        are ignored.
        """

    def evict(self, offset: int, size: int) -> None:
        """Drop the pages that lie entirely within these bytes from the page cache, except dirty and mapped ones."""

    def write_at(self, offset: int, parts: Sequence[Buffer], size: int) -> None:
        """Write ``parts``, ``size`` bytes in total, with one system call unless the kernel writes only a part."""

    def allocate(self, size: int) -> None:
        """Extend the file to ``size`` bytes with all blocks reserved; raises ENOSPC if the volume has no room."""

    def next_data(self, offset: int) -> int | None:
        """Return the first position >= ``offset`` that may hold data other than a hole, or None if there is none."""

    def map(self, size: int) -> memoryview:
        """Map the first ``size`` bytes read-only. The view shows later writes and is valid while it is referenced."""

    def release(self, view: memoryview, size: int) -> None:
        """Remove the first ``size`` bytes of a view that ``map`` returned from the resident memory of this process.
        They are faulted in again on the next access.
        """

    def close(self) -> None:
        """Close the file. Views that ``map`` returned stay valid."""


class Lock(Protocol):
    """A lock on a file that this process holds."""

    def release(self) -> None:
        """Release the lock."""


class FileSystem(Files, Protocol):
    """Operations on names of a volume. Paths are absolute, with ``/``."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises FileNotFoundError if it does not exist and
        ``create`` is false.
        """

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; an empty list if the folder does not exist."""

    def remove(self, path: str) -> None:
        """Remove a file; does nothing if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its contents; does nothing if it does not exist."""

    def sync_volume(self, path: str) -> None:
        """Make everything on the volume of ``path`` durable."""

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file, in ms since 1970."""

    def usage(self, path: str) -> DiskUsage:
        """Return size and free space of the volume of ``path``."""

    def lock(self, path: str) -> Lock:
        """Lock a file for this process, creating it if necessary. Raises BlockingIOError if another process holds the
        lock.
        """


def is_no_room(error: OSError) -> bool:
    """Whether the volume or the quota of the user is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether the limit of open files of the process or of the system is reached."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def is_exhausted(error: OSError) -> bool:
    """Whether a resource is exhausted that may become available again: disk space, descriptors or memory. The disk
    itself is intact.
    """
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
        """Folder of the key index."""
        return f"{self.root}/index"

    @property
    def config(self) -> str:
        """Folder of the JSON files."""
        return f"{self.root}/config"

    @property
    def deleted(self) -> str:
        """Folder that holds the folders of deleted topics until a thread removes them."""
        return f"{self.root}/deleted"

    @property
    def checkpoint(self) -> str:
        """The checkpoint file."""
        return f"{self.root}/checkpoint"

    @property
    def queue_ends(self) -> str:
        """File with the end of every queue at the checkpoint."""
        return f"{self.root}/queueEnds"

    @property
    def abort(self) -> str:
        """File that exists while a broker runs."""
        return f"{self.root}/abort"

    @property
    def lock(self) -> str:
        """The lock file."""
        return f"{self.root}/lock"


def file_name(offset: int) -> str:
    """Return the name of the file whose first byte has this offset."""
    return f"{offset:0{NAME_DIGITS}d}"


def file_offsets(names: list[str]) -> list[int]:
    """Return the start offsets of the files in a folder, ascending. Names that are not 20 digits are ignored."""
    return sorted(int(name) for name in names if len(name) == NAME_DIGITS and name.isascii() and name.isdigit())
