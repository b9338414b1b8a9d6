"""Back pressure: limits the messages in flight of a client, that is, accepted messages without an outcome.

Without a limit, a program that produces faster than the brokers store, or whose broker does not respond, would run out
of memory. `SendRoom` counts messages and bytes over all producers of a client, each of which has its own limits.
Senders above a limit wait in a FIFO queue, which they leave at once when they are cancelled; a message larger than the
limit is sent when nothing else is in flight::

    room -> enter ------------------------------------> leave
    full -> wait in line -- room, in order, in turns --> enter
              `------------ send_timeout --------------> RequestTimeout, nothing was sent

Batches of AutoBatch count their encoded records, single sends count bodies. At most `GRANTED_PER_TURN` senders enter
per iteration of the event loop. A program may have hundreds of thousands of messages in line, so a sender in line is
one small object: it is its own callback, and deadlines are kept in buckets of `BUCKET_S`.

See also: `producer.producer` enters single sends and waits, `producer.accumulator` enters batches,
`producer.in_flight` limits the bytes sent to brokers. Source: RocketMQ `backPressureForAsyncSendNum` and
`backPressureForAsyncSendSize`, Kafka `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.errors import RequestTimeout
from raptormq.transport.requests import BUCKET_S

GRANTED_PER_TURN = 200


class InLine(ABC):
    """A sender that waits for the limits.

    Args:
        config: the limits.
        timeout: maximum wait in seconds.
    """

    __slots__ = ("bucket", "config", "is_out", "timeout")

    def __init__(self, config: ProducerConfig, timeout: float) -> None:
        self.config = config
        self.timeout = timeout
        self.bucket = 0
        """Number of the bucket with its deadline."""
        self.is_out = False
        """Whether the sender has left the line."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of the message, while it waits."""

    @property
    def deadline(self) -> float:
        """Deadline of the wait (loop time): the end of the bucket."""
        return self.bucket * BUCKET_S

    @abstractmethod
    def end(self, error: BaseException | None) -> None:
        """Called once, in the event loop. `error` is None when the limits permit the message, which must then be sent
        or discarded before the return. It is `RequestTimeout` after the timeout, and `ClientClosed` if the producer is
        closed. Must not raise.
        """


class _Awaited(InLine):
    """A waiting coroutine. Its message counts as in flight from the grant until the coroutine runs."""

    __slots__ = ("_size", "future", "room")

    def __init__(self, room: SendRoom, config: ProducerConfig, size: int, timeout: float) -> None:
        super().__init__(config, timeout)
        self._size = size
        self.room = room
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def size(self) -> int:
        return self._size

    def end(self, error: BaseException | None) -> None:
        if self.future.done():  # cancelled
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.room.enter(1, self._size)
            self.future.set_result(None)


