"""Decides when appended records are acknowledged and visible to consumers (Apache RocketMQ ``confirmOffset``,
``CommitLog.handleDiskFlushAndHA``).

::

    log:  0 ............ confirmed offset ............ end offset
          acknowledged and in the queues    appended, neither acknowledged nor visible

Under ASYNC_FLUSH a record is confirmed when it is appended, under SYNC_FLUSH when it is durable. The response to the
producer and the visibility to consumers wait for the same offset: a consumer that has read a record which a power cut
removes could commit an offset that another message gets later.

In a replica the group confirms records (:meth:`Confirmation.confirm`), whether or not they are durable on this disk.
Callbacks of a replica also fail when the member is not the leader any more, because the log may be truncated below
their offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raptormq.errors import StorageError
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.offset_waiters import OffsetCallback, OffsetWaiters


class _Abandoned(NamedTuple):
    """Unconfirmed records of a former leader, which may be truncated: those that end in ``(begin, end]``."""

    begin: int
    end: int
    failure: StorageError


class Confirmation:
    """The confirmed offset of ``log`` and the callbacks that wait for it. Used from the event loop only."""

    def __init__(self, log: CommitLog, *, waits_for_flush: bool, is_replica: bool = False) -> None:
        self._log = log
        self._flushes_first = waits_for_flush
        self._waits_for_flush = waits_for_flush and not is_replica
        self._confirmed: int | None = 0 if is_replica else None
        """Offset that the group has confirmed; None without a group."""
        self._waiters = OffsetWaiters()
        self._failure: StorageError | None = None
        self._abandoned: _Abandoned | None = None
        self.leadership = 0
        """Number of calls of :meth:`abandon`. Records that were appended under a lower number may be truncated, and
        confirmed records of another leader may end beyond their offsets. An offset is therefore compared with the
        confirmed offset only while the number is that of the append.
        """
        self._listener: Callable[[], object] | None = None

    @property
    def offset(self) -> int:
        """The confirmed offset: everything below it is confirmed."""
        if self._confirmed is not None:
            return self._confirmed
        return self._log.flushed_offset if self._waits_for_flush else self._log.end_offset

    def listen(self, listener: Callable[[], object] | None) -> None:
        """Call ``listener`` whenever a flush or the group has advanced the confirmed offset, not after an append."""
        self._listener = listener

    def on_confirmed(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` with None when everything below ``end_offset`` is confirmed, or with the error that
        prevents it. If the result is known already, the callback is called immediately.
        """
        lost = self._abandoned
        if lost is not None and lost.begin < end_offset <= lost.end:
            callback(lost.failure)  # by now, records of another leader may be confirmed at these offsets
        elif end_offset <= self.offset:
            callback(None)
        elif self._failure is not None:
            callback(self._failure)
        else:
            self._waiters.add(end_offset, callback)

    def flushed(self, failure: StorageError | None) -> None:
        """Update the confirmed offset after a flush, or fail all waiting callbacks with ``failure``."""
        if self._waits_for_flush:
            self._failure = failure
            self._waiters.complete(self.offset, failure)
            if self._listener is not None:
                self._listener()

    def confirm(self, offset: int) -> None:
        """Record that the group has confirmed everything below ``offset``. A lower offset than before is ignored."""
        assert self._confirmed is not None, "only the log of a replica is confirmed by a group"
        if offset > self._confirmed:
            self._confirmed = offset
            self._waiters.complete(offset)
            if self._listener is not None:
                self._listener()

    def confirm_alone(self) -> None:
        """Confirm records by the flush mode of this disk from now on, as without a group."""
        self._confirmed = None
        self._waits_for_flush = self._flushes_first

    def abandon(self, failure: StorageError) -> None:
        """Fail all waiting callbacks with ``failure``, and those that are registered later for records that exist now.
        Records that are appended after :meth:`resume` can be confirmed.
        """
        self.leadership += 1
        self._abandoned = _Abandoned(self.offset, self._log.end_offset, failure)
        self._waiters.complete(self.offset, failure)

    def resume(self) -> None:
        """Stop failing callbacks after :meth:`abandon`, because this member is the leader from now on."""
        self._abandoned = None

    def notify(self) -> None:
        """Call the listener although the confirmed offset is unchanged, because its last call left work."""
        if self._listener is not None:
            self._listener()

    def close(self) -> None:
        """Fail all callbacks for offsets that are not confirmed, because the log is closed."""
        self._listener = None
        if self._failure is None:
            self._failure = StorageError("the store is closed")
        self._waiters.complete(self.offset, self._failure)
