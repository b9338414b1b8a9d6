"""The two files that say that a store is in use: ``lock`` (held while the process lives) and ``abort`` (left behind by
a crash).

Source: Apache RocketMQ ``DefaultMessageStore``; as there, ``abort`` holds the process id as text.
"""

from __future__ import annotations

import os

from raptormq.errors import StoreLocked
from raptormq.files import read_file, write_file
from raptormq.storage.filesystem import FileSystem, is_no_room
from raptormq.storage.paths import StorePaths


class RunningMarker:
    """Holds the lock from construction to ``release``.

    Raises:
        StoreLocked: another process has the lock; the text names it where ``abort`` tells.
    """

    def __init__(self, filesystem: FileSystem, paths: StorePaths) -> None:
        self._filesystem = filesystem
        self._paths = paths
        try:
            self._lock = filesystem.lock(paths.lock)
        except BlockingIOError as error:
            raise StoreLocked(f"{paths.root} is in use by another process{self._holder()}") from error
        self.crashed = filesystem.exists(paths.abort)
        """The last run did not end cleanly."""

    def _holder(self) -> str:
        if not self._filesystem.exists(self._paths.abort):
            return ""
        text = read_file(self._filesystem, self._paths.abort)[:20].decode("ascii", "replace").strip()
        return f" (pid {text})" if text.isdigit() else ""

    def mark(self) -> None:
        """Write ``abort``: from now on an end without ``clear`` is a crash. That it is there says so; the number of the
        process is for people, and may find no room.

        Raises:
            OSError: there is no room even for the name, or the disk failed.
        """
        try:
            write_file(self._filesystem, self._paths.abort, str(os.getpid()).encode())
        except OSError as error:
            if not (is_no_room(error) and self._filesystem.exists(self._paths.abort)):
                raise
        self._filesystem.sync_directory(self._paths.root)

    def clear(self) -> None:
        """Remove ``abort``, once everything is durable."""
        self._filesystem.remove(self._paths.abort)
        self._filesystem.sync_directory(self._paths.root)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()
