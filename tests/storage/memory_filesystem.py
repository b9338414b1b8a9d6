"""An in-memory volume that knows what would survive a crash.

See also: :mod:`~raptormq.storage.fs.filesystem` has the guarantees, :mod:`~tests.storage.faulty_filesystem` injects
faults.

Each file has its current contents and its contents at the last ``sync``. Names are durable after ``sync_directory`` of
their folder, exactly as POSIX specifies. :meth:`MemoryFileSystem.after_kill` is the volume after the end of the
process, :meth:`MemoryFileSystem.after_power_cut` after a power failure.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from raptormq.storage.fs.filesystem import Buffer, DiskUsage

_SECTOR_BYTES = 512
"""Size of a sector, which a disk writes atomically. A power failure can tear a write at multiples of it."""


class _Node:
    """Contents of one file."""

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.unsynced: list[tuple[int, bytes]] = []
        self.modified_ms = modified_ms
        self.locked = False

    def resize(self, size: int) -> None:
        # A new array, because a mapped one cannot change its length.
        self.data = bytearray(self.data[:size].ljust(size, b"\0"))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.unsynced.clear()

    def torn(self, chance: random.Random) -> bytes:
        """Return the contents after a power failure that keeps any part of the unsynced writes, sector by sector."""
        data = bytearray(self.durable)
        if len(self.data) != len(data) and chance.random() < 0.5:
            data = bytearray(data[: len(self.data)].ljust(len(self.data), b"\0"))
        for offset, written in self.unsynced:
            for start in range(0, len(written), _SECTOR_BYTES):
                piece = written[start : start + _SECTOR_BYTES]
                if chance.random() < 0.5 and offset + start + len(piece) <= len(data):
                    data[offset + start : offset + start + len(piece)] = piece
        return bytes(data)


class _Names:
    """Files and folders of a volume, current or durable."""

    def __init__(self) -> None:
        self.files: dict[str, _Node] = {}
        self.folders = {"/"}


class MemoryFile:
    """An open file of a :class:`MemoryFileSystem`."""

    def __init__(self, volume: MemoryFileSystem, path: str, node: _Node) -> None:
        self._volume = volume
        self._path = path
        self._node = node

    def read_at(self, offset: int, size: int) -> bytes:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return bytes(self._node.data[offset : offset + size])

    def read_cached(self, offset: int, size: int) -> bytes | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`; None for files in
        :attr:`MemoryFileSystem.non_resident`.
        """
        cold = self._volume.non_resident
        return None if cold is not None and cold in self._path else self.read_at(offset, size)

    def load(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""

    def evict(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""

    def write_at(self, offset: int, parts: Sequence[Buffer], size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        data = b"".join(parts)
        assert len(data) == size
        node = self._node
        if offset + len(data) > len(node.data):
            self._volume.take(offset + len(data) - len(node.data))
            node.resize(offset + len(data))
        node.data[offset : offset + len(data)] = data
        node.unsynced.append((offset, data))
        node.modified_ms = self._volume.clock()

    def allocate(self, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        if size > len(self._node.data):
            self._volume.take(size - len(self._node.data))
            self._node.resize(size)

    def truncate(self, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._node.resize(size)

    def size(self) -> int:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return len(self._node.data)

    def next_data(self, offset: int) -> int | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        rest = bytes(self._node.data[offset:])
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        return offset + zeros if zeros < len(rest) else None

    def sync(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        self._node.sync()

    def map(self, size: int) -> memoryview:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        return memoryview(self._node.data)[:size].toreadonly()

    def release(self, view: memoryview, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""

    def close(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""


class MemoryLock:
    """A held lock of a :class:`MemoryFileSystem`."""

    def __init__(self, node: _Node) -> None:
        self._node = node
        node.locked = True

    def release(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.Lock`."""
        self._node.locked = False


class MemoryFileSystem:
    """A volume of ``capacity`` bytes; the lengths of files count."""

    def __init__(self, capacity: int = 1 << 40, clock: Callable[[], int] = lambda: 0) -> None:
        self.capacity = capacity
        self.clock = clock
        self.non_resident: str | None = None
        """Part of the paths of files without resident pages. ``read_cached`` returns None for them."""
        self.now = _Names()
        self.durable = _Names()

    def used(self) -> int:
        """Size of all files in bytes."""
        return sum(len(node.data) for node in self.now.files.values())

    def take(self, size: int) -> None:
        """Raise ENOSPC unless ``size`` bytes are free."""
        if self.used() + size > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def after_kill(self) -> MemoryFileSystem:
        """Return the volume as a new process sees it: all writes are kept, no lock is held."""
        # Threads of the store may create files meanwhile.
        kept = [(set(names.folders), dict(names.files)) for names in (self.now, self.durable)]
        copies = {id(node): _copy_node(node) for _, files in kept for node in files.values()}
        survivor = MemoryFileSystem(self.capacity, self.clock)
        for (folders, files), copied in zip(kept, (survivor.now, survivor.durable), strict=True):
            copied.folders = folders
            copied.files = {path: copies[id(node)] for path, node in files.items()}
        return survivor

    def after_power_cut(self, chance: random.Random | None = None) -> MemoryFileSystem:
        """Return the volume with its durable state. With ``chance`` it also has any part of the unsynced writes, and
        any folder's names with the lengths of its files, because file systems write these spontaneously.
        """
        if chance is None:
            return self._durable(None)
        volume = self.after_kill()
        for folder in sorted(volume.now.folders):
            if chance.random() < 0.5:
                volume.sync_directory(folder)
                for path, node in volume.durable.files.items():
                    if _folder(path) == folder:
                        node.durable = node.durable[: len(node.data)].ljust(len(node.data), b"\0")
        return volume._durable(chance)

    def _durable(self, chance: random.Random | None) -> MemoryFileSystem:
        survivor = MemoryFileSystem(self.capacity, self.clock)
        known = self.durable.folders
        survivor.now.folders = {path for path in known if _parents(path) <= known}
        for path, node in self.durable.files.items():
            if _parents(path) <= survivor.now.folders:
                survivor.now.files[path] = _Node(node.modified_ms, node.torn(chance) if chance else node.durable)
        survivor.sync_volume("/")
        return survivor

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        node = self.now.files.get(path)
        if node is None:
            if not create or _folder(path) not in self.now.folders:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self.now.files[path] = _Node(self.clock())
        return MemoryFile(self, path, node)

    def names(self, path: str) -> list[str]:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return sorted(
            os.path.basename(each) for each in (*self.now.files, *self.now.folders - {"/"}) if _folder(each) == path
        )

    def exists(self, path: str) -> bool:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return path in self.now.files or path in self.now.folders

    def make_folders(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.now.folders |= {path} | _parents(path)

    def remove(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.now.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.now.files = {each: node for each, node in self.now.files.items() if path not in _parents(each)}
        self.now.folders = {each for each in self.now.folders if each != path and path not in _parents(each)}

    def replace(self, source: str, target: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        now = self.now
        if source in now.files:
            now.files[target] = now.files.pop(source)
            return
        if source not in now.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        now.files = {_moved(each, source, target): node for each, node in now.files.items()}
        now.folders = {_moved(each, source, target) for each in now.folders}

    def sync_directory(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        for folder in [each for each in self.durable.folders - self.now.folders if _folder(each) == path]:
            durable = self.durable  # files in it are not found without its name
            durable.files = {each: node for each, node in durable.files.items() if folder not in _parents(each)}
            durable.folders = {each for each in durable.folders if folder not in _parents(each)}
        for known in [each for each in self.durable.files if _folder(each) == path and each not in self.now.files]:
            del self.durable.files[known]
        self.durable.files |= {each: node for each, node in self.now.files.items() if _folder(each) == path}
        elsewhere = {each for each in self.durable.folders if each == "/" or _folder(each) != path}
        self.durable.folders = elsewhere | {each for each in self.now.folders - {"/"} if _folder(each) == path}

    def sync_volume(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        for node in self.now.files.values():
            node.sync()
        self.durable.files = dict(self.now.files)
        self.durable.folders = set(self.now.folders)

    def modified_ms(self, path: str) -> int:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        if path not in self.now.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.now.files[path].modified_ms

    def usage(self, path: str) -> DiskUsage:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return DiskUsage(self.capacity, max(0, self.capacity - self.used()))

    def lock(self, path: str) -> MemoryLock:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        self.open(path, create=True)
        node = self.now.files[path]
        if node.locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        return MemoryLock(node)


@lru_cache(maxsize=4096)
def _folder(path: str) -> str:
    """Return the folder of ``path``. The result is cached, because simulations request the same few paths
    repeatedly.
    """
    return os.path.dirname(path)


@lru_cache(maxsize=4096)
def _parents(path: str) -> frozenset[str]:
    """Return all folders above ``path``."""
    parents: set[str] = set()
    while path != "/":
        path = _folder(path)
        parents.add(path)
    return frozenset(parents)


def _moved(path: str, source: str, target: str) -> str:
    """Return the name of ``path`` after ``source``, which may be a folder above it, was renamed to ``target``."""
    return target + path[len(source) :] if path == source or source in _parents(path) else path


def _copy_node(node: _Node) -> _Node:
    copy = _Node(node.modified_ms, bytes(node.data))
    copy.durable, copy.unsynced = node.durable, list(node.unsynced)
    return copy
