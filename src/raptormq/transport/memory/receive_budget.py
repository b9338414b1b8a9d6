"""Limits the memory of incomplete frames of all connections of a server.

An incomplete frame is kept until its last byte arrives, at most 16 MiB per connection: 40 peers that start large frames
and stop would hold 600 MiB until the idle time-out. The budget counts these bytes. Below three quarters of it nothing
is restricted. Above it::

    read        the connections with the fewest missing bytes, as far as these fit the budget, so that ordinary requests
                are not affected; at least one connection is always read
    pause       all others: reading is paused (TCP flow control stops the peer); received bytes are kept
    close       connections that were read and made next to no progress for ``patience_seconds``, or were paused for
                four times as long; largest first, until half of the budget is free. Above the whole budget: the
                largest at once

Therefore a slow but steady sender of a large message succeeds. The check of a read that ends inside a frame is one
addition. The sums are recomputed only when the bytes received since the last check may exceed a limit. The frames
belong to a :mod:`~raptormq.transport.connection`; :mod:`raptormq.protocol.frame` decodes them.
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
"""Time in seconds between two checks while memory is short."""
_REST_S = 1.0
"""Time in seconds between two checks after the shortage, until memory use is low again."""
_WAITERS_PATIENCE = 4
"""Multiple of the patience for connections that the budget has paused."""
_MIN_PROGRESS_BYTES = 65_536
"""Minimum progress within the patience; clients time out after 3 s, and 20 KiB/s is too slow for a large request."""
_SHORT_BYTES = 65_536
"""Frames with at most this many missing bytes may use the last eighth of the budget."""
_MAX_CLOSED_PER_CHECK = 256


class Holder(Protocol):
    """The part of :class:`~raptormq.transport.connection.Connection` that the budget uses."""

    waits_for_room: bool
    """True while the budget has paused reading."""

    @property
    def frames(self) -> FrameDecoder:
        """The decoder that buffers the incomplete frame of the connection."""

    @property
    def peer_name(self) -> str:
        """Name of the peer for the log."""

    def wait_for_room(self, *, wait: bool) -> None:
        """Pause or resume reading."""

    def abort(self) -> None:
        """Close the connection immediately and free its incomplete frame."""


class ReceiveBudget:
    """Limits the incomplete frames of a set of connections."""

    def __init__(
        self,
        max_bytes: int,
        patience_seconds: float,
        connections: Collection[Holder],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``connections`` is the set that the server updates. ``max_bytes`` must be larger than one frame.
        ``patience_seconds`` is the time without progress after which a connection is closed."""
        self.closed_count = 0
        """Number of connections that the budget has closed."""
        self._max_bytes = max_bytes
        self._short_from = max_bytes * 3 // 4
        self._patience_seconds = patience_seconds
        self._connections = connections
        self._clock = clock
        self._kept_since = 0  # upper bound of the growth since the last check
        self._allowance = self._short_from
        self._watched: dict[Holder, tuple[int, float]] = {}  # bytes held at the last progress, and its time
        self._was_short = False  # freed memory has not been returned to the system yet
        self._next_look = OneShotTimer(self.look)

    @property
    def kept_bytes(self) -> int:
        """Memory of incomplete frames in bytes."""
        return sum(each.frames.held_bytes for each in self._connections)

    def kept(self, size: int) -> None:
        """Count a read that ended inside a frame; ``size`` is an upper bound of the new bytes."""
        self._kept_since += size
        if self._kept_since >= self._allowance:
            self.look()

    def close(self) -> None:
        """Stop the periodic checks."""
        self._next_look.cancel()

    def look(self) -> None:
        """Recompute the sums, then close, pause and resume connections as needed."""
        self.close()
        self._kept_since = 0
        holders = [each for each in self._connections if each.frames.missing_bytes]
        total = sum(each.frames.held_bytes for each in holders)
        if total <= self._short_from:
            self._allowance = max(self._short_from - total, self._max_bytes // 8)
            self._relax(total)
            return
        self._watch(holders)
        total = self._close_some(holders, total)
        self._choose_readers(total)
        self._allowance = min(self._max_bytes // 64, self._max_bytes - total)
        self._was_short = True
        self._next_look.within(CHECK_INTERVAL_S)

    def _relax(self, total: int) -> None:
        for each in self._watched:
            each.wait_for_room(wait=False)
        self._watched.clear()
        if not self._was_short:
            return
        if total > self._max_bytes // 8:
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
        for each in before:  # connections whose frames are complete, or that are closed
            each.wait_for_room(wait=False)

    def _close_some(self, holders: list[Holder], total: int) -> int:
        """Close connections without progress. Return the memory in bytes of the remaining incomplete frames."""
        if total > self._max_bytes:
            late, enough = holders, self._max_bytes * 7 // 8
        else:
            late, enough = [each for each in holders if self._is_late(each)], self._max_bytes // 2
        late.sort(key=lambda each: (each.waits_for_room and total <= self._max_bytes, -each.frames.held_bytes))
        for each in late[:_MAX_CLOSED_PER_CHECK]:
            if total <= enough:
                break
            held = each.frames.held_bytes
            logger.warning(
                "closing the connection from %s: an incomplete frame of %d bytes makes no progress, and all incomplete"
                " frames take %d bytes",
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
        now, room = self._clock(), self._max_bytes - total
        reserve = self._max_bytes // 8
        for number, each in enumerate(sorted(self._watched, key=lambda each: each.frames.missing_bytes)):
            missing = each.frames.missing_bytes
            room -= missing
            wait = number > 0 and room < (0 if missing <= _SHORT_BYTES else reserve)
            if wait != each.waits_for_room:
                self._watched[each] = each.frames.held_bytes, now  # a pause does not count as lack of progress
                each.wait_for_room(wait=wait)


def trim_heap() -> None:
    """Return freed memory to the system; glibc keeps blocks of the size of a read."""
    import ctypes  # imported here because it is rarely needed

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries lack it
    if trim is not None:
        trim(0)
