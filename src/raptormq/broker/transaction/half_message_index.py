"""Index of open half messages, by offsets of the half queue and the op queue. Without I/O.

A start rebuilds the index from the half messages and ops after the saved progress. :attr:`HalfMessageIndex.progress` is
the progress to save: all half messages below its half offset are decided, and no op below its op offset decides a later
half message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from raptormq.broker.transaction.half_message import Producers


@dataclass(slots=True)
class OpenHalf:
    """State of an undecided half message. Times are in ms since 1970."""

    seen: int
    """Time at which the broker added the half message."""
    next_check_at: int = 0
    """The half message is not read before this time."""
    producers: Producers | None = None
    """The half message is checked before ``next_check_at`` if one of these producers is connected."""


class HalfMessageIndex:
    """Open half messages by their offset in the half queue."""

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.open: dict[int, OpenHalf] = {}
        """Open half messages in ascending order, including half messages whose decision is being written."""
        self._deciding: set[int] = set()
        """Halves whose decision is being written. They may not be visible yet."""
        self._seen_end = half_offset
        self._op_end = op_offset
        self._ops: deque[tuple[int, int]] = deque()
        self._decided_ahead: set[int] = set()
        self._places: dict[int, int] = {}
        """Current offset of a renewed half message, by each of its earlier offsets."""
        self._earlier: dict[int, tuple[int, ...]] = {}
        """Earlier offsets of a renewed half message, by its current offset."""
        self._copies: dict[int, int] = {}
        """Log offset of a renewed half message, by its current offset. The copy may not be in the queue yet."""
        self._unannounced: set[int] = set()
        """Current offsets that were not sent to any producer."""

    def add_half(self, offset: int, now: int) -> None:
        """Add a half message that has become visible. Callers add half messages in ascending order."""
        self._seen_end = offset + 1
        if offset in self._decided_ahead:
            self._decided_ahead.remove(offset)
        else:
            self.open[offset] = OpenHalf(now)

    def add_op(self, op_offset: int, halves: list[int]) -> None:
        """Add an op that has become visible, and remove the half messages that it decides."""
        self._op_end = op_offset + 1
        self._ops.append((op_offset, max(halves, default=-1)))
        for half in halves:
            self.remove(half)

    def remove(self, half: int) -> None:
        """Remove a decided half message and its earlier offsets."""
        self.mark_decided(half)
        self._unannounced.discard(half)
        self._copies.pop(half, None)
        for earlier in self._earlier.pop(half, ()):
            del self._places[earlier]

    def begin_decision(self, half: int) -> None:
        """Lock a half message while its decision or its renewed copy is being written.

        The write may fail, so :attr:`progress` treats the half message as open. The half message may not be visible
        yet.
        """
        self._deciding.add(half)

    def mark_decided(self, half: int) -> None:
        """Mark a half message as decided or renewed. The half message may not be visible yet."""
        self._deciding.discard(half)
        if self.open.pop(half, None) is None and half >= self._seen_end:
            self._decided_ahead.add(half)

    def cancel_decision(self, half: int, now: int) -> None:
        """Unlock a half message whose decision could not be written."""
        self._deciding.discard(half)
        if half in self.open:
            self.open[half] = OpenHalf(now)

    def known_offsets(self, half: int) -> tuple[int, ...]:
        """Return all offsets of an open half message that were sent to producers.

        Other offsets are not kept, because a half message is renewed hundreds of times if its producers are
        disconnected for days.
        """
        earlier = self._earlier.get(half, ())
        return earlier if half in self._unannounced else (*earlier, half)

    def move(self, earlier: tuple[int, ...], to: int, copy: int, *, announced: bool) -> None:
        """Record the renewal of a half message.

        Args:
            earlier: the :meth:`known_offsets` of the half message.
            to: new offset in the half queue.
            copy: log offset of the copy.
            announced: whether the new offset is sent to a producer.
        """
        self._earlier[to] = earlier
        self._copies[to] = copy
        for place in earlier:
            self._places[place] = to
        if not announced:
            self._unannounced.add(to)

    def current_offset(self, half: int) -> int:
        """Return the current offset of the half message that had the offset ``half`` earlier."""
        return self._places.get(half, half)

    def log_offset(self, half: int) -> int | None:
        """Return the log offset of a half message that was renewed since the start, or None for another half
        message.
        """
        return self._copies.get(half)

    def is_open(self, half: int) -> bool:
        """Return whether a decision about a half message is accepted. The half message may not be visible yet."""
        is_known = half in self.open or (half >= self._seen_end and half not in self._decided_ahead)
        return is_known and half not in self._deciding

    def undecided(self, half: int) -> OpenHalf | None:
        """Return the state of a visible open half message, or None if it is decided or its decision is being
        written.
        """
        return None if half in self._deciding else self.open.get(half)

    @property
    def _first_open(self) -> int:
        return next(iter(self.open), self._seen_end)

    def discard_ops(self) -> Iterator[int]:
        """Discard the ops that a restart need not read, and yield their offsets.

        There may be millions of them after an old half message is decided, so the caller can pause between two steps.
        Half messages and ops may be added during a pause.
        """
        half = self._first_open
        while self._ops and self._ops[0][1] < half:
            yield self._ops.popleft()[0]

    @property
    def progress(self) -> tuple[int, int]:
        """Half offset and op offset from which a start rebuilds the index."""
        return self._first_open, self._ops[0][0] if self._ops else self._op_end
