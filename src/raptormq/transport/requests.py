"""Outgoing requests of a connection: opaques, signatures, matching of responses, time-outs.

:class:`OutgoingRequests` sends requests. All pending requests share one timer.

:class:`Deadlines` stores the pending requests, up to 10,000 on a consumer of 10,000 queues. They are grouped in buckets
by deadline and indexed by opaque, so that no operation scans them. Times are loop times in seconds.

:mod:`~raptormq.transport.connection` implements :class:`RequestTransport` and passes on the responses.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

from raptormq.errors import BufferFull, CommandError, ConnectionClosed, RequestTimeout
from raptormq.logs import get_logger
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import SignatureStamp, sign_fully
from raptormq.transport.limits import ConnectionLimits

logger = get_logger(__name__)


BUCKET_S = 0.1
"""Width of a bucket: the maximum delay of a time-out."""

T = TypeVar("T")

_Bucket = dict[int, "asyncio.Future[T]"]

COMPLETED_PER_TURN = 200
"""Maximum number of futures completed in one event loop iteration, so that their tasks do not block the loop."""


def complete_in_batches(futures: Iterable[asyncio.Future[T]], complete: Callable[[asyncio.Future[T]], None]) -> None:
    """Complete the futures that are not done: the first ones immediately, the others in later event loop iterations."""
    loop, left = asyncio.get_running_loop(), iter(futures)

    def complete_some() -> None:
        some = list(islice(left, COMPLETED_PER_TURN))
        for future in some:
            if not future.done():
                complete(future)
        if len(some) == COMPLETED_PER_TURN:
            loop.call_soon(complete_some)

    complete_some()


class Deadlines(Generic[T]):
    """Futures indexed by number and by deadline. They belong to the pending requests of a connection, whose number is
    the opaque, or to the callers of a :class:`~raptormq.transport.shared_task.SharedTask`.
    """

    __slots__ = ("_bucket_of", "_buckets")

    def __init__(self) -> None:
        self._bucket_of: dict[int, _Bucket[T]] = {}
        self._buckets: dict[int, _Bucket[T]] = {}

    def __len__(self) -> int:
        return len(self._bucket_of)

    def add(self, opaque: int, future: asyncio.Future[T], deadline: float) -> float:
        """Add ``future``. Return the loop time from which :meth:`take_expired` returns it."""
        number = int(deadline / BUCKET_S) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
        bucket[opaque] = future
        self._bucket_of[opaque] = bucket
        return number * BUCKET_S

    def take(self, opaque: int) -> asyncio.Future[T] | None:
        """Remove and return the future with this number; None if there is none."""
        bucket = self._bucket_of.pop(opaque, None)
        return None if bucket is None else bucket.pop(opaque)

    def take_expired(self, now: float) -> list[asyncio.Future[T]]:
        """Remove and return the futures whose buckets have expired."""
        overdue: list[asyncio.Future[T]] = []
        for number in [number for number in self._buckets if number * BUCKET_S <= now]:
            bucket = self._buckets.pop(number)
            overdue += bucket.values()
            for opaque in bucket:
                del self._bucket_of[opaque]
        return overdue

    def take_all(self) -> list[asyncio.Future[T]]:
        """Remove and return all futures."""
        everything = [future for bucket in self._buckets.values() for future in bucket.values()]
        self._buckets.clear()
        self._bucket_of.clear()
        return everything

    @property
    def next_due(self) -> float | None:
        """Time of the next expiry; None if nothing is pending."""
        return min(self._buckets) * BUCKET_S if self._buckets else None


class TimedWaiters(Generic[T]):
    """Futures with individual deadlines and one shared timer. A future whose deadline passes fails with
    `TimeoutError`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines: Deadlines[T] = Deadlines()
        self._last_number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._deadlines)

    async def wait(self, future: asyncio.Future[T], deadline: float | None) -> T:
        """Await ``future`` until ``deadline``, a loop time with a resolution of about 0.1 s. None waits for a day.

        Raises:
            TimeoutError: the deadline has passed; ``future`` is done.
        """
        if deadline is not None and deadline <= self._loop.time() and not future.done():
            future.cancel()  # otherwise it could still be completed before the timer, which is up to 0.1 s late
            raise TimeoutError
        number = self.add(future, deadline)
        try:
            return await future
        finally:
            self.remove(number)

    def add(self, future: asyncio.Future[T], deadline: float | None) -> int:
        """Set the deadline of ``future`` as in :meth:`wait`. Return its number for :meth:`remove`."""
        self._last_number = number = self._last_number + 1
        latest = self._loop.time() + LONGEST_WAIT_S
        due = self._deadlines.add(number, future, latest if deadline is None else min(deadline, latest))
        if self._timer is None or due < self._timer_at:
            self._expire_later(due)
        return number

    def remove(self, number: int) -> None:
        """Remove a future that is done."""
        self._deadlines.take(number)

    def take_all(self) -> list[asyncio.Future[T]]:
        """Remove and return all futures, and stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._deadlines.take_all()

    def _expire_later(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(due, self._expire), due

    def _expire(self) -> None:
        self._timer = None
        expired = self._deadlines.take_expired(self._loop.time() + 0.001)  # timers may fire early
        complete_in_batches(expired, lambda future: future.set_exception(TimeoutError()))
        if (due := self._deadlines.next_due) is not None:
            self._expire_later(due)


_MAX_OPAQUE = 0x7FFFFFFF
LONGEST_WAIT_S = 86_400.0
_STOPPED_S = 0.5
"""Delay of a timer in seconds from which the process counts as stopped, throttled or busy. Unread responses may then be
in the socket.
"""
_GRACE_S = 0.5
"""Additional time in seconds for requests of such a process. A peer that was stopped at the same time needs it, too."""

_DOUBT_S = 1.0
"""Time in seconds without received data after which a request that times out makes its connection doubtful. It is
shorter than the first attempt of a send with the default timeout.
"""


class RequestTransport(Protocol):
    """The part of :class:`~raptormq.transport.connection.Connection` that outgoing requests use."""

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent."""

    @property
    def peer_name(self) -> str:
        """Name of the peer for errors and the log."""

    def send(self, message: RemotingCommand) -> None:
        """Encode a request and queue it for sending."""

    def abort(self) -> None:
        """Close the connection immediately."""


