"""File-system interface for small files, which are read and replaced as a whole.

:mod:`~raptormq.json_file` stores tables of broker, name server and client in such files.
:mod:`raptormq.storage.fs.filesystem` extends the interface for the message store.

``write_at`` and ``truncate`` are durable only after ``sync`` of the file. A created, renamed or removed name is durable
only after ``sync_directory`` of its folder. All failures are ``OSError``. A sync that fails with EMFILE, ENFILE or
ENOMEM has not started and can be repeated. After any other failure of a sync the contents of the disk are unknown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Protocol

from raptormq.logs import get_logger

logger = get_logger(__name__)

OWNER_ONLY = 0o600
"""Permissions of a file that only its owner may read and write."""


class SmallFile(Protocol):
    """An open file, read and written at explicit positions."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer at the end of the file. May block on the disk."""

    def write_at(self, offset: int, parts: Sequence[bytes], size: int) -> None:
        """Write ``parts``, in total ``size`` bytes, at ``offset``."""

    def truncate(self, size: int) -> None:
        """Set the length to ``size`` bytes. An extension is a hole, which reads as NUL bytes."""

    def size(self) -> int:
        """Return the length in bytes."""

    def sync(self) -> None:
        """Make the contents and the length durable."""

    def close(self) -> None:
        """Close the file."""


class Files(Protocol):
    """Operations on the names of a volume. Paths are absolute, with ``/``."""

    def open(self, path: str, *, create: bool = False) -> SmallFile:
        """Open a file for reading; with ``create`` also for writing, and create it if it does not exist. Raises
        FileNotFoundError if the file does not exist and ``create`` is false.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or folder of this name exists."""

    def make_folders(self, path: str) -> None:
        """Create a folder and its parents, if they do not exist."""

    def replace(self, source: str, target: str) -> None:
        """Rename ``source`` to ``target`` atomically. An existing file ``target`` is replaced. If ``source`` is a
        folder, ``target`` must not exist.
        """

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder durable."""


def read_file(files: Files, path: str) -> bytes:
    """Return the whole contents of a small file."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def write_file(files: Files, path: str, data: bytes) -> None:
    """Overwrite a small file and make its contents, but not its name, durable."""
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data], len(data))
        file.sync()
    finally:
        file.close()


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Create or replace a small file atomically; durable on return.

    Raises:
        OSError: the write failed. The file has its old or its new contents.
    """
    write_file(files, f"{path}.new", data)
    files.replace(f"{path}.new", path)
    files.sync_directory(path.rpartition("/")[0] or "/")


def make_durable_folder(files: Files, folder: str) -> None:
    """Create ``folder`` and its parents so that their names survive a power cut."""
    parents = []
    path = folder
    while not files.exists(path):
        path = path.rpartition("/")[0] or "/"
        parents.append(path)
    files.make_folders(folder)
    for parent in parents:
        files.sync_directory(parent)


@contextlib.contextmanager
def begun_sync() -> Iterator[None]:
    """Convert EMFILE, ENFILE and ENOMEM of a sync that has started to EIO. Such a sync may have lost pages, so callers
    must not repeat it as after a lack of resources.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({error.strerror})", error.filename) from error
        raise


class DiskFile:
    """An open file descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, offset: int, size: int) -> bytes:
        """See :class:`SmallFile`."""
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write_at(self, offset: int, parts: Sequence[bytes], size: int) -> None:
        """See :class:`SmallFile`."""
        rest, written = memoryview(b"".join(parts)), 0
        while written < size:
            written += os.pwrite(self._fd, rest[written:], offset + written)

    def truncate(self, size: int) -> None:
        """See :class:`SmallFile`."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """See :class:`SmallFile`."""
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        """See :class:`SmallFile`."""
        with begun_sync():
            os.fdatasync(self._fd)

    def close(self) -> None:
        """See :class:`SmallFile`."""
        os.close(self._fd)


class DiskFiles:
    """The volumes of this machine. With ``mode`` every written file gets these permissions, also an existing one.
    Otherwise a new file gets 0644 without the bits of the process's umask.
    """

    def __init__(self, mode: int | None = None) -> None:
        self._mode = mode

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """See :class:`Files`."""
        if not create:
            return DiskFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        mode = self._mode
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644 if mode is None else mode)
        try:
            if mode is not None:
                os.fchmod(fd, mode)
        except OSError:
            os.close(fd)
            raise
        return DiskFile(fd)

    def exists(self, path: str) -> bool:
        """See :class:`Files`."""
        return os.path.exists(path)

    def make_folders(self, path: str) -> None:
        """See :class:`Files`."""
        try:
            os.mkdir(path)
        except OSError:  # its parent does not exist, or the folder exists
            os.makedirs(path, exist_ok=True)

    def replace(self, source: str, target: str) -> None:
        """See :class:`Files`."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """See :class:`Files`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with begun_sync():
                os.fsync(fd)
        finally:
            os.close(fd)


class PrivateFiles(DiskFiles):
    """Files for secrets, which only their owner may read and write."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """See :class:`Files`; removes the permissions of others from an existing file."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), OWNER_ONLY)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            if mode & ~OWNER_ONLY:  # created by a copy or an editor
                logger.warning("other accounts could read %s (mode %03o); its mode is now %03o", path, mode, OWNER_ONLY)
                os.fchmod(fd, OWNER_ONLY)
        except OSError:
            os.close(fd)
            raise
        return DiskFile(fd)
