"""What of the queues is written and not durable yet: the files, and the folders whose names have changed.

Neighbours: :mod:`~raptormq.storage.queue_files` notes it, :mod:`~raptormq.storage.durability` makes it durable.
"""

from __future__ import annotations


class Unsynced:
    """Paths that a checkpoint has to make durable. Those that one has taken stay until it is :meth:`done`, whether it
    fails or whoever waits for it is cancelled.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._taken_files: set[str] = set()
        self._taken_folders: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._files or self._folders or self._taken_files or self._taken_folders)

    def written(self, path: str) -> None:
        """A file has new contents."""
        self._files.add(path)

    def renamed(self, *folders: str) -> None:
        """Names in ``folders`` have come or gone."""
        self._folders.update(folders)

    def removed(self, path: str) -> None:
        """A file is gone."""
        self._files.discard(path)
        self._taken_files.discard(path)

    def take(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return all files and folders, those that were taken in vain before among them."""
        self._taken_files |= self._files
        self._taken_folders |= self._folders
        self._files.clear()
        self._folders.clear()
        return frozenset(self._taken_files), frozenset(self._taken_folders)

    def done(self) -> None:
        """What was taken is durable."""
        self._taken_files.clear()
        self._taken_folders.clear()
