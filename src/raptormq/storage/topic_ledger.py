"""What the ledgers of a store have in common: a table with an entry for some topics, kept in a small JSON file
(:mod:`~raptormq.storage.json_file`)::

    {"<key>": {"<topic>": <entry>}}

Neighbours: :mod:`~raptormq.storage.deletion_ledger` and :mod:`~raptormq.storage.conversion_ledger` have the entries.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.storage.background import Runner
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile, VersionedFile, dump_pretty

logger = get_logger(__name__)

T = TypeVar("T")


class TopicLedger(ABC, Generic[T]):
    """The file at ``path``; ``entries`` are by topic."""

    key: ClassVar[str]
    """Where in the file the table is."""
    entry_name: ClassVar[str]
    """What an entry is, for a warning of one that is not."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.path = path
        self._json = JsonFile(path, filesystem)
        self._file = VersionedFile(self._json)
        self.version = 0
        """Grows with each change."""
        self._saving = asyncio.Lock()
        self.entries: dict[str, T] = {}

    @abstractmethod
    def _decode(self, topic: str, value: object) -> T | None:
        """Return the entry that ``value`` stands for, None where it is none."""

    @abstractmethod
    def _encode(self, entry: T) -> object:
        """Return what the file says of an entry."""

    def load(self) -> dict[str, T]:
        """Read the file and return :attr:`entries`; what is no entry is left out with a warning.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        found = (self._json.load() or {}).get(self.key)
        for topic, value in found.items() if isinstance(found, dict) else ():
            entry = self._decode(topic, value)
            if entry is None:
                logger.warning("%s: no %s: %.100r: %.200s", self.path, self.entry_name, topic, value)
            else:
                self.entries[topic] = entry
        return self.entries

    def changed(self) -> None:
        """The entries are to be written."""
        self.version += 1

    @property
    def is_saved(self) -> bool:
        """Whether the file has every change."""
        return self._file.version == self.version

    async def save(self, background: Runner) -> None:
        """Wait until the file has every change. A cancellation leaves it to the next save, or to the thread that writes
        already.

        Raises:
            StorageError: it could not be written.
        """
        async with self._saving:
            if self.is_saved:
                return
            try:
                await background.run(self._write, self.version, self._text())
            except OSError as error:
                raise StorageError(f"cannot save {self.path}: {error.strerror or error}") from error

    def save_now(self) -> None:
        """Write the file, in this thread, if it lacks a change.

        Raises:
            OSError: it could not be written.
        """
        if not self.is_saved:
            self._write(self.version, self._text())

    def _text(self) -> bytes:
        return dump_pretty({self.key: {topic: self._encode(entry) for topic, entry in self.entries.items()}})

    def _write(self, version: int, text: bytes) -> None:
        self._file.save(version, text)
