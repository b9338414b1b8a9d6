"""Base class of the store's ledgers: a table with entries for some topics, kept in a small JSON file
(:mod:`~raptormq.json_file`)::

    {"<key>": {"<topic>": <entry>}, "crc32": <number>}

:mod:`~raptormq.storage.queue.topic_state` has the ledgers and their entries.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from raptormq.errors import BodyError, StorageError
from raptormq.json_file import JsonFile, VersionedFile, dump_pretty, with_checksum
from raptormq.protocol.bodies.members import object_at
from raptormq.storage.background import Executor
from raptormq.storage.fs.filesystem import FileSystem

T = TypeVar("T")


class TopicLedger(ABC, Generic[T]):
    """The ledger in the file at ``path``; ``entries`` are keyed by topic."""

    key: ClassVar[str]
    """The member of the JSON object that holds the table."""
    entry_name: ClassVar[str]
    """Name of an entry in error messages."""
    without: ClassVar[str]
    """The consequence of a start without the file, for error messages."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.path = path
        self._json = JsonFile(path, filesystem, key=self.key, without=self.without)
        self._file = VersionedFile(self._json)
        self.version = 0
        """Number of changes of the entries since the load."""
        self._saving = asyncio.Lock()
        self.entries: dict[str, T] = {}

    @abstractmethod
    def _decode(self, topic: str, value: object) -> T | None:
        """Decode an entry; return None if ``value`` is not valid."""

    @abstractmethod
    def _encode(self, entry: T) -> object:
        """Encode an entry for the file."""

    def load(self) -> dict[str, T]:
        """Read the file and return :attr:`entries`. A file with an invalid entry counts as damaged.

        Raises:
            StoreDamaged: the file and its backup cannot be read.
        """
        self.entries.update(self._json.load(self._decode_all) or {})
        return self.entries

    def _decode_all(self, value: dict[str, Any]) -> dict[str, T]:
        entries: dict[str, T] = {}
        for topic, each in object_at(value, self.key).items():
            entry = self._decode(topic, each)
            if entry is None:
                raise BodyError(f"not a {self.entry_name}: {topic!r:.100}: {each!s:.100}")
            entries[topic] = entry
        return entries

    def mark_changed(self) -> None:
        """Record that the entries have to be written."""
        self.version += 1

    @property
    def is_saved(self) -> bool:
        """Whether the file contains every change."""
        return self._file.version == self.version

    async def save(self, background: Executor) -> None:
        """Wait until the file contains every change. After a cancellation a write in progress continues, and the next
        save writes the rest.

        Raises:
            StorageError: the file could not be written.
        """
        async with self._saving:
            if self.is_saved:
                return
            try:
                await background.run(self._write, self.version, self._text())
            except OSError as error:
                raise StorageError(f"cannot save {self.path}: {error.strerror or error}") from error

    def save_now(self) -> None:
        """Write the file in this thread, if it lacks a change.

        Raises:
            OSError: the file could not be written.
        """
        if not self.is_saved:
            self._write(self.version, self._text())

    def _text(self) -> bytes:
        return dump_pretty(
            with_checksum({self.key: {topic: self._encode(entry) for topic, entry in self.entries.items()}})
        )

    def _write(self, version: int, text: bytes) -> None:
        self._file.save(version, text)
