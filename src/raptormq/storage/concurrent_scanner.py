"""Walks the log in blocks of 4 MiB that other processes parse, and puts them back in order: the concurrent build of
queues and index (``enableBuildConsumeQueueConcurrently``; Apache RocketMQ ``ConcurrentReputMessageService``).

Only plain runs of valid records go that way. The end of a segment, damage and the end of the log are left to
:class:`~raptormq.storage.log_scanner.LogScanner`, batch by batch, so that both walks find the same records and report
the same damage. Processes and not threads, because a thread that parses holds the interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager

from raptormq.logs import get_logger
from raptormq.storage.block_parsing import ParsedBlock, parse_block
from raptormq.storage.commit_log import CommitLog
from raptormq.storage.log_batch import AppendResult
from raptormq.storage.log_scanner import WINDOW_BYTES, DamagedRange, LogScanner

logger = get_logger(__name__)

WORTH_BYTES = 16 * WINDOW_BYTES
"""This much of a log is walked before processes have started."""
_MAX_PROCESSES = 8
_NO_PROCESSES = BrokenExecutor, OSError, ImportError, NotImplementedError
"""One was killed; there is no room for another, or the machine has no semaphores."""
_AHEAD = 2
"""Blocks under way per process: one is parsed while the next one waits."""


@contextmanager
def parsing_processes() -> Iterator[tuple[Executor, int]]:
    """Give processes, one for each CPU up to 8, and their number; they end with the block."""
    count = min(_MAX_PROCESSES, len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(count, context, initializer=_end_with_parent)
    try:
        yield executor, count
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Let this process end when the one that waits for its work is killed; it would wait for more for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class ConcurrentScanner:
    """One walk from an offset to the end of the log, with the outcome of a :class:`LogScanner`."""

    def __init__(self, log: CommitLog, start: int) -> None:
        self._scanner = LogScanner(log, start)
        self._alone_until = start + WORTH_BYTES
        self._under_way: deque[tuple[int, int, Future[ParsedBlock]]] = deque()

    @property
    def end_offset(self) -> int:
        """Where the walk is; the end of the log when it is over."""
        return self._scanner.end_offset

    @property
    def damaged(self) -> list[DamagedRange]:
        """What was stepped over."""
        return self._scanner.damaged

    def batches(self) -> Iterator[AppendResult]:
        """Yield all records from ``end_offset`` on; ``queues`` is left for the caller to fill in."""
        while self._scanner.end_offset < self._alone_until:
            batch = next(self._scanner.batches(), None)
            if batch is None:
                return
            yield batch
        try:
            with parsing_processes() as (executor, count):
                while True:
                    yield from self._plain_batches(executor, _AHEAD * count)
                    batch = next(self._scanner.batches(), None)
                    if batch is None:
                        return
                    yield batch
        except _NO_PROCESSES as error:  # a disk that cannot be read tells so again
            logger.warning("no processes parse the log any more (%s); the rest is parsed in this one", error)
        yield from self._scanner.batches()

    def _plain_batches(self, executor: Executor, most: int) -> Iterator[AppendResult]:
        """Yield what the processes parse, as far as there is nothing but valid records."""
        self._under_way.clear()
        ahead = self._scanner.end_offset
        while True:
            while len(self._under_way) < most and (data := self._scanner.plain_block(ahead)):
                self._under_way.append((ahead, len(data), executor.submit(parse_block, data, ahead)))
                ahead += len(data)
            if not self._under_way:
                return
            offset, size, future = self._under_way.popleft()
            batch = _batch(future.result(), offset)
            self._scanner.end_offset = batch.end_offset
            if batch.sizes:
                yield batch
            if batch.end_offset < offset + size:
                return


def _batch(block: ParsedBlock, offset: int) -> AppendResult:
    batch = AppendResult(block.records(), offset, block.store_timestamps)
    batch.sizes = list(block.sizes)
    batch.queue_offsets = list(block.queue_offsets)
    place = offset
    for size in block.sizes:
        batch.physical_offsets.append(place)
        place += size
    batch.end_offset = place
    return batch
