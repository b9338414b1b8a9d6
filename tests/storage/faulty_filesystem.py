"""A file system that fails at a chosen operation, with an errno or with the end of the process.

See also: it wraps any :mod:`~raptormq.storage.fs.filesystem`. Crash-point tests wrap the in-memory one and then use its
durable state. Modifying operations are counted from 1 and listed in :attr:`FaultyFileSystem.operations`, so that a test
can visit each of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from raptormq.storage.fs.filesystem import Buffer, DiskUsage, File, FileSystem, Lock


class SimulatedCrash(Exception):
    """The process ends at this operation. Not an OSError, so that nothing handles it."""


@dataclass(slots=True)
class Fault:
    """A fault at the ``nth`` operation of a kind on a path that contains ``path``."""

    nth: int = 1
    kind: str = ""
    """``write allocate truncate sync create remove replace sync_directory sync_volume make_folders``; empty: any."""
    path: str = ""
    error: int | None = None
    """The errno; None ends the process."""
    torn_bytes: int = 0
    """Bytes that a failing write has written."""
    repeats: bool = False
    """Whether later matching operations fail, too."""


class FaultyFileSystem:
    """The file system ``inner`` with ``faults``. After the end of the process every operation fails with it."""

    def __init__(self, inner: FileSystem, *faults: Fault) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.operations: list[str] = []
        """``"kind path"`` of every modifying operation, successful or not."""
        self.crashed = False

    def check(self, kind: str, path: str) -> Fault | None:
        """Count an operation, and return the fault that applies to it; None without one."""
        if self.crashed:
            raise SimulatedCrash(f"{kind} {path}")
        self.operations.append(f"{kind} {path}")
        hit = None
        for fault in self.faults:
            if fault.kind in ("", kind) and fault.path in path:
                fault.nth -= 1
                if fault.nth == 0 or (fault.nth < 0 and fault.repeats):
                    hit = hit or fault
        return hit

    def strike(self, fault: Fault, kind: str, path: str) -> None:
        """Raise the error of ``fault``."""
        if fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)
        self.crashed = True
        raise SimulatedCrash(f"{kind} {path}")

    def run(self, kind: str, path: str) -> None:
        """Execute an operation that takes effect completely or not at all."""
        if fault := self.check(kind, path):
            self.strike(fault, kind, path)

    def open(self, path: str, *, create: bool = False) -> File:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        if create and not self.inner.exists(path):
            self.run("create", path)
        return FaultyFile(self, path, self.inner.open(path, create=create))

    def names(self, path: str) -> list[str]:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return self.inner.names(path)

    def exists(self, path: str) -> bool:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return self.inner.exists(path)

    def make_folders(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        if not self.inner.exists(path):
            self.run("make_folders", path)
        self.inner.make_folders(path)

    def remove(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.run("remove", path)
        self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.run("remove", path)
        self.inner.remove_tree(path)

    def replace(self, source: str, target: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.run("replace", target)
        self.inner.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.run("sync_directory", path)
        self.inner.sync_directory(path)

    def sync_volume(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.run("sync_volume", path)
        self.inner.sync_volume(path)

    def modified_ms(self, path: str) -> int:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return self.inner.modified_ms(path)

    def usage(self, path: str) -> DiskUsage:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return self.inner.usage(path)

    def lock(self, path: str) -> Lock:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return self.inner.lock(path)


class FaultyFile:
    """An open file of a :class:`FaultyFileSystem`."""

    def __init__(self, owner: FaultyFileSystem, path: str, inner: File) -> None:
        self._owner = owner
        self._path = path
        self._inner = inner

    def read_at(self, offset: int, size: int) -> bytes:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return self._inner.read_at(offset, size)

    def read_cached(self, offset: int, size: int) -> bytes | bytearray | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return self._inner.read_cached(offset, size)

    def load(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._inner.load(offset, size)

    def evict(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._inner.evict(offset, size)

    def write_at(self, offset: int, parts: Sequence[Buffer], size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        if fault := self._owner.check("write", self._path):
            if fault.torn_bytes:
                torn = b"".join(parts)[: fault.torn_bytes]
                self._inner.write_at(offset, [torn], len(torn))
            self._owner.strike(fault, "write", self._path)
        self._inner.write_at(offset, parts, size)

    def allocate(self, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._owner.run("allocate", self._path)
        self._inner.allocate(size)

    def truncate(self, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._owner.run("truncate", self._path)
        self._inner.truncate(size)

    def size(self) -> int:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return self._inner.size()

    def next_data(self, offset: int) -> int | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return self._inner.next_data(offset)

    def sync(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._owner.run("sync", self._path)
        self._inner.sync()

    def map(self, size: int) -> memoryview:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return self._inner.map(size)

    def release(self, view: memoryview, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._inner.release(view, size)

    def close(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._inner.close()
