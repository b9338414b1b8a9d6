"""Writes a table to its file in a thread, as often as the disk can follow and no more (``ConfigManager.persist``).

Changes that come while a write is under way share the next one, so that creating thousands of topics costs a handful
of writes. Who must not answer before a change is safe awaits :meth:`TableSaver.saved`. After a failed write the table
in memory is ahead of its file until the next change, or :meth:`TableSaver.retry_save`, writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from raptormq.errors import StorageError
from raptormq.json_file import JsonFile
from raptormq.logs import get_logger

logger = get_logger(__name__)


class TableSaver:
    """Keeps one file equal to one table; ``snapshot`` returns an object that no later change of the table touches.

    ``before_write`` runs before every write. If it raises StorageError, nothing is written.
    """

    def __init__(
        self,
        file: JsonFile,
        snapshot: Callable[[], dict[str, Any]],
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._file = file
        self._snapshot = snapshot
        self._before_write = before_write
        self._changes = 0
        self._saved_changes = 0
        self._writing: asyncio.Task[None] | None = None
        self.unsaved: dict[str, int] = {}
        """Names of what was changed since the file was last written, each with the number of its last change."""

    def save_soon(self, name: str | None = None) -> None:
        """Write the table as it is at the end of this turn of the loop; ``name`` is what was changed in it."""
        self._changes += 1
        if name is not None:
            self.unsaved[name] = self._changes
        if self._writing is None:
            self._begin()

    def retry_save(self) -> None:
        """Write what a failed write has left, if anything; for a timer."""
        if self._saved_changes < self._changes and self._writing is None:
            self._begin()

    async def saved(self) -> None:
        """Wait until every change made so far is on disk.

        Raises:
            StorageError: the file could not be written; the table in memory is ahead of it.
        """
        wanted = self._changes
        while self._saved_changes < wanted:
            await asyncio.shield(self._writing or self._begin())

    def _begin(self) -> asyncio.Task[None]:
        self._writing = asyncio.get_running_loop().create_task(self._write())
        self._writing.add_done_callback(_retrieve_exception)
        return self._writing

    async def _write(self) -> None:
        changes = self._changes
        try:
            if self._before_write is not None:
                await self._before_write()
            changes = self._changes
            await asyncio.to_thread(self._file.save, self._snapshot())
            self._saved_changes = changes
            self.unsaved = {name: change for name, change in self.unsaved.items() if change > changes}
        except OSError as error:
            logger.error("cannot save %s: %s", self._file.path, error)
            raise StorageError(f"cannot save {self._file.path}: {error.strerror}") from error
        finally:
            self._writing = None
            if self._saved_changes == changes != self._changes:
                self._begin()


def _retrieve_exception(writing: asyncio.Task[None]) -> None:
    """Nobody may be waiting: its failure is in the log, and asyncio need not tell of it again."""
    if not writing.cancelled():
        writing.exception()
