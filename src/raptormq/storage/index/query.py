"""Queries by key: searches the index and reads the messages found, without blocking the event loop.

A search keeps its position, so nothing is repeated when pages have to be loaded or a thread has to scan. At most one
thread scans the index; the others are left for reads of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from raptormq.errors import BatchEncrypted, StorageError
from raptormq.storage.background import Executor
from raptormq.storage.fs import Buffer, FileSystem, with_pages
from raptormq.storage.index.key_index import KeyIndex
from raptormq.storage.index.search import MAX_LINKS, FileSearch
from raptormq.storage.read import KeyQuery, MessageLookup

_MESSAGES_PER_STEP = 16
"""Maximum number of messages read in one event loop iteration."""
_READ_ATTEMPTS = 256
_LINK_ATTEMPTS = 2 * MAX_LINKS
"""Maximum attempts of a search whose chain is not resident, because each attempt loads one link."""


@dataclass(frozen=True, slots=True)
class KeyQueries:
    """Searches ``index`` and reads the messages with ``lookup``."""

    index: KeyIndex
    lookup: MessageLookup
    filesystem: FileSystem
    scan_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, query: KeyQuery, limit: int, executor: Executor | None) -> list[Buffer]:
        """Return up to ``limit`` records with a key, the newest first.

        Raises:
            StorageError: a batch takes too much work, or the disk cannot read the index.
            BatchEncrypted: only encrypted batches have the key.
        """
        found: list[Buffer] = []
        refused: BatchEncrypted | None = None
        seen: set[int] = set()
        """Log offsets of the records returned, and of records already examined. The index may contain a key of a
        message twice."""
        for search in self.index.searches(query.topic, query.key, query.begin, query.end):
            while not search.is_done and len(found) < limit:
                try:
                    offsets = await self._step(search, executor)
                except OSError as error:
                    raise StorageError(f"cannot read {search.path}: {error.strerror or error}") from error
                await asyncio.sleep(0)
                for start in range(0, len(offsets), _MESSAGES_PER_STEP):
                    piece = [each for each in offsets[start : start + _MESSAGES_PER_STEP] if each not in seen]
                    try:
                        records = await self._read(piece, query, limit - len(found), executor)
                    except BatchEncrypted as error:  # older messages with the key may be readable
                        refused, records = error, []
                    if records:
                        seen.update(piece)
                        found += records
                    if len(found) >= limit:
                        break
                    await asyncio.sleep(0)
        if refused is not None and not found:
            raise refused
        return found

    async def _step(self, search: FileSearch, executor: Executor | None) -> list[int]:
        if not search.needs_thread:
            return await with_pages(lambda wait: search.step(wait=wait), executor, self.filesystem, _LINK_ATTEMPTS)
        if executor is None:
            return search.scan(self.filesystem)
        async with self.scan_lock:
            return await executor.run(search.scan, self.filesystem)

    async def _read(
        self, offsets: Sequence[int], query: KeyQuery, limit: int, executor: Executor | None
    ) -> list[Buffer]:
        return await with_pages(
            lambda wait: self.lookup.find_by_key(offsets, query, limit, wait=wait),
            executor,
            self.filesystem,
            _READ_ATTEMPTS,
        )
