"""Which half messages are open: pure bookkeeping over the offsets of the half queue and the op queue.

A start rebuilds it: it adds every half and every op after the saved progress. :attr:`HalfMessageIndex.progress` is what
may be saved: every half before its half offset is decided, and no op before its op offset names a later half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from raptormq.broker.transaction.half_message import Producers


@dataclass(slots=True)
class OpenHalf:
    """State of an undecided half; times in milliseconds since 1970."""

    seen: int
    """When the broker first saw it."""
    next_check_at: int = 0
    """The half need not be read before this time."""
    producers: Producers | None = None
    """If one of these producers is connected, the half is checked before ``next_check_at``."""


class HalfMessageIndex:
    """Open halves by their offset in the half queue."""

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.open: dict[int, OpenHalf] = {}
        """In the order of their offsets; includes halves whose decision is being written."""
        self._deciding: set[int] = set()
        """Halves whose decision is being written, visible or not."""
        self._seen_end = half_offset
        self._op_end = op_offset
        self._ops: deque[tuple[int, int]] = deque()
        self._decided_ahead: set[int] = set()
        self._places: dict[int, int] = {}
        """Current offsets of open halves that were renewed, by each earlier offset."""
        self._earlier: dict[int, tuple[int, ...]] = {}
        """Earlier offsets by current offset."""
        self._copies: dict[int, int] = {}
        """Log offsets of renewed halves, by their current offset; the queue may not show them yet."""
        self._unannounced: set[int] = set()
        """Current offsets that no producer was sent."""

    def add_half(self, offset: int, now: int) -> None:
        """Add a half that has become visible. Halves are added in the order of their offsets."""
        self._seen_end = offset + 1
        if offset in self._decided_ahead:
            self._decided_ahead.remove(offset)
        else:
            self.open[offset] = OpenHalf(now)

    def add_op(self, op_offset: int, halves: list[int]) -> None:
        """Add an op that has become visible, and remove the halves that it names."""
        self._op_end = op_offset + 1
        self._ops.append((op_offset, max(halves, default=-1)))
        for half in halves:
            self.remove(half)

    def remove(self, half: int) -> None:
        """Remove a decided half and its earlier offsets."""
        self.mark_decided(half)
        self._unannounced.discard(half)
        self._copies.pop(half, None)
        for earlier in self._earlier.pop(half, ()):
            del self._places[earlier]

    def begin_decision(self, half: int) -> None:
        """Lock a half while its decision, or its renewed copy, is being written. The half stays open for
        :attr:`progress`, because the write may fail. It need not be visible yet.
        """
        self._deciding.add(half)

    def mark_decided(self, half: int) -> None:
        """Mark a half as decided or renewed. It need not be visible yet."""
        self._deciding.discard(half)
        if self.open.pop(half, None) is None and half >= self._seen_end:
            self._decided_ahead.add(half)

    def cancel_decision(self, half: int, now: int) -> None:
        """Unlock a half whose decision could not be written."""
        self._deciding.discard(half)
        if half in self.open:
            self.open[half] = OpenHalf(now)

    def known_offsets(self, half: int) -> tuple[int, ...]:
        """Return all offsets by which a producer may know an open half. Offsets that no producer was sent are left out,
        because a half whose producers are away for days is renewed hundreds of times.
        """
        earlier = self._earlier.get(half, ())
        return earlier if half in self._unannounced else (*earlier, half)

    def move(self, earlier: tuple[int, ...], to: int, copy: int, *, announced: bool) -> None:
        """Record that a half with the :meth:`known_offsets` ``earlier`` was renewed at offset ``to`` and log offset
        ``copy``. ``announced`` says whether a producer is sent the new offset.
        """
        self._earlier[to] = earlier
        self._copies[to] = copy
        for place in earlier:
            self._places[place] = to
        if not announced:
            self._unannounced.add(to)

    def current_offset(self, half: int) -> int:
        """Return the current offset of the half that was at ``half``; known until it is decided or the broker stops."""
        return self._places.get(half, half)

    def log_offset(self, half: int) -> int | None:
        """Return the log offset of a half that was renewed since the start, None for any other."""
        return self._copies.get(half)

    def is_open(self, half: int) -> bool:
        """Whether a decision about this half is accepted; true for a half that is not visible yet."""
        is_known = half in self.open or (half >= self._seen_end and half not in self._decided_ahead)
        return is_known and half not in self._deciding

    def undecided(self, half: int) -> OpenHalf | None:
        """Return the state of a visible half that is open and whose decision is not being written."""
        return None if half in self._deciding else self.open.get(half)

    @property
    def _first_open(self) -> int:
        return next(iter(self.open), self._seen_end)

    def discard_ops(self) -> Iterator[int]:
        """Discard the ops that a restart need not read, one by one, and yield their offsets. A half that was open for
        long may have held back millions. Halves and ops may be added between two steps.
        """
        half = self._first_open
        while self._ops and self._ops[0][1] < half:
            yield self._ops.popleft()[0]

    @property
    def progress(self) -> tuple[int, int]:
        """Half offset and op offset from which a start rebuilds the index."""
        return self._first_open, self._ops[0][0] if self._ops else self._op_end
