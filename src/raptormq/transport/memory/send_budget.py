"""Limits the memory of unread responses of all connections of a server.

A response is kept until the kernel has taken its last byte for the peer. One connection may have 64 MiB of unread
responses, so a hundred consumers that stop reading would hold gigabytes. The budget counts the memory of responses
(slices of the mapped log take none) and of reads for future responses. Below three quarters of the budget nothing is
restricted. Above it::

    send    responses that take no memory
    wait    all others, before their data is read: :class:`Reading`. Small responses go first and may use the last
            quarter, so that ordinary consumers are not affected; then connections that have read a response before
    close   connections with unread bytes that have read next to nothing for ``patience_seconds``, largest first, until
            half of the budget is free; any connection, if no waiting read was granted for four times as long. Above the
            whole budget: the largest at once, recent readers last

For a response from the mapped log the check is one comparison (with TLS one sum, because a little is encrypted ahead).
The sums are recomputed only when the bytes sent since the last check may exceed a limit. The unread bytes belong to a
:mod:`~raptormq.transport.connection`; :mod:`~raptormq.transport.memory.receive_budget` limits requests.
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
"""Maximum size of a response; reserved when the size is unknown."""
SMALL_BYTES = 262_144
"""Maximum size of an ordinary pull response; such responses may use the last quarter."""
CHECK_INTERVAL_S = 0.1
"""Time in seconds between two checks while memory is short."""
PATIENCE_S = 2.0
"""Maximum time in seconds that a request without a hold time waits for memory. Clients time out after 3 s or more."""
_STARVATION_FACTOR = 4
"""Multiple of the patience after which slow readers are closed too, so that a trickle of reads cannot starve others."""
_MIN_PROGRESS_BYTES = 65_536
"""A peer that reads less than this within the patience has stopped reading."""
_MERGED_BYTES = 65_536
"""Small responses are counted together up to this size."""
_MAX_WAITING = 16_384
"""Maximum number of waiting reads; each takes some KiB itself."""
_MAX_CLOSED_PER_CHECK = 256


class PeerConnection(Protocol):
    """The part of :class:`~raptormq.transport.connection.Connection` that the budget uses. Byte counts are positions in
    the stream of sent bytes."""

    reads_answers: bool
    """True once the peer has read all counted responses."""
    is_encrypted: bool
    """Whether the connection uses TLS. TLS encrypts ahead, so every response takes up to ``AHEAD_BYTES`` of memory."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent so far, including queued ones."""

    @property
    def taken_bytes(self) -> int:
        """Lower bound of the bytes that the kernel has taken."""

    @property
    def read_bytes(self) -> int:
        """Lower bound of the bytes that the peer has acknowledged; costs a system call."""

    @property
    def peer_name(self) -> str:
        """Name of the peer for the log."""

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent."""

    def abort(self) -> None:
        """Close the connection immediately and free its queued bytes."""


class _UnreadBytes:
    """The unread responses of one connection that take memory."""

    __slots__ = ("_ahead", "_copied", "_parts", "at", "read", "taken")

    def __init__(self, now: float) -> None:
        self._parts: deque[tuple[int, int]] = deque()
        """End position (as in ``sent_bytes``) and size in memory of each response."""
        self._copied = 0  # sum of the sizes
        self._ahead = 0  # encrypted bytes of TLS
        self.taken = 0
        """``taken_bytes`` at the last progress."""
        self.read: int | None = None
        """``read_bytes`` at or before the last progress; None before the first check."""
        self.at = now
        """Time of the last progress."""

    @property
    def size(self) -> int:
        return self._copied + self._ahead

    def encrypted(self, waiting: int) -> None:
        """Set the encrypted part of ``waiting`` bytes."""
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
    """A read that waits for memory. Waiters are served in the order of their tuples."""

    is_large: bool
    is_new_peer: bool
    """Whether the peer has not read any response yet."""
    number: int
    size: int
    peer: PeerConnection
    future: asyncio.Future[bool]


class SendBudget:
    """Limits the memory of unread responses."""

    def __init__(self, max_bytes: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``max_bytes`` must be larger than one response. ``patience_seconds`` is the time without reads after which a
        peer counts as stopped."""
        self.is_short = False
        """Whether responses that take memory have to wait (:class:`Reading`)."""
        self.closed_count = 0
        """Number of connections that the budget has closed."""
        self._max_bytes = max_bytes
        self._short_from = max_bytes * 3 // 4
        self._look_above = self._short_from
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._unread: dict[PeerConnection, _UnreadBytes] = {}
        self._owed = 0  # at the last check, plus bytes sent since
        self._reserved = 0
        self._waiting: list[_Waiter] = []  # a heap
        self._asked_count = 0
        self._granted_at = 0.0
        self._is_watching = False
        self._was_short = False  # freed memory has not been returned to the system yet
        self._next_look = OneShotTimer(self.look)

    @property
    def held_bytes(self) -> int:
        """Memory in bytes of unread responses and of granted reads."""
        self._recount()
        return self._owed + self._reserved

    @property
    def waiting_count(self) -> int:
        """Number of reads that wait for memory."""
        return sum(not each.future.done() for each in self._waiting)

    def add(self, peer: PeerConnection, size: int) -> None:
        """Count ``size`` bytes of memory of the response just sent to ``peer``, and the encrypted part of the peer's
        queue."""
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
        """Remove a closed connection."""
        unread = self._unread.pop(peer, None)
        if unread is not None:
            self._owed -= unread.size

    def reserve(self, size: int) -> None:
        """Reserve ``size`` bytes for a read; a negative size releases."""
        self._reserved += size
        if size > 0 and self._owed + self._reserved > self._look_above:
            self.look()

    async def room(self, peer: PeerConnection, size: int, seconds: float) -> bool:
        """Wait for room and reserve ``size`` bytes. Return False if there is no room within ``seconds``, or too many
        reads are waiting."""
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
        """Stop the periodic checks."""
        self._next_look.cancel()

    def look(self) -> None:
        """Recompute the sums, then close connections and grant waiting reads as needed."""
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
        self._look_above = max(self._short_from, total + self._max_bytes // 16)
        if self.is_short:
            self._was_short = True
        elif self._was_short and total <= self._max_bytes // 8:
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
        """Record progress of all connections. ``read_bytes`` costs a system call, so it is read only at the first
        check, before a connection is closed, and for all connections while the whole budget is exceeded.
        """
        now, is_over = self._clock(), self._owed + self._reserved > self._max_bytes
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
        is_over = total > self._max_bytes
        is_starved = bool(self._waiting) and now - self._granted_at >= _STARVATION_FACTOR * patience
        is_starved = is_starved and self._owed > self._max_bytes // 2  # otherwise the reads wait for the disk
        enough = self._max_bytes * 7 // 8 if is_over else self._max_bytes // 2
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
                "closing the connection from %s: it does not read its %d bytes of responses, and all unread responses"
                " take %d bytes",
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
        """Return whether a new read of ``size`` bytes has priority over every waiting read."""
        return not self.is_short or (size <= SMALL_BYTES and (not self._waiting or self._waiting[0].is_large))

    def _has_room(self, size: int) -> bool:
        total = self._owed + self._reserved
        return not total or total + size <= self._most(size)

    def _most(self, size: int) -> int:
        return self._max_bytes if size <= SMALL_BYTES else self._short_from


def patience(seconds: float) -> float:
    """Return the maximum wait for memory in seconds for a peer that waits ``seconds`` for its response."""
    return max(seconds, PATIENCE_S)


class Reading:
    """Memory reservation for the read of one response, held until the response is sent; a context manager."""

    def __init__(self, budget: SendBudget | None, peer: PeerConnection, seconds: float | None = None) -> None:
        """``seconds`` is the hold time of the request, if it has one. Without a budget there is always room."""
        self._budget = budget
        self._peer = peer
        self._until = asyncio.get_running_loop().time() + (PATIENCE_S if seconds is None else seconds)
        self._size = 0

    @property
    def may_copy(self) -> bool:
        """Whether copies may be read without waiting. Otherwise call :meth:`granted` first."""
        return self._budget is None or not self._budget.is_short

    async def granted(self, size: int) -> bool:
        """Wait until there is room for ``size`` more bytes (0: unknown). Return False if the peer has disconnected or
        its hold time has passed.
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
        """Like :meth:`granted` for slices of the mapped log, which need room only for the bytes that TLS encrypts
        ahead.
        """
        if self.may_copy or not size or not self._peer.is_encrypted:
            return True
        return await self.granted(min(size, AHEAD_BYTES))

    def has(self, size: int) -> None:
        """Set the reservation to the ``size`` bytes read so far."""
        if self._budget is not None and size != self._size:
            self._budget.reserve(size - self._size)
            self._size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the reservation. Bytes that were sent are counted as unread already."""
        self.has(0)
