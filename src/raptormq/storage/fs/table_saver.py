"""Writes a table to its file in a thread, as often as the disk allows (``ConfigManager.persist``).

Changes during a write share the next write, so creating thousands of topics takes a handful of writes. A caller that
must not respond before a change is durable awaits :meth:`TableSaver.saved`. After a failed write the table in memory is
ahead of its file until the next change, or :meth:`TableSaver.retry_save`, writes it.
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
    """Keeps one file equal to one table.

    ``snapshot`` returns an object that later changes of the table do not modify. ``before_write`` runs before every
    write. If it raises StorageError, nothing is written.
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
        """Names changed since the last write, each with the number of its last change."""

    def save_soon(self, name: str | None = None) -> None:
        """Schedule a write of the table's contents at the end of this iteration of the event loop; ``name`` describes
        the change.
        """
        self._changes += 1
        if name is not None:
            self.unsaved[name] = self._changes
        if self._writing is None:
            self._begin()

    def retry_save(self) -> None:
        """Repeat a failed write, if there is one; called by a timer."""
        if self._saved_changes < self._changes and self._writing is None:
            self._begin()

    async def saved(self) -> None:
        """Wait until every change made so far is durable.

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
    """Mark the exception as retrieved: it is logged already, and asyncio would log it again if no task awaits the
    write.
    """
    if not writing.cancelled():
        writing.exception()
