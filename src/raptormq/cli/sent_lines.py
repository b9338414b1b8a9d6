"""Tracks the sent lines of an input while several batches are in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SentLines:
    """Counts the lines that brokers have stored, and tracks those that may be stored.

    All batches of a read complete before the next read. The batches of a read start in order.
    """

    def __init__(self) -> None:
        self.read = 0
        """Number of lines that were read."""
        self.empty = 0
        self.messages = 0
        """Number of lines that brokers have stored."""
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def begin(self, lines: int) -> None:
        """Start a read of ``lines`` lines. All earlier lines are complete."""
        self.read += lines
        self._done.clear()

    @contextmanager
    def sending(self, first_line: int, messages: int) -> Iterator[None]:
        """Track a batch that the block sends. After a failure, the batch may have been stored."""
        self._open.add(first_line)
        yield
        self._open.remove(first_line)
        self._done[first_line] = messages
        self.messages += messages

    def known(self) -> str:
        """Return a text with the progress, so that the user can continue with the remaining lines."""
        if not self._open:
            return f"sent messages: {self.messages}"
        if not self.messages:
            return "no line was confirmed, some may have been sent"
        first = min(self._open)
        behind = sum(messages for line, messages in self._done.items() if line > first)
        also = f", and {behind} messages of later lines" if behind else ""
        return f"all lines before line {first} are sent ({self.messages - behind} messages){also}; more may be sent"
