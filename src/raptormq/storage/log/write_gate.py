"""The state that decides whether the store accepts writes, and the error for a producer whose message is refused.

Two states refuse writes. Paused is temporary: it ends when there is disk space, a descriptor or memory again. Read-only
is permanent: a write or a flush failed, so the contents of the disk are unknown until a restart with a recovery. Reads
continue in both states. Each change is logged once.
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
RATIO = "ratio"
_CLEARED_BY_APPENDS = frozenset({SEGMENT, WRITE})
"""Sources whose shortage ends with a successful append. Appends are therefore attempted despite these shortages."""
_LOG_INTERVAL_S = 60.0
"""Minimum time in seconds between two logged refusals. An almost full disk may alternately accept small messages and
refuse large ones.
"""


class WriteGate:
    """The state of one store, shared by all writers in all threads. The first permanent refusal is kept."""

    __slots__ = (
        "_clock",
        "_closed",
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
        """The refusal that was logged, until its end is logged."""
        self._logged_at = -_LOG_INTERVAL_S
        self._closed: StorageError | None = None
        self._read_only: str | None = None
        self._full: dict[str, OutOfResources] = {}
        self._first_shortage: OutOfResources | None = None
        """The first entry of ``_full``."""
        self._lock = threading.Lock()
        self.is_disk_full = False
        """Whether disk space is among the exhausted resources."""
        self.refusal: str | None = None
        """Why writes are refused; None while they are accepted."""

    def check(self) -> None:
        """Raise the error of the current state. A shortage that only an append can end is ignored.

        Raises:
            StoreReadOnly: a write or flush failed earlier.
            OutOfResources: disk space or another resource is used up.
            StorageError: the gate is closed (:meth:`close`).
        """
        if self.refusal is not None and (
            self._read_only or self._closed is not None or not self._full.keys() <= _CLEARED_BY_APPENDS
        ):
            raise self.error()

    def check_disk(self) -> None:
        """Check that no write or flush has failed. A follower, whose gate is closed, calls this before it writes.

        Raises:
            StoreReadOnly: a write or flush failed earlier.
        """
        if self._read_only:
            raise StoreReadOnly(self._read_only)

    def error(self) -> StorageError:
        """Return the error of the current refusal."""
        if self._read_only:
            return StoreReadOnly(self._read_only)
        if self._closed is not None:
            return type(self._closed)(str(self._closed))
        wanting = self._first_shortage
        return DiskFull("no space left") if wanting is None else type(wanting)(str(wanting))

    def write_error(self) -> StorageError:
        """Return the error to raise after a failed write. A lack of resources takes precedence over the reason passed
        to :meth:`close`.
        """
        if self._closed is None or self._read_only or self._first_shortage is None:
            return self.error()
        return type(self._first_shortage)(str(self._first_shortage))

    @property
    def is_paused(self) -> bool:
        """Whether writes are refused for lack of resources, and may be accepted again."""
        return bool(self._full) and not self._read_only

    def close(self, reason: StorageError) -> None:
        """Refuse appends with ``reason`` until :meth:`open`, because this member of the group is not the leader."""
        with self._lock:
            self._closed = reason
            self._update()

    def open(self) -> None:
        """Accept appends again, unless something else prevents them."""
        with self._lock:
            self._closed = None
            self._update()

    def is_full(self, source: str) -> bool:
        """Whether ``source`` has reported a lack of resources."""
        return source in self._full

    def set_full(self, source: str, reason: str) -> None:
        """Refuse writes until ``source``, which found the disk full, calls :meth:`clear_full`."""
        self.set_exhausted(source, DiskFull(reason))

    def set_exhausted(self, source: str, error: OutOfResources) -> None:
        """Refuse writes for lack of the resource that ``error`` names, until ``source`` calls :meth:`clear_full`."""
        with self._lock:
            self._full[source] = error
            self._update()

    def clear_full(self, source: str) -> None:
        """Record that ``source`` has resources again."""
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
        shortage = None if self._first_shortage is None else str(self._first_shortage)
        self.refusal = self._read_only or (shortage if self._closed is None else str(self._closed))
        self._log_change(shortage)

    def _log_change(self, shortage: str | None) -> None:
        """Log a change of the state. A refusal that begins soon after a logged one is logged only if it lasts. Sources
        report a lasting shortage repeatedly.
        """
        if self._read_only:
            if self._logged != self._read_only:
                logger.warning("no messages are accepted until the broker is restarted: %s", self._read_only)
            self._logged = self._read_only
        elif shortage is None:
            if self._logged is not None:
                logger.warning("messages are accepted again")
            self._logged = None
        elif self._logged is None and (now := self._clock()) - self._logged_at >= _LOG_INTERVAL_S:
            what = "the disk is full" if self.is_disk_full else "a resource is exhausted"
            logger.warning("no messages are accepted while %s: %s", what, shortage)
            self._logged, self._logged_at = shortage, now

    def fail(self, source: str, what: str, error: OSError) -> NoReturn:
        """Change the state after a write failed with ``error``, and raise the error of the state. ``what`` names the
        failed operation.

        Raises:
            DiskFull: the disk is full. Writes are refused until ``source`` calls :meth:`clear_full`.
            OutOfResources: there is no descriptor or no memory. Writes are refused likewise.
            StoreReadOnly: any other error. The store is read-only.
        """
        reason = f"{what}: {error.strerror or error}"
        if is_no_room(error):
            self.set_full(source, reason)
        elif is_exhausted(error):
            self.set_exhausted(source, OutOfResources(reason))
        else:
            self.set_read_only(reason)
        raise self.write_error() from error
