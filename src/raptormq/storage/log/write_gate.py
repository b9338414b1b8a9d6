"""Whether the store takes writes, and the error that a producer gets when it does not.

Two states: full (temporary; ends when there is room again, or there are descriptors or memory) and read-only for good
(a write or a flush failed, so nobody knows what the disk holds; only a restart with its recovery can tell). Reads go on
in both. The log of the process has a line when writes begin to be refused, and one when they go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NoReturn

from raptormq.errors import DiskFull, OutOfResources, StorageError, StoreReadOnly
from raptormq.logs import get_logger
from raptormq.storage.fs import is_exhausted, is_no_room

logger = get_logger(__name__)

SEGMENT = "segment"
WRITE = "write"
_CLEARED_BY_APPENDS = frozenset({SEGMENT, WRITE})
"""Sources whose state ends with a successful append; they cannot stop appends from trying."""
_LOG_INTERVAL_S = 60.0
"""On a disk with hardly any room small messages may be taken and large ones refused, by turns."""


class WriteGate:
    """Shared by everything that writes, in any thread; the first permanent refusal stays."""

    __slots__ = (
        "_clock",
        "_first_shortage",
        "_full",
        "_lock",
        "_logged",
        "_logged_at",
        "_read_only",
        "is_disk_full",
        "refusal",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: str | None = None
        """The refusal that the log has a line of, until it has one of its end."""
        self._logged_at = -_LOG_INTERVAL_S
        self._read_only: str | None = None
        self._full: dict[str, OutOfResources] = {}
        self._first_shortage: OutOfResources | None = None
        """The first of them."""
        self._lock = threading.Lock()
        self.is_disk_full = False
        """Whether room on the disk would help."""
        self.refusal: str | None = None
        """Why writes are refused; None while they are not."""

    def check(self) -> None:
        """Raise the error of the state that the store is in, unless only trying can tell whether it is over.

        Raises:
            StoreReadOnly: a write or flush failed earlier.
            OutOfResources: there is no room, or something else is used up.
        """
        if self.refusal is not None and (self._read_only or not self._full.keys() <= _CLEARED_BY_APPENDS):
            raise self.error()

    def error(self) -> StorageError:
        """Return the error of the current refusal."""
        if self._read_only:
            return StoreReadOnly(self._read_only)
        wanting = self._first_shortage
        return DiskFull("no space left") if wanting is None else type(wanting)(str(wanting))

    @property
    def is_paused(self) -> bool:
        """Whether writes are refused for now."""
        return self.refusal is not None and not self._read_only

    def is_full(self, source: str) -> bool:
        """Whether ``source`` has found no room."""
        return source in self._full

    def set_full(self, source: str, reason: str) -> None:
        """Refuse writes until ``source`` (who found out) calls :meth:`clear_full`."""
        self.set_exhausted(source, DiskFull(reason))

    def set_exhausted(self, source: str, error: OutOfResources) -> None:
        """The same, for want of whatever ``error`` says."""
        with self._lock:
            self._full[source] = error
            self._update()

    def clear_full(self, source: str) -> None:
        """``source`` has room again."""
        if source in self._full:
            with self._lock:
                self._full.pop(source, None)
                self._update()

    def set_read_only(self, reason: str) -> None:
        """Refuse writes until the store is opened again."""
        with self._lock:
            self._read_only = self._read_only or reason
            self._update()

    def _update(self) -> None:
        self._first_shortage = next(iter(self._full.values()), None)
        self.is_disk_full = any(isinstance(each, DiskFull) for each in self._full.values())
        self.refusal = self._read_only or (None if self._first_shortage is None else str(self._first_shortage))
        self._log_change()

    def _log_change(self) -> None:
        """Log what has changed. A refusal that begins soon after one that was told of is told of when it lasts: who
        found it out says so again and again.
        """
        if self._read_only:
            if self._logged != self._read_only:
                logger.warning("no messages are taken until the broker is started again: %s", self._read_only)
            self._logged = self._read_only
        elif self.refusal is None:
            if self._logged is not None:
                logger.warning("messages are taken again")
            self._logged = None
        elif self._logged is None and (now := self._clock()) - self._logged_at >= _LOG_INTERVAL_S:
            what = "there is no room" if self.is_disk_full else "something is used up"
            logger.warning("no messages are taken while %s: %s", what, self.refusal)
            self._logged, self._logged_at = self.refusal, now

    def fail(self, source: str, what: str, error: OSError) -> NoReturn:
        """Turn a failed write into the store's error and state; ``what`` says what could not be done.

        Raises:
            DiskFull: no room; the state is full on behalf of ``source``.
            OutOfResources: no descriptor or memory; the same.
            StoreReadOnly: anything else; the state is read-only.
        """
        reason = f"{what}: {error.strerror or error}"
        if is_no_room(error):
            self.set_full(source, reason)
        elif is_exhausted(error):
            self.set_exhausted(source, OutOfResources(reason))
        else:
            self.set_read_only(reason)
        raise self.error() from error
