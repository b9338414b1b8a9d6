"""A wall clock for brokers under test, which a test can stop and move.

A test stops the clock before actions that must precede a time limit of the broker, and moves it past the limit
afterwards. The result does not depend on the speed of the machine.
"""

from __future__ import annotations

from raptormq.storage.store import now_ms


class Clock:
    """Time in milliseconds since 1970. The clock runs at first."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._held_at: int | None = None

    def __call__(self) -> int:
        return (now_ms() if self._held_at is None else self._held_at) + self._ahead_ms

    def hold(self) -> int:
        """Stop the clock. Return its time."""
        self._held_at = now_ms()
        return self()

    def run(self) -> None:
        """Continue with the time of day, without the offset of `move`."""
        self._held_at = None

    def move(self, ms: int) -> None:
        """Move the clock forward or back."""
        self._ahead_ms += ms
