"""Has the pages that the log is about to grow into brought into memory before they are written to.

A write into a page that is not in memory waits for the kernel to find one and, on a virtual machine, for the host
to back it: 33 KiB take 13 to 130 us instead of 6. The event loop would spend more on that than on everything else it
does with a batch of messages, so a thread reads ahead of the log's end instead; as nothing was ever written there, no
disk is waited for. How far ahead grows with the speed of the log, so that a broker with little to do keeps little.

Pages that :mod:`~raptormq.storage.maintenance.page_eviction` has given back are as good: while the log grows by as much
as they were, nothing is read, which saves their being filled with zeros.
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
"""More is read as soon as so much is used up: on a host that has to back each page, large pieces would keep a CPU busy
for so long that clients notice."""
MAX_SKIPPED_BYTES = 512 << 20
"""Of pages that were given back; what lies free for long may go to another process, or to the host."""
_FAST_S = 0.1
"""A log that takes its next step within that time is read further ahead."""
_NEVER = sys.maxsize


class PageWarmer:
    """Reads ahead of the end of ``log``; nothing happens before :meth:`start`. Belongs to one event loop."""

    def __init__(self, filesystem: FileSystem, log: CommitLog, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        self._filesystem = filesystem
        self._log = log
        self._clock = clock
        self._runner: Executor | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted_at = _NEVER  # the end of the log at which more is wanted
        self._skip_until = 0
        self._warm_to = 0
        self._ahead = LEAST_AHEAD_BYTES
        self._last = 0.0

    def start(self, executor: Executor) -> None:
        """Read ahead from now on, in a thread of ``runner``."""
        self._runner = executor
        self._wanted_at = 0

    def stop(self) -> None:
        """Begin nothing more."""
        self._wanted_at = _NEVER
        if self._task is not None:
            self._task.cancel()

    def skip_ahead(self, size: int) -> None:
        """Read nothing while the log grows by ``size`` bytes: so much was given back to the kernel just now."""
        end = self._log.end_offset
        self._skip_until = min(max(self._skip_until, end) + size, end + MAX_SKIPPED_BYTES)

    def appended(self) -> None:
        """The log has grown; from the loop's thread."""
        if self._log.end_offset >= max(self._wanted_at, self._skip_until):
            self._wanted_at = _NEVER
            self._task = asyncio.get_running_loop().create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        assert self._runner is not None
        self._adapt()
        begin = max(self._warm_to, self._log.end_offset)
        end = max(self._log.end_offset + self._ahead, begin)  # the cushion may have been larger
        extents = self._log.extents(begin, end)
        self._warm_to = begin + sum(extent.size for extent in extents)
        try:
            await self._runner.run(_read, self._filesystem, extents)
        except Exception:  # no thread can be started, no memory: writing is only slower without
            logger.exception("cannot read ahead of the log")
            self._wanted_at = self._log.end_offset + MAX_AHEAD_BYTES
            return
        is_short = self._warm_to < end  # the next file is not there yet
        self._wanted_at = self._warm_to if is_short else end - self._ahead + min(self._ahead // 2, STEP_BYTES)

    def _adapt(self) -> None:
        now = self._clock()
        is_fast = now - self._last < _FAST_S
        self._last = now
        self._ahead = min(self._ahead * 2, MAX_AHEAD_BYTES) if is_fast else max(self._ahead // 2, LEAST_AHEAD_BYTES)


def _read(filesystem: FileSystem, extents: list[Extent]) -> None:
    """In a thread. A disk that fails is for the writes to tell of."""
    with contextlib.suppress(OSError):
        load_pages(filesystem, extents)
