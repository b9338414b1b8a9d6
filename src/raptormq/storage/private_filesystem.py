"""The real file system for secrets: what it writes only the process's own account can read."""

from __future__ import annotations

import os

from raptormq.storage.real_filesystem import RealFile, RealFileSystem

_OWNER_ONLY = 0o600


class PrivateFileSystem(RealFileSystem):
    """Opens files with mode 0600, those that exist already included."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open a file (FileSystem)."""
        if not create:
            return super().open(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, _OWNER_ONLY)
        try:
            os.fchmod(descriptor, _OWNER_ONLY)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(descriptor)
