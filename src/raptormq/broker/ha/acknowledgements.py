"""Acknowledgements of slaves that a SYNC_MASTER waits for (``GroupTransferService``, ``isSlaveOK``).

A message is copied when ``needed`` slaves have reported a log end at or after its end. If fewer slaves are in sync, the
master does not wait: it stores the message and answers SLAVE_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.errors import SlaveNotAvailable
from raptormq.storage.log import OffsetCallback, OffsetWaiters

_NO_SLAVE = "the message is stored on the master, but too few slaves are in sync"


class SlaveAcknowledgements:
    """Tracks the reported log ends of the slaves and completes the waiting callbacks."""

    def __init__(self, needed: int, max_gap_bytes: int, end_offset: Callable[[], int]) -> None:
        """Create the tracker.

        Args:
            needed: number of slaves that must have a message; at least 1.
            max_gap_bytes: a slave counts as in sync if its lag is less than this.
            end_offset: returns the end of the master's log.
        """
        self._needed = needed
        self._max_gap_bytes = max_gap_bytes
        self._end_offset = end_offset
        self._ends: dict[Any, int] = {}
        self._waiters = OffsetWaiters()
        self.copied_offset = 0
        """At least ``needed`` slaves have the log up to this offset."""

    def reported(self, slave: Any, end: int) -> None:
        """Record that ``slave`` (any key) has the log up to ``end``."""
        self._ends[slave] = end
        if len(self._ends) >= self._needed:
            copied = sorted(self._ends.values())[-self._needed]
            if copied > self.copied_offset:
                self.copied_offset = copied
                self._waiters.complete(copied)

    def gone(self, slave: Any) -> None:
        """Remove a disconnected slave. Fails the waiting callbacks if too few slaves are left."""
        self._ends.pop(slave, None)
        if not self._is_enough():
            self._waiters.complete(self.copied_offset, SlaveNotAvailable(_NO_SLAVE))

    def _is_enough(self) -> bool:
        least = self._end_offset() - self._max_gap_bytes
        return sum(end > least for end in self._ends.values()) >= self._needed

    def on_copied(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` with None when the log up to ``end_offset`` is copied, or with SlaveNotAvailable when too
        few slaves are in sync. The callback may run before this method returns.
        """
        if end_offset <= self.copied_offset:
            callback(None)
        elif self._is_enough():
            self._waiters.add(end_offset, callback)
        else:
            callback(SlaveNotAvailable(_NO_SLAVE))

    def close(self) -> None:
        """Fail all waiting callbacks, because the broker stops."""
        self._waiters.complete(self.copied_offset, SlaveNotAvailable(_NO_SLAVE))
