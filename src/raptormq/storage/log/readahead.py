"""Loads the pages beyond the end of the log into the page cache, before the log grows into them.

A write to a page that is not resident waits for the kernel to allocate one and, on a virtual machine, for the host to
back it: 33 KiB take 13 to 130 us instead of 6. The event loop would spend more time on that than on the rest of its
work for a batch of messages, so a thread reads beyond the end of the log. Nothing was ever written there, so the disk
is not read. The distance grows with the rate of the log: an idle broker keeps few pages.

Pages that :mod:`~raptormq.storage.maintenance.page_eviction` has evicted serve the same purpose: the kernel reuses
them. While the log grows by the size of the evicted pages, nothing is read ahead, which saves filling pages with zeros.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable

from raptormq.logs import get_logger
from raptormq.storage.background import Executor
from raptormq.storage.fs import Extent, FileSystem, load_pages
from raptormq.storage.log.commit_log import CommitLog

logger = get_logger(__name__)

LEAST_AHEAD_BYTES = 1 << 20
MAX_AHEAD_BYTES = 16 << 20
STEP_BYTES = 2 << 20
"""Maximum growth of the log in bytes between two reads. On a host that has to back each page, larger steps would
occupy a CPU long enough for clients to notice.
"""
MAX_SKIPPED_BYTES = 512 << 20
"""Maximum size in bytes of evicted pages that replace readahead. Pages that stay free for long may go to another
process or to the host.
"""
_FAST_S = 0.1
"""Time in seconds: if the log grows by a step within it, the distance is doubled."""
_NEVER = sys.maxsize


class PageWarmer:
    """Reads ahead of the end of ``log`` after :meth:`start`. Belongs to one event loop."""

    def __init__(self, filesystem: FileSystem, log: CommitLog, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._filesystem = filesystem
        self._log = log
        self._clock = clock
        self._executor: Executor | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted_at = _NEVER  # end of the log at which more pages are loaded
        self._skip_until = 0
        self._warm_to = 0
        self._ahead = LEAST_AHEAD_BYTES
        self._last = 0.0

    def start(self, executor: Executor) -> None:
        """Start to read ahead, in a thread of ``executor``."""
        self._executor = executor
        self._wanted_at = 0

    def stop(self) -> None:
        """Start no more reads."""
        self._wanted_at = _NEVER
        if self._task is not None:
            self._task.cancel()

    def skip_ahead(self, size: int) -> None:
        """Read nothing while the log grows by ``size`` bytes, because pages of that size were just evicted."""
        end = self._log.end_offset
        self._skip_until = min(max(self._skip_until, end) + size, end + MAX_SKIPPED_BYTES)

    def appended(self) -> None:
        """Notify the warmer, in the loop's thread, that the log has grown."""
        if self._log.end_offset >= max(self._wanted_at, self._skip_until):
            self._wanted_at = _NEVER
            self._task = asyncio.get_running_loop().create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        assert self._executor is not None
        self._adapt()
        begin = max(self._warm_to, self._log.end_offset)
        end = max(self._log.end_offset + self._ahead, begin)  # the distance may have been larger
        extents = self._log.extents(begin, end)
        self._warm_to = begin + sum(extent.size for extent in extents)
        try:
            await self._executor.run(_read, self._filesystem, extents)
        except Exception:  # no thread or no memory: without readahead writes are only slower
            logger.exception("cannot load pages ahead of the commit log")
            self._wanted_at = self._log.end_offset + MAX_AHEAD_BYTES
            return
        is_short = self._warm_to < end  # the next file does not exist yet
        self._wanted_at = self._warm_to if is_short else end - self._ahead + min(self._ahead // 2, STEP_BYTES)

    def _adapt(self) -> None:
        now = self._clock()
        is_fast = now - self._last < _FAST_S
        self._last = now
        self._ahead = min(self._ahead * 2, MAX_AHEAD_BYTES) if is_fast else max(self._ahead // 2, LEAST_AHEAD_BYTES)


def _read(filesystem: FileSystem, extents: list[Extent]) -> None:
    """Load ``extents``, in a thread. Errors of the disk are ignored, because writes report them."""
    with contextlib.suppress(OSError):
        load_pages(filesystem, extents)
