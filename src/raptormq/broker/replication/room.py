"""The wait of a member whose disk has no room: what it cannot write, and when it tries again.

Every attempt that fails makes the member restart from its disk, so a member that retried every second would be absent
from its group for most of the time. The pauses grow from :data:`FIRST_MS` to :data:`MAX_MS`. A lack of descriptors or
memory counts like one of room.
"""

from __future__ import annotations

from raptormq.errors import OutOfResources, StorageError
from raptormq.storage.fs import is_exhausted

FIRST_MS = 1_000
"""Pause in ms after the first failed attempt."""
MAX_MS = 30_000
"""Maximum pause in ms."""


class Room:
    """The room for one kind of writes of a member."""

    def __init__(self) -> None:
        self.lack = ""
        """The error of the last attempt; empty if there is room."""
        self.due_ms = 0
        """Time of the next attempt; 0 if there is room."""
        self._pause_ms = 0

    def failed(self, error: OSError | StorageError, now_ms: int) -> None:
        """Handle a failed attempt. Errors with another cause are ignored."""
        if isinstance(error, OSError) and not is_exhausted(error):
            return
        if isinstance(error, StorageError) and not isinstance(error, OutOfResources):
            return
        self.lack = str(error)
        self._pause_ms = min(max(FIRST_MS, 2 * self._pause_ms), MAX_MS)
        self.due_ms = now_ms + self._pause_ms

    def written(self) -> None:
        """Handle a successful attempt."""
        self.lack, self.due_ms, self._pause_ms = "", 0, 0
