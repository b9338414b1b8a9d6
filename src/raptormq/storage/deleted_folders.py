"""Folders with the queues of deleted topics, and of a type that counts no more: each gets another name at once, below
``deleted``, and is removed by a thread, as a disk may take seconds for thousands of queues.

Neighbours: :mod:`~raptormq.storage.queue_files` adds them, :mod:`~raptormq.storage.housekeeping` has the timer.
"""

from __future__ import annotations

import threading

from raptormq.logs import get_logger
from raptormq.storage.filesystem import FileSystem

logger = get_logger(__name__)


class DeletedFolders:
    """What is to be removed below ``folder``."""

    def __init__(self, filesystem: FileSystem, folder: str) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._waiting: list[str] = []
        self._removing = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(self) -> None:
        """Note what an earlier process has left."""
        self._waiting = [f"{self._folder}/{name}" for name in self._filesystem.names(self._folder)]

    def add(self, folder: str) -> None:
        """Give ``folder`` a name that nothing has; one that cannot be renamed is removed at once."""
        filesystem, number = self._filesystem, len(self._waiting)
        while filesystem.exists(target := f"{self._folder}/{number}"):
            number += 1
        try:
            filesystem.make_folders(self._folder)
            filesystem.replace(folder, target)
        except OSError as error:
            logger.warning("%s cannot be renamed, and is removed at once: %s", folder, error)
            filesystem.remove_tree(folder)
        else:
            self._waiting.append(target)

    def remove(self) -> None:
        """In a thread: remove what was added before.

        Raises:
            OSError: a disk failed; it is tried again with the next call.
        """
        with self._removing:
            while self._waiting:
                self._filesystem.remove_tree(self._waiting[0])
                del self._waiting[0]
