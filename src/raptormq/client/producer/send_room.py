"""Back pressure: limits the messages in flight of a client, that is, accepted messages without an outcome.

Without a limit, a program that produces faster than the brokers store, or whose broker does not respond, would run out
of memory. `SendRoom` counts messages and bytes over all producers of a client, each of which has its own limits.
Senders above a limit wait in a FIFO queue; a message larger than the limit is sent when nothing else is in flight::

    room -> enter ------------------------------------> leave
    full -> wait in line -- room, in order, in turns --> enter
              `------------ send_timeout --------------> RequestTimeout, nothing was sent

Batches of AutoBatch count their encoded records, single sends count bodies. At most `GRANTED_PER_TURN` senders enter
per iteration of the event loop.

See also: `producer.producer` enters single sends and waits, `producer.accumulator` enters batches,
`producer.in_flight` limits the bytes sent to brokers. Source: RocketMQ `backPressureForAsyncSendNum` and
`backPressureForAsyncSendSize`, Kafka `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.errors import RaptorMQError, RequestTimeout

GRANTED_PER_TURN = 200
_EXPIRY_STEP_S = 0.02
"""Time between two looks for deadlines that have passed."""


class InLine(ABC):
    """A sender that waits for the limits.

    Args:
        config: the limits of its producer.
        size: bytes of its message.
    """

    __slots__ = ("config", "deadline", "size")

    deadline: float
    """Loop time, set by `SendRoom.join`."""

    def __init__(self, config: ProducerConfig, size: int) -> None:
        self.config = config
        self.size = size

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether it does not wait any more."""

    @abstractmethod
    def let_in(self, room: SendRoom) -> None:
        """Enter, because the limits permit it now. Must not block or raise."""

    @abstractmethod
    def refuse(self, error: RaptorMQError) -> None:
        """End with an error, because the deadline has passed."""


class _Task(InLine):
    """A task that waits. Its place is reserved until it runs."""

    __slots__ = ("granted",)

    def __init__(self, config: ProducerConfig, size: int, granted: asyncio.Future[None]) -> None:
        super().__init__(config, size)
        self.granted = granted

    @property
    def is_over(self) -> bool:
        return self.granted.done()

    def let_in(self, room: SendRoom) -> None:
        room.enter(1, self.size)
        self.granted.set_result(None)

    def refuse(self, error: RaptorMQError) -> None:
        self.granted.set_exception(error)


class SendRoom:
    """Messages in flight of one client."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.line: deque[InLine] = deque()
        """Waiting senders, in order."""
        self._by_timeout: dict[float, deque[InLine]] = {}
        """Waiting senders with the same timeout, and thus in the order of their deadlines."""
        self._loop = asyncio.get_running_loop()
        self._is_waking = False
        self._timer: asyncio.Handle | None = None

    @classmethod
    def of(cls, _: ClientInstance) -> SendRoom:
        """Return the `SendRoom` of a client, for :meth:`ClientInstance.shared`."""
        return cls()

    def is_full(self, config: ProducerConfig, size: int) -> bool:
        """Return whether a message of `size` bytes must wait."""
        return bool(self.line) or not self._fits(config, size)

    def _fits(self, config: ProducerConfig, size: int) -> bool:
        return not self.messages or (
            self.messages < config.max_in_flight_messages and self.bytes + size <= config.max_in_flight_bytes
        )

    def enter(self, messages: int, size: int) -> None:
        """Count messages as in flight."""
        self.messages += messages
        self.bytes += size

    def leave(self, messages: int, size: int) -> None:
        """Uncount completed messages, and let waiting senders enter."""
        self.messages -= messages
        self.bytes -= size
        if self.line:
            self._wake()

    async def wait(self, config: ProducerConfig, size: int, timeout: float) -> None:
        """Wait until the limits permit. The caller must send, and thereby enter, before its next await.

        Raises:
            RequestTimeout: The limits did not permit the send within `timeout` seconds; nothing was sent.
        """
        waiting = _Task(config, size, self._loop.create_future())
        self.join(waiting, timeout)
        try:
            await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled() and waiting.granted.exception() is None:
                self.leave(1, size)
            else:
                self._wake()
            raise
        self._give_up_place(size)

    def join(self, waiting: InLine, timeout: float) -> None:
        """Let a sender wait for up to `timeout` seconds."""
        waiting.deadline = self._loop.time() + timeout
        self.line.append(waiting)
        same = self._by_timeout.get(timeout)
        if same is None:
            same = self._by_timeout[timeout] = deque()
            if self._timer is not None:  # it may be too late for this timeout
                self._timer.cancel()
                self._timer = None
        same.append(waiting)
        if self._timer is None:
            self._expire_later()

    def _give_up_place(self, size: int) -> None:
        """Give up the place reserved since the grant, because the message is sent now or is invalid."""
        self.messages -= 1
        self.bytes -= size
        if self.line:
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Let waiting senders enter while the limits permit."""
        if not self._is_waking:
            self._grant()

    def _grant(self) -> None:
        self._is_waking = False
        granted = 0
        while self.line:
            waiting = self.line[0]
            if not waiting.is_over:
                if granted == GRANTED_PER_TURN:
                    self._is_waking = True
                    self._loop.call_soon(self._grant)
                    break
                if not self._fits(waiting.config, waiting.size):
                    break
                granted += 1
            self.line.popleft()
            if not waiting.is_over:
                waiting.let_in(self)
        for same in self._by_timeout.values():
            while same and same[0].is_over:
                same.popleft()

    def _expire_later(self) -> None:
        """Set the timer to the first deadline, if anyone waits."""
        self._by_timeout = {timeout: same for timeout, same in self._by_timeout.items() if same}
        if self._by_timeout:
            first = min(same[0].deadline for same in self._by_timeout.values())
            self._timer = self._loop.call_at(max(first, self._loop.time() + _EXPIRY_STEP_S), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        refused = 0
        for timeout, same in self._by_timeout.items():
            while same and (same[0].is_over or same[0].deadline <= now):
                if refused == GRANTED_PER_TURN:
                    self._timer = self._loop.call_soon(self._expire)
                    return
                waiting = same.popleft()
                if not waiting.is_over:
                    waiting.refuse(no_room(timeout))
                    refused += 1
        self._wake()
        if self._timer is None:
            self._expire_later()


def no_room(timeout: float) -> RequestTimeout:
    """Return the error for a message that exceeded its timeout while waiting for the limits."""
    return RequestTimeout(
        f"the message was not sent: it waited {timeout:g} s behind others in flight (max_in_flight_messages, "
        "max_in_flight_bytes)"
    )
