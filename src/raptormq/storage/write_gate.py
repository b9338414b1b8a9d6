"""Whether the store takes writes, and the error that a producer gets when it does not.

Two states: full (temporary; ends when room is found) and read-only for good (a write or a flush failed, so nobody
knows what the disk holds; only a restart with its recovery can tell). Reads go on in both.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from raptormq.errors import DiskFull, StorageError, StoreReadOnly
from raptormq.storage.filesystem import is_no_room

SEGMENT = "segment"
WRITE = "write"
_FOUND_OUT_BY_APPENDS = frozenset({SEGMENT, WRITE})
"""Sources whose state ends with a successful append; they cannot stop appends from trying."""


class WriteGate:
    """Shared by everything that writes, in any thread; the first permanent refusal stays."""

    __slots__ = ("_full", "_lock", "_read_only", "refusal")

    def __init__(self) -> None:
        self._read_only: str | None = None
        self._full: dict[str, str] = {}
        self._lock = threading.Lock()
        self.refusal: str | None = None
        """Why writes are refused; None while they are not."""

    def check(self) -> None:
        """Raise the error of the state that the store is in, unless only trying can tell whether it is over.

        Raises:
            StoreReadOnly: a write or flush failed earlier.
            DiskFull: there is no room.
        """
        if self.refusal is not None and (self._read_only or not self._full.keys() <= _FOUND_OUT_BY_APPENDS):
            raise self.error()

    def error(self) -> StorageError:
        """Return the error of the current refusal."""
        return StoreReadOnly(self._read_only) if self._read_only else DiskFull(self.refusal or "no space left")

    def is_full(self, source: str) -> bool:
        """Whether ``source`` has found no room."""
        return source in self._full

    def set_full(self, source: str, reason: str) -> None:
        """Refuse writes until ``source`` (who found out) calls :meth:`clear_full`."""
        with self._lock:
            self._full[source] = reason
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
        self.refusal = self._read_only or next(iter(self._full.values()), None)

    def fail(self, source: str, what: str, error: OSError) -> NoReturn:
        """Turn a failed write into the store's error and state; ``what`` says what could not be done.

        Raises:
            DiskFull: no room; the state is full on behalf of ``source``.
            StoreReadOnly: anything else; the state is read-only.
        """
        reason = f"{what}: {error.strerror or error}"
        if is_no_room(error):
            self.set_full(source, reason)
        else:
            self.set_read_only(reason)
        raise self.error() from error
