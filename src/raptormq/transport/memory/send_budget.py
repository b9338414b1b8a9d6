"""What the answers that peers have not read yet may take, of all connections of a server together.

An answer is kept until the kernel has taken its last byte for the peer. One connection may be owed 64 MiB, so a hundred
consumers that stopped reading would hold gigabytes. The budget counts what answers take in memory (slices of the mapped
log take none), and what is being read for answers to come. Nothing happens below three quarters of it. Above, until it
is below again::

    go on   answers that take no memory
    wait    all others, before anything is read for them: :class:`Reading`. Small ones go first and may use the last
            quarter, so that ordinary consumers notice nothing; then those to whom a connection has read before
    close   who was owed something and has read next to nothing for ``patience_seconds``, largest first, until half of
            the budget is free. Everybody, when nobody who waits got on for four times as long. Above the whole budget:
            the largest at once, who read last of all

Counting is one comparison for an answer that is in the mapped log (over TLS one sum: of all that waits for a peer a
little is encrypted ahead); sums are made anew only when so much was answered that they may have come to matter.
`connection` is who is owed, :mod:`~raptormq.transport.memory.receive_budget` bounds requests.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from raptormq.logs import get_logger
from raptormq.transport.memory.receive_budget import trim_heap
from raptormq.transport.timing import OneShotTimer
from raptormq.transport.tls import AHEAD_BYTES

logger = get_logger(__name__)

LARGEST_BYTES = 16 << 20
"""What an answer takes at most; so much is reserved where nobody knows."""
SMALL_BYTES = 262_144
"""What an ordinary pull brings at most: such answers may use the last quarter."""
CHECK_INTERVAL_S = 0.1
"""Time between two looks while memory is short."""
PATIENCE_S = 2.0
"""How long a request waits for memory that does not say how long it may be held; clients give up after 3 s and more."""
_STARVATION_FACTOR = 4
"""So many times as long as patience: a trickle of reads does not keep the others waiting for longer."""
_MIN_PROGRESS_BYTES = 65_536
"""Who reads less than so much while patience lasts has stopped reading."""
_MERGED_BYTES = 65_536
"""Small answers are counted together up to so much."""
_MAX_WAITING = 16_384
"""Reads that wait for memory; each takes some KiB itself."""
_MAX_CLOSED_PER_CHECK = 256


class PeerConnection(Protocol):
    """What the budget has to know about a connection. It counts bytes in the order in which they are sent."""

    reads_answers: bool
    """It has taken all that was counted before."""
    is_encrypted: bool
    """What it is sent takes some memory wherever it comes from (``AHEAD_BYTES``)."""

    @property
    def sent_bytes(self) -> int:
        """What was sent by it so far, be it that it waits."""

    @property
    def taken_bytes(self) -> int:
        """What the kernel has taken of that, at least."""

    @property
    def read_bytes(self) -> int:
        """What the peer has taken of that, at least; not for often."""

    @property
    def peer_name(self) -> str:
        """Who it is, for the log."""

    @property
    def is_closed(self) -> bool:
        """Nothing can be sent any more."""

    def abort(self) -> None:
        """End it and let go of what it was to be sent."""


class _UnreadBytes:
    """What one connection is owed that takes memory."""

    __slots__ = ("_ahead", "_copied", "_parts", "at", "read", "taken")

    def __init__(self, now: float) -> None:
        self._parts: deque[tuple[int, int]] = deque()
        """Of each answer where it ends, counted like ``sent_bytes``, and what it takes until then."""
        self._copied = 0  # the sum of that
        self._ahead = 0  # what TLS has encrypted
        self.taken = 0
        """What the kernel had taken when it last got on."""
        self.read: int | None = None
        """What the peer itself had taken then, or before; None before the first look."""
        self.at = now
        """When that was."""

    @property
    def size(self) -> int:
        return self._copied + self._ahead

    def encrypted(self, waiting: int) -> None:
        """Count what is encrypted of ``waiting`` bytes."""
        self._ahead = min(waiting, AHEAD_BYTES)

    def add(self, end: int, size: int) -> None:
        self._copied += size
        if self._parts and self._parts[-1][1] + size <= _MERGED_BYTES:
            size += self._parts.pop()[1]
        self._parts.append((end, size))

    def forget_taken(self, taken: int) -> None:
        parts = self._parts
        while parts and parts[0][0] <= taken:
            self._copied -= parts.popleft()[1]


class _Waiter(NamedTuple):
    """A read that waits for memory; the lesser is served first."""

    is_large: bool
    is_new_peer: bool
    """Its connection has not read an answer yet."""
    number: int
    size: int
    peer: PeerConnection
    future: asyncio.Future[bool]


class SendBudget:
    """Keeps the memory of unread answers within bounds."""

    def __init__(self, most_bytes: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``most_bytes`` has room for more than one answer."""
        self.is_short = False
        """Answers that take memory have to wait (:class:`Reading`)."""
        self.closed_count = 0
        """Connections ended so far."""
        self._most_bytes = most_bytes
        self._short_from = most_bytes * 3 // 4
        self._look_above = self._short_from
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._unread: dict[PeerConnection, _UnreadBytes] = {}
        self._owed = 0  # at the last look, and what was sent since
        self._reserved = 0
        self._waiting: list[_Waiter] = []  # a heap
        self._asked_count = 0
        self._granted_at = 0.0
        self._is_watching = False
        self._was_short = False  # and what was freed since is still the allocator's
        self._next_look = OneShotTimer(self.look)

    @property
    def held_bytes(self) -> int:
        """What unread answers, and those being read for, take now."""
        self._recount()
        return self._owed + self._reserved

    @property
    def waiting_count(self) -> int:
        """Reads that wait for memory."""
        return sum(not each.future.done() for each in self._waiting)

    def add(self, peer: PeerConnection, size: int) -> None:
        """Count ``size`` bytes in memory of what ``debtor`` was sent just now, and what is encrypted of all of it."""
        unread = self._unread.get(peer)
        if unread is None:
            unread = self._unread[peer] = _UnreadBytes(self._clock())
        before = unread.size
        if size:
            unread.add(peer.sent_bytes, size)
        if peer.is_encrypted:
            unread.encrypted(peer.sent_bytes - peer.taken_bytes)
        self._owed += unread.size - before
        if self._owed + self._reserved > self._look_above:
            self.look()

    def forget(self, peer: PeerConnection) -> None:
        """Count nothing for a connection that is gone."""
        unread = self._unread.pop(peer, None)
        if unread is not None:
            self._owed -= unread.size

    def reserve(self, size: int) -> None:
        """Count ``size`` bytes that are being read; less than nothing gives back."""
        self._reserved += size
        if size > 0 and self._owed + self._reserved > self._look_above:
            self.look()

    async def room(self, peer: PeerConnection, size: int, seconds: float) -> bool:
        """Reserve ``size`` bytes once there is room; False when there was none within ``seconds``, or too many wait."""
        if not self.is_short and self._owed + self._reserved + size > self._most(size):
            self.look()
        if self._may_go_first(size) and self._has_room(size):
            self._reserved += size
            return True
        if len(self._waiting) >= _MAX_WAITING or seconds <= 0:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._granted_at = self._clock()
        self._asked_count += 1
        is_large, is_new_peer = size > SMALL_BYTES, not peer.reads_answers
        heapq.heappush(self._waiting, _Waiter(is_large, is_new_peer, self._asked_count, size, peer, future))
        self.is_short = True
        self._next_look.within(CHECK_INTERVAL_S)
        try:
            await asyncio.wait({future}, timeout=seconds)
        except asyncio.CancelledError:
            if future.done() and future.result():
                self._reserved -= size
            raise
        finally:
            future.cancel()
        return not future.cancelled() and future.result()

    def close(self) -> None:
        """Look no more."""
        self._next_look.cancel()

    def look(self) -> None:
        """See what is owed, and do what has to be done."""
        self.close()
        self._recount()
        if self._owed + self._reserved > self._short_from or self._waiting:
            self._watch()
            self._close_some()
            self._grant()
        else:
            self._is_watching = False
        total = self._owed + self._reserved
        self.is_short = total > self._short_from or bool(self._waiting)
        self._look_above = max(self._short_from, total + self._most_bytes // 16)
        if self.is_short:
            self._was_short = True
        elif self._was_short and total <= self._most_bytes // 8:
            self._was_short = False
            trim_heap()
        if self._was_short:
            self._next_look.within(CHECK_INTERVAL_S)

    def _recount(self) -> None:
        paid: list[PeerConnection] = []
        owed = 0
        for peer, unread in self._unread.items():
            taken = peer.taken_bytes
            unread.forget_taken(taken)
            if peer.is_encrypted:
                unread.encrypted(peer.sent_bytes - taken)
            if unread.size:
                owed += unread.size
            else:
                paid.append(peer)
        for peer in paid:
            peer.reads_answers = True
            del self._unread[peer]
        self._owed = owed
        for each in self._waiting:
            if each.peer.is_closed and not each.future.done():
                each.future.set_result(False)
        if any(each.future.done() for each in self._waiting):
            self._waiting = [each for each in self._waiting if not each.future.done()]
            heapq.heapify(self._waiting)

    def _watch(self) -> None:
        """See who has got on. What a peer itself has taken costs a system call: it is asked for at the first look, for
        who is to be closed, and for all above the whole budget.
        """
        now, is_over = self._clock(), self._owed + self._reserved > self._most_bytes
        for peer, unread in self._unread.items():
            taken = peer.taken_bytes
            if not self._is_watching:
                unread.read = None
            if unread.read is None or is_over:
                self._has_read(peer, unread, now)
            elif taken - unread.taken >= _MIN_PROGRESS_BYTES:
                unread.taken, unread.at = taken, now
        self._is_watching = True

    def _has_read(self, peer: PeerConnection, unread: _UnreadBytes, now: float) -> bool:
        read = peer.read_bytes
        if unread.read is not None and read - unread.read < _MIN_PROGRESS_BYTES:
            return False
        unread.read, unread.taken, unread.at = read, peer.taken_bytes, now
        return True

    def _close_some(self) -> None:
        now, patience, total = self._clock(), self._patience_seconds, self._owed + self._reserved
        is_over = total > self._most_bytes
        is_starved = bool(self._waiting) and now - self._granted_at >= _STARVATION_FACTOR * patience
        is_starved = is_starved and self._owed > self._most_bytes // 2  # else it is a disk that they wait for
        enough = self._most_bytes * 7 // 8 if is_over else self._most_bytes // 2
        late = [
            (now - unread.at < patience and unread.at == now, -unread.size, number, peer)
            for number, (peer, unread) in enumerate(self._unread.items())
            if is_over or is_starved or now - unread.at >= patience
        ]
        late.sort()
        for _, minus_size, _, peer in late[:_MAX_CLOSED_PER_CHECK]:
            if total <= enough:
                break
            if not (is_over or is_starved) and self._has_read(peer, self._unread[peer], now):
                continue
            logger.warning(
                "closing the connection from %s: it does not read the %d bytes of answers it is owed, and all unread"
                " answers take %d bytes",
                *(peer.peer_name, -minus_size, total),
            )
            total += minus_size
            self.closed_count += 1
            self.forget(peer)
            peer.abort()

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and self._has_room(waiting[0].size):
            granted = heapq.heappop(waiting)
            self._reserved += granted.size
            self._granted_at = self._clock()
            granted.future.set_result(True)

    def _may_go_first(self, size: int) -> bool:
        """Whether nobody waits whose turn comes before that of who asks for ``size`` bytes now."""
        return not self.is_short or (size <= SMALL_BYTES and (not self._waiting or self._waiting[0].is_large))

    def _has_room(self, size: int) -> bool:
        total = self._owed + self._reserved
        return not total or total + size <= self._most(size)

    def _most(self, size: int) -> int:
        return self._most_bytes if size <= SMALL_BYTES else self._short_from


def patience(seconds: float) -> float:
    """Return how long, in seconds, memory is waited for on behalf of a peer that waits ``seconds`` anyway."""
    return max(seconds, PATIENCE_S)


class Reading:
    """What is read for one answer, from before the first byte until the answer is sent; to be used with ``with``."""

    def __init__(self, budget: SendBudget | None, peer: PeerConnection, seconds: float | None = None) -> None:
        """``seconds`` is how long the peer waits, if it says so. Without a budget there is always room."""
        self._budget = budget
        self._peer = peer
        self._until = asyncio.get_running_loop().time() + (PATIENCE_S if seconds is None else seconds)
        self._size = 0

    @property
    def may_copy(self) -> bool:
        """Whether what takes memory can be read at once; else :meth:`granted` is to be asked before."""
        return self._budget is None or not self._budget.is_short

    async def granted(self, size: int) -> bool:
        """Wait until there is room for ``size`` bytes more, 0 for nobody knows how many; False when the peer has gone
        or stopped waiting by then.
        """
        if self._budget is None:
            return True
        size = min(size, LARGEST_BYTES) or LARGEST_BYTES
        seconds = self._until - asyncio.get_running_loop().time()
        if self._peer.is_closed or not await self._budget.room(self._peer, size, seconds):
            return False
        self._size += size
        return not self._peer.is_closed

    async def granted_mapped(self, size: int) -> bool:
        """The same for ``size`` bytes that are slices of the mapped log, of which only what TLS encrypts before the
        peer takes it needs room.
        """
        if self.may_copy or not size or not self._peer.is_encrypted:
            return True
        return await self.granted(min(size, AHEAD_BYTES))

    def has(self, size: int) -> None:
        """Count the ``size`` bytes that have been read so far in place of what was expected."""
        if self._budget is not None and size != self._size:
            self._budget.reserve(size - self._size)
            self._size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was reserved: what was sent is owed now."""
        self.has(0)
