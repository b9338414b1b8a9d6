"""Which halves are open: pure bookkeeping over the offsets of the two transaction queues.

Restored from the log by naming every half and every op from the kept progress on; :attr:`Ledger.progress` is what may
be kept: before its half offset everything is settled, and no op before its op offset names a half behind that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from raptormq.broker.transaction.half import Producers


@dataclass(slots=True)
class OpenHalf:
    """What is known of a half that nobody has decided; times in milliseconds."""

    seen: int
    """When the broker first saw it."""
    rests_until: int = 0
    """Reading it before would tell nothing new."""
    producers: Producers | None = None
    """Of whom one that comes ends the rest."""


class Ledger:
    """Open halves by their queue offset."""

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.open: dict[int, OpenHalf] = {}
        """In the order of their offsets, with those about which a decision is being written."""
        self._deciding: set[int] = set()
        """The latter, and such as have not been seen yet."""
        self._seen_end = half_offset
        self._op_end = op_offset
        self._ops: deque[tuple[int, int]] = deque()
        self._settled_ahead: set[int] = set()
        self._places: dict[int, int] = {}
        """Where open halves are now that were written anew, by each offset that they had before."""
        self._earlier: dict[int, tuple[int, ...]] = {}
        """The reverse."""
        self._copies: dict[int, int] = {}
        """Where in the log those are, by their offsets now: the queue may show them later."""
        self._untold: set[int] = set()
        """Where open halves are of which nobody was told that they are there."""

    def half_seen(self, offset: int, now: int) -> None:
        """A half has become visible; halves come in the order of their offsets."""
        self._seen_end = offset + 1
        if offset in self._settled_ahead:
            self._settled_ahead.remove(offset)
        else:
            self.open[offset] = OpenHalf(now)

    def op_seen(self, op_offset: int, halves: list[int]) -> None:
        """An op has become visible."""
        self._op_end = op_offset + 1
        self._ops.append((op_offset, max(halves, default=-1)))
        for half in halves:
            self.gone(half)

    def gone(self, half: int) -> None:
        """A half is settled for ever, and nobody asks where it is any more."""
        self.settle(half)
        self._untold.discard(half)
        self._copies.pop(half, None)
        for earlier in self._earlier.pop(half, ()):
            del self._places[earlier]

    def decide(self, half: int) -> None:
        """A decision about a half, or the half anew, is being written: no other one counts, but a restart has to ask,
        as it may come to nothing. The half need not have been seen yet.
        """
        self._deciding.add(half)

    def settle(self, half: int) -> None:
        """A half is decided, or written anew; it need not have been seen yet."""
        self._deciding.discard(half)
        if self.open.pop(half, None) is None and half >= self._seen_end:
            self._settled_ahead.add(half)

    def reopen(self, half: int, now: int) -> None:
        """The decision about a half could not be written."""
        self._deciding.discard(half)
        if half in self.open:
            self.open[half] = OpenHalf(now)

    def places(self, half: int) -> tuple[int, ...]:
        """Return all offsets by which somebody may know an open half. Those that nobody was told of are left out: while
        producers are away for days, it is written anew hundreds of times.
        """
        earlier = self._earlier.get(half, ())
        return earlier if half in self._untold else (*earlier, half)

    def moved(self, earlier: tuple[int, ...], to: int, copy: int, *, told: bool) -> None:
        """A half that had these `places`, and was settled there, is at ``to`` now, and at ``copy`` in the log; ``told``
        says that somebody hears of it.
        """
        self._earlier[to] = earlier
        self._copies[to] = copy
        for place in earlier:
            self._places[place] = to
        if not told:
            self._untold.add(to)

    def place(self, half: int) -> int:
        """Return where a half is now that was at ``half`` once; known until it is decided, or the broker restarts."""
        return self._places.get(half, half)

    def copy(self, half: int) -> int | None:
        """Return where in the log a half is that was written anew since the start."""
        return self._copies.get(half)

    def is_open(self, half: int) -> bool:
        """Whether a decision about this half still counts; true for one that will become visible soon."""
        is_known = half in self.open or (half >= self._seen_end and half not in self._settled_ahead)
        return is_known and half not in self._deciding

    def known(self, half: int) -> OpenHalf | None:
        """Return what is known of a half that has been seen, and about which a decision still counts."""
        return None if half in self._deciding else self.open.get(half)

    @property
    def _first_open(self) -> int:
        return next(iter(self.open), self._seen_end)

    def forget_ops(self) -> Iterator[int]:
        """Forget the ops that a restart need not read, one by one, and yield their offsets: a half that was open for
        long may have held back millions. Halves and ops may come meanwhile.
        """
        half = self._first_open
        while self._ops and self._ops[0][1] < half:
            yield self._ops.popleft()[0]

    @property
    def progress(self) -> tuple[int, int]:
        """Half and op offset to restore from."""
        return self._first_open, self._ops[0][0] if self._ops else self._op_end
