"""What the unfinished frames of all connections of a server may take together.

A frame is kept until its last byte is there, at most 16 MiB for each connection: 40 peers that begin large frames and
stop would hold 600 MiB until they are taken for idle. The budget counts what is kept. Nothing happens below three
quarters of it. Above, until it is below again::

    read on     the connections whose frames lack least, as far as what they lack has room; who lacks little goes first,
                so that ordinary requests notice nothing, and one that is read always remains
    wait        all others: nothing is read from them (TCP tells the peer), what they have sent is kept
    close       who was read and brought next to nothing for ``patience_seconds``, and who had to wait four times as
                long; largest first, until half of the budget is free. Above the whole of it: the largest at once

A slow but steady sender of a large message therefore gets through. Counting is one addition for a read that ends inside
a frame; sums are made anew only when so much was kept that they may have come to matter. `connection` is what holds the
frames, :mod:`raptormq.protocol.frame` what cuts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

from raptormq.logs import get_logger
from raptormq.protocol.frame import FrameDecoder
from raptormq.transport.timing import OneShotTimer

logger = get_logger(__name__)

CHECK_INTERVAL_S = 0.25
"""Time between two looks while memory is short."""
_REST_S = 1.0
"""The same afterwards, until little is kept."""
_WAITERS_PATIENCE = 4
"""So many times as patient as with the others is the budget with those that it keeps waiting itself."""
_MIN_PROGRESS_BYTES = 65_536
"""What counts as progress: clients give a request up after 3 s, and nobody sends a large one at less than 20 KiB/s."""
_SHORT_BYTES = 65_536
"""Frames that lack so little may use the last eighth of the budget."""
_MAX_CLOSED_PER_CHECK = 256


class Holder(Protocol):
    """What the budget has to know about a connection."""

    waits_for_room: bool
    """Nothing is read from it because of the budget."""

    @property
    def frames(self) -> FrameDecoder:
        """Where its unfinished frame is."""

    @property
    def peer_name(self) -> str:
        """Who it is, for the log."""

    def wait_for_room(self, *, wait: bool) -> None:
        """Read nothing more, or go on."""

    def abort(self) -> None:
        """End it and let go of its unfinished frame."""


class ReceiveBudget:
    """Keeps the unfinished frames of some connections within bounds."""

    def __init__(
        self,
        most_bytes: int,
        patience_seconds: float,
        connections: Collection[Holder],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``connections`` is looked at whenever need be: the server's own set. ``most_bytes`` has room for a frame."""
        self.closed_count = 0
        """Connections ended so far."""
        self._most_bytes = most_bytes
        self._short_from = most_bytes * 3 // 4
        self._patience_seconds = patience_seconds
        self._connections = connections
        self._clock = clock
        self._kept_since = 0  # the last look: what is kept now is at most that much more than then
        self._allowance = self._short_from
        self._watched: dict[Holder, tuple[int, float]] = {}  # bytes held when it last got on, and when that was
        self._was_short = False  # and what was freed since is still the allocator's
        self._next_look = OneShotTimer(self.look)

    @property
    def kept_bytes(self) -> int:
        """What unfinished frames take now."""
        return sum(each.frames.held_bytes for each in self._connections)

    def kept(self, size: int) -> None:
        """Count what one read left unfinished, at most ``size`` bytes of it new."""
        self._kept_since += size
        if self._kept_since >= self._allowance:
            self.look()

    def close(self) -> None:
        """Look no more."""
        self._next_look.cancel()

    def look(self) -> None:
        """See what is kept, and do what has to be done."""
        self.close()
        self._kept_since = 0
        holders = [each for each in self._connections if each.frames.missing_bytes]
        total = sum(each.frames.held_bytes for each in holders)
        if total <= self._short_from:
            self._allowance = max(self._short_from - total, self._most_bytes // 8)
            self._relax(total)
            return
        self._watch(holders)
        total = self._close_some(holders, total)
        self._choose_readers(total)
        self._allowance = min(self._most_bytes // 64, self._most_bytes - total)
        self._was_short = True
        self._next_look.within(CHECK_INTERVAL_S)

    def _relax(self, total: int) -> None:
        for each in self._watched:
            each.wait_for_room(wait=False)
        self._watched.clear()
        if not self._was_short:
            return
        if total > self._most_bytes // 8:
            self._next_look.within(_REST_S)
        else:
            self._was_short = False
            trim_heap()

    def _watch(self, holders: list[Holder]) -> None:
        now, before = self._clock(), self._watched
        self._watched = watched = {}
        for each in holders:
            held = each.frames.held_bytes
            then = before.pop(each, None)
            if then is None or held < then[0] or held - then[0] >= _MIN_PROGRESS_BYTES:
                then = held, now
            watched[each] = then
        for each in before:  # finished their frames, or are gone
            each.wait_for_room(wait=False)

    def _close_some(self, holders: list[Holder], total: int) -> int:
        """Return what is kept then."""
        if total > self._most_bytes:
            late, enough = holders, self._most_bytes * 7 // 8
        else:
            late, enough = [each for each in holders if self._is_late(each)], self._most_bytes // 2
        late.sort(key=lambda each: (each.waits_for_room and total <= self._most_bytes, -each.frames.held_bytes))
        for each in late[:_MAX_CLOSED_PER_CHECK]:
            if total <= enough:
                break
            held = each.frames.held_bytes
            logger.warning(
                "closing the connection from %s: %d bytes of a frame that does not get on, and all unfinished frames"
                " take %d bytes",
                *(each.peer_name, held, total),
            )
            total -= held
            del self._watched[each]
            self.closed_count += 1
            each.abort()
        return total

    def _is_late(self, holder: Holder) -> bool:
        patience = self._patience_seconds * (_WAITERS_PATIENCE if holder.waits_for_room else 1)
        return self._clock() - self._watched[holder][1] >= patience

    def _choose_readers(self, total: int) -> None:
        now, room = self._clock(), self._most_bytes - total
        reserve = self._most_bytes // 8
        for number, each in enumerate(sorted(self._watched, key=lambda each: each.frames.missing_bytes)):
            missing = each.frames.missing_bytes
            room -= missing
            wait = number > 0 and room < (0 if missing <= _SHORT_BYTES else reserve)
            if wait != each.waits_for_room:
                self._watched[each] = each.frames.held_bytes, now  # the time for which it waited is not its fault
                each.wait_for_room(wait=wait)


def trim_heap() -> None:
    """Let the system have what was freed: glibc keeps pieces of the size of a read for later."""
    import ctypes  # rarely needed

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not everybody's C library has it
    if trim is not None:
        trim(0)
