"""A file system with a limit of open descriptors."""

from __future__ import annotations

import errno
import os

from raptormq.storage.fs.real import RealFile, RealFileSystem


class CountedFile(RealFile):
    """A file that releases its descriptor at close."""

    __slots__ = ("_owner",)

    def __init__(self, fd: int, owner: FewDescriptors) -> None:
        super().__init__(fd)
        self._owner = owner

    def close(self) -> None:
        super().close()
        self._owner.open_files -= 1


class FewDescriptors(RealFileSystem):
    """Opens at most ``limit`` files at a time, like a process under ``ulimit -n``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open_files = 0

    def open(self, path: str, *, create: bool = False) -> RealFile:
        self._check(path)
        file = CountedFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644), self)
        self.open_files += 1
        return file

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)

    def _check(self, path: str) -> None:
        if self.open_files >= self.limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
