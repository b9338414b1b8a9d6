"""A clock for brokers under test: the time of day, which a test can hold and move.

What has to happen before a time limit is done while the clock is held, what has to happen after it once the clock was
moved: neither depends on how fast the machine is.
"""

from __future__ import annotations

from raptormq.storage.store import now_ms


class Clock:
    """Milliseconds since 1970; runs from the start."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._held_at: int | None = None

    def __call__(self) -> int:
        return (now_ms() if self._held_at is None else self._held_at) + self._ahead_ms

    def hold(self) -> int:
        """Stand still from now on; returns where."""
        self._held_at = now_ms()
        return self()

    def run(self) -> None:
        """Show the time of day again, and what was added to it."""
        self._held_at = None

    def move(self, ms: int) -> None:
        """Jump ahead, or back."""
        self._ahead_ms += ms