class SendRoom:
    """Messages in flight of one client."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.waiting = 0
        """Number of waiting senders."""
        self._line: deque[InLine] = deque()
        """Waiting senders in order, and at most as many senders that have left the line."""
        self._buckets: dict[int, set[InLine]] = {}
        """Waiting senders by deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_number = 0
        """The bucket at whose end the timer fires."""
        self._loop = asyncio.get_running_loop()
        self._is_waking = False
        self.when_full: Callable[[], None] = lambda: None
        """Called when the limits are reached and senders wait; must not change the line."""

    @classmethod
    def of(cls, _: ClientInstance) -> SendRoom:
        """Return the `SendRoom` of a client, for :meth:`ClientInstance.shared`."""
        return cls()

    def is_full(self, config: ProducerConfig, size: int) -> bool:
        """Return whether a message of `size` bytes must wait."""
        return self.waiting > 0 or not self._fits(config, size)

    def _fits(self, config: ProducerConfig, size: int) -> bool:
        return not self.messages or (
            self.messages < config.max_in_flight_messages and self.bytes + size <= config.max_in_flight_bytes
        )

    @property
    def line(self) -> list[InLine]:
        """The waiting senders, in order."""
        return [waiting for waiting in self._line if not waiting.is_out]

    def enter(self, messages: int, size: int) -> None:
        """Count messages as in flight."""
        self.messages += messages
        self.bytes += size

    def leave(self, messages: int, size: int) -> None:
        """Count messages as completed, and let waiting senders enter."""
        self.messages -= messages
        self.bytes -= size
        if self.waiting:
            self._wake()

    async def wait(self, config: ProducerConfig, size: int, timeout: float, calls: set[asyncio.Future[None]]) -> None:
        """Wait until the limits permit. The caller must send, and thereby enter, before its next await.

        Args:
            config: the limits.
            size: bytes of the message.
            timeout: seconds.
            calls: contains a future during the wait; its exception ends the wait and is raised.

        Raises:
            RequestTimeout: The limits did not permit the send within `timeout` seconds; nothing was sent.
        """
        waiting = _Awaited(self, config, size, timeout)
        self.join(waiting)
        calls.add(waiting.future)
        try:
            await waiting.future
        except BaseException:
            if not waiting.future.cancelled() and waiting.future.exception() is None:
                self.leave(1, size)  # granted at the same time as the cancellation
            else:
                self.quit(waiting)
            raise
        finally:
            calls.discard(waiting.future)
        # The place reserved since the grant is given up, because the message is sent now or is invalid.
        self.leave(1, size)

    def join(self, waiting: InLine) -> None:
        """Put a sender at the end of the line. Its `end` is called later, never by this method."""
        self._line.append(waiting)
        self.waiting += 1
        number = waiting.bucket = int((self._loop.time() + waiting.timeout) / BUCKET_S) + 1
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = set()
        bucket.add(waiting)
        if self._timer is None or number < self._timer_number:
            self._expire_later(number)
        self._wake()  # for `when_full`

    def quit(self, waiting: InLine) -> None:
        """Take a sender out of the line; its `end` is not called. No effect if it is out."""
        if not waiting.is_out:
            self._take_out(waiting)
            self._wake()  # the next one may be smaller

    def _take_out(self, waiting: InLine) -> None:
        waiting.is_out = True
        self.waiting -= 1
        if len(self._line) > 2 * self.waiting:
            self._line = deque(self.line)
        bucket = self._buckets[waiting.bucket]
        bucket.discard(waiting)
        if not bucket:
            del self._buckets[waiting.bucket]

    def _wake(self) -> None:
        """Let waiting senders enter, in the next iteration of the event loop, while the limits permit. After a pause of
        the event loop, many senders may be past their deadline before `_expire` has run: they get their error instead
        of an attempt without time.
        """
        if self.waiting and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_waking = False
        granted, now = 0, self._loop.time()
        while self.waiting:
            waiting = self._line[0]
            if waiting.is_out:
                self._line.popleft()
                continue
            if granted == GRANTED_PER_TURN:
                self._wake()
                return
            is_late = waiting.deadline <= now
            if not (is_late or self._fits(waiting.config, waiting.size)):
                self.when_full()
                return
            granted += 1
            self._line.popleft()
            self._take_out(waiting)
            waiting.end(no_room(waiting.timeout) if is_late else None)

    def _expire_later(self, number: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_number = self._loop.call_at(number * BUCKET_S, self._expire), number

    def _expire(self) -> None:
        """End up to `GRANTED_PER_TURN` senders whose deadline has passed; the others follow in later event loop
        iterations.
        """
        self._timer = None
        now = self._loop.time() + 0.001  # timers may fire early
        left = GRANTED_PER_TURN
        while left and self._buckets and (number := min(self._buckets)) * BUCKET_S <= now:
            bucket = self._buckets[number]
            while left and bucket:
                waiting = bucket.pop()  # `next(iter())` would scan all removed entries first
                self._take_out(waiting)
                waiting.end(no_room(waiting.timeout))
                left -= 1
        if self._buckets:
            self._expire_later(min(self._buckets))
        self._wake()


def no_room(timeout: float) -> RequestTimeout:
    """Return the error for a message that exceeded its timeout while waiting for the limits."""
    return RequestTimeout(
        f"the message was not sent: it waited {timeout:g} s behind others in flight (max_in_flight_messages, "
        "max_in_flight_bytes)"
    )
