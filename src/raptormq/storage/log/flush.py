"""Flushes the log: at intervals (ASYNC_FLUSH), or immediately for all waiting callers (SYNC_FLUSH, group commit).

One fdatasync serves all appends that happened before it started. Appends during a flush share the next one (Apache
RocketMQ ``GroupCommitService``, ``FlushRealTimeService``). A flush starts when as many bytes have arrived as the
previous flush wrote, or after a short wait: producers that were answered together send again together, and a flush for
each of them would cost more than the wait (PostgreSQL: ``commit_delay``). A single producer never waits.

The flush runs in its own thread, callbacks run on the event loop. A failed fdatasync is never repeated, because the
kernel may report the lost pages as clean afterwards: the store is read-only until it is opened again. The same applies
if the thread ends with an unexpected exception, since writes that are never flushed must not be accepted. A lack of
descriptors is not a failure: the flush has not started, writes are refused until one succeeds, and it is repeated at
every interval.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from raptormq.errors import OutOfResources, StorageError
from raptormq.logs import get_logger
from raptormq.storage.fs import is_out_of_descriptors
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.offset_waiters import OffsetCallback, OffsetWaiters, wait_for_offset
from raptormq.storage.log.write_gate import WriteGate

logger = get_logger(__name__)

_FLUSH = "flush"

GROUP_COMMIT_WAIT_S = 0.004
"""Maximum time in seconds that a flush waits for as many bytes as the previous flush wrote."""


class FlushService:
    """Flushes ``log``: in its thread after :meth:`start`, and in every call of :meth:`flush`."""

    def __init__(
        self,
        log: CommitLog,
        gate: WriteGate,
        *,
        sync: bool,
        interval_ms: int,
        last_timestamp: Callable[[], int],
        flushed: OffsetCallback,
    ) -> None:
        """``flushed`` is called on the loop after each flush that made something durable, and with the error after a
        permanent failure.
        """
        self._log = log
        self._gate = gate
        self._sync = sync
        self._interval_s = interval_ms / 1000
        self._last_timestamp = last_timestamp
        self._flushed = flushed
        self._waiters = OffsetWaiters()
        self._failure: StorageError | None = None
        self._deferred: StorageError | None = None
        """Why the last flush could not start."""
        self._wake = threading.Event()
        self._group_complete = threading.Event()
        self._group_bytes = 0  # size of the last flush
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.flushed_timestamp = 0
        """Records stored up to this time (ms) are durable."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread. Callbacks run on ``loop``."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="log-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; unflushed bytes are left to :meth:`flush`."""
        if self._thread is not None:
            self._stopping = True
            self._wake.set()
            self._group_complete.set()
            self._thread.join()
            self._thread = None

    def appended(self) -> None:
        """Notify the service that the log has grown."""
        if self._sync:
            if self._is_group_complete():
                self._group_complete.set()
            self._wake.set()

    def _on_flushed(self, end_offset: int, callback: OffsetCallback) -> None:
        if end_offset <= self._log.flushed_offset:
            callback(None)
        elif self._failure is not None:
            callback(self._failure)
        else:
            self._waiters.add(end_offset, callback)
            self._wake.set()

    async def wait_flushed(self, end_offset: int) -> None:
        """Return when everything below ``end_offset`` is durable, under ASYNC_FLUSH too.

        Raises:
            StorageError: the bytes will never be durable.
        """
        await wait_for_offset(self._on_flushed, end_offset)

    def flush(self) -> None:
        """Flush in this thread, and call the callbacks that wait for it: on the loop, or in this thread before
        :meth:`start` and after :meth:`stop`.

        Raises:
            StorageError: this flush or an earlier one failed.
            OutOfResources: there is no descriptor; the call can be repeated.
        """
        self._flush_once()
        if self._thread is None:
            self._complete()
        else:  # this may be a worker thread
            self._notify_loop()
        if (error := self._failure or self._deferred) is not None:
            raise error

    def _flush_once(self) -> bool:
        if self._failure is not None:
            return False
        timestamp, before = self._last_timestamp(), self._log.flushed_offset
        try:
            self._log.flush()
        except OSError as error:
            if is_out_of_descriptors(error):
                self._defer(error)
                return False
            self._fail(error.strerror or str(error))
            return True
        if self._deferred is not None:
            self._deferred = None
            self._gate.clear_full(_FLUSH)
        self.flushed_timestamp = max(self.flushed_timestamp, timestamp)
        if self._log.flushed_offset == before:
            return False
        self._group_bytes = self._log.flushed_offset - before
        return True

    def _defer(self, error: OSError) -> None:
        self._deferred = OutOfResources(f"the commit log cannot be flushed: {error.strerror or error}")
        self._gate.set_exhausted(_FLUSH, self._deferred)

    def _fail(self, reason: str) -> None:
        self._gate.set_read_only(f"the commit log could not be flushed: {reason}")
        self._failure = self._gate.error()

    def _is_group_complete(self) -> bool:
        return self._log.end_offset - self._log.flushed_offset >= self._group_bytes

    def _wait_for_group(self) -> None:
        self._group_complete.clear()
        if self._log.end_offset > self._log.flushed_offset and not self._is_group_complete() and not self._stopping:
            self._group_complete.wait(GROUP_COMMIT_WAIT_S)

    def _run(self) -> None:
        try:
            self._flush_until_stopped()
        except Exception as error:
            logger.exception("the flush thread of the commit log failed")
            self._fail(f"{type(error).__name__}: {error}")
            self._notify_loop()

    def _flush_until_stopped(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if self._sync:
                self._wait_for_group()
            if self._flush_once() and not self._stopping:
                self._notify_loop()

    def _notify_loop(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._complete)
        except RuntimeError:
            if not self._loop.is_closed():  # else the program is shutting down and nothing waits
                raise

    def _complete(self) -> None:
        self._waiters.complete(self._log.flushed_offset, self._failure)
        self._flushed(self._failure)