class OutgoingRequests:
    """Sends the requests of one connection."""

    def __init__(self, connection: RequestTransport, limits: ConnectionLimits) -> None:
        self.unanswered_since: float | None = None
        """Loop time of the first request sent after the last received data. The connection resets it."""
        self.pending: Deadlines[RemotingCommand] = Deadlines()
        self.is_doubtful = False
        """Whether a request has timed out while nothing was received. New requests then need another connection: the
        address may lead to another process by now. Pending requests may still be answered.
        """
        self._connection = connection
        self._limits = limits
        self._next_opaque = 1
        self._session = secrets.token_hex(8)
        """Session id of full signatures (:mod:`raptormq.protocol.full_signature`)."""
        self._signed_count = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._is_grace = False

    def request(self, message: RemotingCommand, timeout: float) -> asyncio.Future[RemotingCommand]:
        """Send a request. The future completes with the response or an error, see ``Connection.request``."""
        connection, loop = self._connection, asyncio.get_running_loop()
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        if connection.is_closed:
            future.set_exception(ConnectionClosed(f"the connection to {connection.peer_name} is closed"))
            return future
        opaque = self._prepare(message)
        now = loop.time()
        due = self.pending.add(opaque, future, now + max(0.0, min(timeout, LONGEST_WAIT_S)))
        if self._sweeper is None or (due < self._sweep_at and not self._is_grace):
            self._sweep_later(due)
        try:
            connection.send(message)
        except BaseException:
            self.pending.take(opaque)  # the peer will not respond
            raise
        if self.unanswered_since is None:
            self.unanswered_since = now
        return future

    def oneway(self, message: RemotingCommand) -> None:
        """Send a request without a response."""
        self._prepare(message)
        self._connection.send(message)

    def _prepare(self, message: RemotingCommand) -> int:
        message.opaque = opaque = self._next_opaque
        self._next_opaque = opaque % _MAX_OPAQUE + 1  # some clients treat an opaque of 0 as absent
        if (credentials := self._limits.credentials) is not None:
            self._signed_count += 1
            moment = SignatureStamp(time.time_ns() // 1_000_000, self._session, self._signed_count)
            sign_fully(message, credentials() if callable(credentials) else credentials, moment)
        return opaque

    def answered(self, response: RemotingCommand) -> None:
        """Complete the request of a response."""
        future = self.pending.take(response.opaque)
        if future is not None and not future.done():  # otherwise the request has timed out or was cancelled
            future.set_result(response)

    def failed(self, opaque: int, error: CommandError) -> None:
        """Fail the request whose response cannot be decoded."""
        future = self.pending.take(opaque)
        if future is not None and not future.done():
            future.set_exception(error)

    def fail(self, error: type[ConnectionClosed | BufferFull], text: str) -> None:
        """Fail all pending requests."""
        complete_in_batches(self.pending.take_all(), lambda future: future.set_exception(error(text)))

    def close(self) -> None:
        """Cancel the timer."""
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep_later(self, due: float) -> None:
        self.close()
        self._sweeper, self._sweep_at = asyncio.get_running_loop().call_at(due, self._sweep), due

    def _sweep(self) -> None:
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        # The grace period is granted once: requests have to time out in a permanently busy process too.
        self._is_grace = not self._is_grace and now - self._sweep_at >= _STOPPED_S
        if self._is_grace:
            self._sweep_later(now + _GRACE_S)
            return
        now = max(now, self._sweep_at)  # timers have millisecond resolution and may fire early
        expired = [future for future in self.pending.take_expired(now) if not future.done()]
        if expired:
            text = f"no response from {self._connection.peer_name} in time"
            since = self.unanswered_since
            self.is_doubtful |= (
                self._limits.silence_seconds is not None and since is not None and now - since >= _DOUBT_S
            )
            complete_in_batches(expired, lambda future: future.set_exception(RequestTimeout(text)))
            self._drop_if_silent(now)
        self.close_if_unused()
        due = self.pending.next_due
        if due is not None:  # also while closing: a peer that does not read can delay the close
            self._sweep_later(due)

    def close_if_unused(self) -> None:
        """Close a doubtful connection without pending requests, because nobody uses it any more."""
        if self.is_doubtful and not self.pending:
            self._connection.abort()

    def _drop_if_silent(self, now: float) -> None:
        limit, since, connection = self._limits.silence_seconds, self.unanswered_since, self._connection
        if limit is not None and since is not None and now - since >= limit and not connection.is_closed:
            logger.warning("dropping %s: received nothing from it for %.1f s", connection.peer_name, now - since)
            self.fail(
                ConnectionClosed, f"no response: nothing came from {connection.peer_name} for {now - since:.1f} s"
            )
            connection.abort()
