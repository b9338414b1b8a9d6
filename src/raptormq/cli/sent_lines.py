"""Tracks which lines of an input have been sent while several batches are in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SentLines:
    """Counts the lines that brokers have stored, and those that may be stored.

    All batches of a read complete before the next read begins; within a read they start in order.
    """

    def __init__(self) -> None:
        self.read = 0
        """Lines read so far."""
        self.empty = 0
        self.messages = 0
        """Lines that brokers have stored."""
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def begin(self, lines: int) -> None:
        """Start a read: all earlier lines are complete."""
        self.read += lines
        self._done.clear()

    @contextmanager
    def sending(self, first_line: int, messages: int) -> Iterator[None]:
        """Send a batch in the block. After a failure it is unknown whether a broker stored it."""
        self._open.add(first_line)
        yield
        self._open.remove(first_line)
        self._done[first_line] = messages
        self.messages += messages

    def known(self) -> str:
        """Return how far the input was sent, so that the user can continue from there."""
        if not self._open:
            return f"messages sent before that: {self.messages}"
        if not self.messages:
            return "no line is known to be sent, some may have been"
        first = min(self._open)
        behind = sum(messages for line, messages in self._done.items() if line > first)
        also = f", also {behind} messages behind it" if behind else ""
        return f"all lines before line {first} are sent ({self.messages - behind} messages){also}, and more may be"
