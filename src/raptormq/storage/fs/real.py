"""The file-system interface on Linux: pwritev, posix_fallocate, preadv2 with RWF_NOWAIT, syncfs, flock.

:mod:`~raptormq.storage.fs.filesystem` documents the guarantees of each call.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence

from raptormq.files import DiskFile, DiskFiles, begun_sync
from raptormq.storage.fs.filesystem import Buffer, DiskUsage

_MAX_PARTS = 1024
"""IOV_MAX of Linux. A longer list is joined into one buffer, so it is still one write."""

_JOINED_PARTS = 16
_JOINED_BYTES = 512 * 1024
_JOINED_AVERAGE = 4096
"""Below these limits (many small parts, not too large in total) copying the parts takes less time than the kernel needs
to walk the list.
"""

_LOAD_BYTES = 64 * 1024
"""Bytes of the buffer for loading pages, which fits the CPU cache."""

_libc = ctypes.CDLL(None, use_errno=True)


class RealFile(DiskFile):
    """An open file descriptor."""

    __slots__ = ("_nowait",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._nowait = True

    def read_cached(self, offset: int, size: int) -> bytes | bytearray | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`.

        A short read means that a page is missing or that the file ends. On file systems without RWF_NOWAIT (tmpfs of
        older kernels, some network file systems) files are read normally.
        """
        if not self._nowait:
            return self.read_at(offset, size)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            self._nowait = False
            return self.read_at(offset, size)
        if count == size:
            return buffer
        return buffer[:count] if offset + count >= self.size() else None

    def load(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`.

        All parts of a read use the same small buffer: the data is not needed, and the GIL is taken once per 64 MiB.
        """
        buffer, end = bytearray(_LOAD_BYTES), offset + size
        while offset < end:
            count = os.preadv(self._fd, [buffer] * min(-(-(end - offset) // _LOAD_BYTES), _MAX_PARTS), offset)
            if not count:
                break
            offset += count

    def evict(self, offset: int, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def write_at(self, offset: int, parts: Sequence[Buffer], size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        count = len(parts)
        are_many = count > _JOINED_PARTS and size <= _JOINED_BYTES and size < count * _JOINED_AVERAGE
        if are_many or count > _MAX_PARTS:
            parts = [b"".join(parts)]
        written = os.pwritev(self._fd, parts, offset)
        if written != size:
            rest = memoryview(b"".join(parts))
            while written < size:
                written += os.pwrite(self._fd, rest[written:], offset + written)

    def allocate(self, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        os.posix_fallocate(self._fd, 0, size)

    def next_data(self, offset: int) -> int | None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def map(self, size: int) -> memoryview:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        mapping = mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        mapping.madvise(mmap.MADV_RANDOM)  # without it a page fault reads ahead up to 8 MiB while the reader waits
        return memoryview(mapping)

    def release(self, view: memoryview, size: int) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.File`."""
        mapping = view.obj
        assert isinstance(mapping, mmap.mmap)
        with contextlib.suppress(OSError):  # EINVAL if the process memory is locked: the pages stay
            mapping.madvise(mmap.MADV_DONTNEED, 0, size - size % mmap.PAGESIZE)


class RealLock:
    """A lock file with two locks: flock against other RaptorMQ brokers, a POSIX lock against Java brokers."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.Lock`."""
        os.close(self._fd)


class RealFileSystem(DiskFiles):
    """The file system of this machine."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def names(self, path: str) -> list[str]:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_volume(self, path: str) -> None:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with begun_sync():
                if _libc.syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: str) -> DiskUsage:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        stat = os.statvfs(path)
        used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        free = stat.f_bavail * stat.f_frsize
        return DiskUsage(used + free, free)

    def lock(self, path: str) -> RealLock:
        """See :class:`~raptormq.storage.fs.filesystem.FileSystem`."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, os.strerror(error.errno), path) from error
            raise
        return RealLock(fd)
