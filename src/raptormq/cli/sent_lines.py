"""What is known of the lines of an input while they are sent, several batches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SentLines:
    """Counts what brokers have for sure, and what they may have.

    All batches of a read are done before the next read begins; within it they are begun in order.
    """

    def __init__(self) -> None:
        self.read = 0
        """Lines of the input so far."""
        self.empty = 0
        self.messages = 0
        """Lines that brokers have."""
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def begin(self, lines: int) -> None:
        """Count a read: all lines before it are done."""
        self.read += lines
        self._done.clear()

    @contextmanager
    def sending(self, first_line: int, messages: int) -> Iterator[None]:
        """Send a batch in the block; when that fails, nobody knows whether a broker has it."""
        self._open.add(first_line)
        yield
        self._open.remove(first_line)
        self._done[first_line] = messages
        self.messages += messages

    def known(self) -> str:
        """Return how far the input was sent, for whoever goes on from there."""
        if not self._open:
            return f"messages sent before that: {self.messages}"
        if not self.messages:
            return "no line is sent for sure, and some may be"
        first = min(self._open)
        behind = sum(messages for line, messages in self._done.items() if line > first)
        also = f", also {behind} messages behind it" if behind else ""
        return f"all lines before line {first} are sent ({self.messages - behind} messages){also}, and more may be"
