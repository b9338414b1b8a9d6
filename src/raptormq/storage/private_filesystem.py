"""The real file system for secrets: what it writes only the process's own account can read."""

from __future__ import annotations

import os
import stat

from raptormq.logs import get_logger
from raptormq.storage.real_filesystem import RealFile, RealFileSystem

logger = get_logger(__name__)

_OWNER_ONLY = 0o600


class PrivateFileSystem(RealFileSystem):
    """Opens files with mode 0600, those that exist already included."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open a file (FileSystem)."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), _OWNER_ONLY)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & ~_OWNER_ONLY:  # put there by a copy, or by somebody's editor
                logger.warning("%s had mode %03o, others could read it: it has %03o now", path, mode, _OWNER_ONLY)
                os.fchmod(descriptor, _OWNER_ONLY)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(descriptor)
