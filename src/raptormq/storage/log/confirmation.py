"""Decides when appended records may be answered and shown to consumers (Apache RocketMQ ``confirmOffset``,
``CommitLog.handleDiskFlushAndHA``).

::

    log:  0 ............ confirmed offset ............ end offset
          answered and in the queues    appended, neither answered nor visible

Under ASYNC_FLUSH a record is confirmed when it is appended, under SYNC_FLUSH when the disk has it. Both the answer to
the producer and the visibility to consumers wait for the same bound: a consumer that has seen a record which a power
cut takes away could commit an offset that another message gets.

This is the only place that knows the rule. Replication adds a second bound here (what the replicas in sync have) and
two more failures (this broker no longer leads; the log was truncated below the offset); callers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.errors import StorageError
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.offset_waiters import OffsetCallback, OffsetWaiters


class Confirmation:
    """The confirmed offset of ``log`` and the callbacks that wait for it; used from the event loop only."""

    def __init__(self, log: CommitLog, *, waits_for_flush: bool) -> None:
        self._log = log
        self._waits_for_flush = waits_for_flush
        self._waiters = OffsetWaiters()
        self._failure: StorageError | None = None
        self._listener: Callable[[], object] | None = None

    @property
    def offset(self) -> int:
        """Everything below it is confirmed."""
        return self._log.flushed_offset if self._waits_for_flush else self._log.end_offset

    def listen(self, listener: Callable[[], object] | None) -> None:
        """Call ``listener`` whenever something other than an append has moved the confirmed offset."""
        self._listener = listener

    def on_confirmed(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` once everything below ``end_offset`` is confirmed, or with the error because of which it
        never will be; at once where that is known already.
        """
        if end_offset <= self.offset:
            callback(None)
        elif self._failure is not None:
            callback(self._failure)
        else:
            self._waiters.add(end_offset, callback)

    def flushed(self, failure: StorageError | None) -> None:
        """The log is durable further than before or, with ``failure``, never will be."""
        if self._waits_for_flush:
            self._failure = failure
            self._waiters.complete(self.offset, failure)
            if self._listener is not None:
                self._listener()

    def close(self) -> None:
        """Fail whatever is not confirmed by now and never will be, because the log is closed."""
        self._listener = None
        if self._failure is None:
            self._failure = StorageError("the store is closed")
        self._waiters.complete(self.offset, self._failure)
