"""Back pressure: limits the messages in flight of a client, that is, accepted messages without an outcome.

Without a limit, a program that produces faster than the brokers store, or whose broker does not respond, would run out
of memory. `SendRoom` counts messages and bytes over all producers of a client, each of which has its own limits.
Senders above a limit wait in a FIFO queue, which they leave at once when they are cancelled; a message larger than the
limit is sent when nothing else is in flight::

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
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.errors import RequestTimeout
from raptormq.transport.requests import TimedWaiters

GRANTED_PER_TURN = 200


class _InLine(NamedTuple):
    """A waiting sender."""

    config: ProducerConfig
    size: int


class SendRoom:
    """Messages in flight of one client."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.line: OrderedDict[asyncio.Future[None], _InLine] = OrderedDict()
        """Waiting senders, in order, by the futures that are done when they may send. A `dict` would become slow when
        its first items are removed.
        """
        self._waiters: TimedWaiters[None] = TimedWaiters()
        self._loop = asyncio.get_running_loop()
        self._is_waking = False

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

    async def wait(self, config: ProducerConfig, size: int, timeout: float, waiting: set[asyncio.Future[None]]) -> None:
        """Wait until the limits permit. The caller must send, and thereby enter, before its next await.

        Args:
            config: the limits.
            size: bytes of the message.
            timeout: seconds.
            waiting: contains a future during the wait; its exception ends the wait and is raised.

        Raises:
            RequestTimeout: The limits did not permit the send within `timeout` seconds; nothing was sent.
        """
        granted: asyncio.Future[None] = self._loop.create_future()
        self.line[granted] = _InLine(config, size)
        waiting.add(granted)
        try:
            await self._waiters.wait(granted, self._loop.time() + timeout)
        except BaseException as error:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.leave(1, size)  # granted at the same time as the cancellation
            else:
                self._leave_line(granted)
            if isinstance(error, TimeoutError):
                raise no_room(timeout) from None
            raise
        finally:
            waiting.discard(granted)
        self._give_up_place(size)

    def call_when_room(
        self, config: ProducerConfig, size: int, timeout: float, call: Callable[[BaseException | None], None]
    ) -> asyncio.Future[None]:
        """Call a function, which sends, as soon as the limits permit. It is called with `RequestTimeout` after
        `timeout` seconds, or with `CancelledError` if the returned future was cancelled.
        """
        granted: asyncio.Future[None] = self._loop.create_future()
        self.line[granted] = _InLine(config, size)
        number = self._waiters.add(granted, self._loop.time() + timeout)

        def end(done: asyncio.Future[None]) -> None:
            self._waiters.remove(number)
            if done.cancelled() or done.exception() is not None:
                self._leave_line(done)
                call(asyncio.CancelledError() if done.cancelled() else no_room(timeout))
                return
            self._give_up_place(size)
            call(None)

        granted.add_done_callback(end)
        return granted

    def _give_up_place(self, size: int) -> None:
        """Give up the place reserved since the grant, because the message is sent now or is invalid."""
        self.messages -= 1
        self.bytes -= size
        if self.line:
            self._loop.call_soon(self._wake)

    def _leave_line(self, granted: asyncio.Future[None]) -> None:
        """Leave the line without having sent."""
        self.line.pop(granted, None)
        self._wake()

    def _wake(self) -> None:
        """Let waiting senders enter while the limits permit. Each reserves its place until it sends."""
        if not self._is_waking:
            self._grant()

    def _grant(self) -> None:
        self._is_waking = False
        count = 0
        while self.line:
            granted, (config, size) = next(iter(self.line.items()))
            if not granted.done():
                if count == GRANTED_PER_TURN:
                    self._is_waking = True
                    self._loop.call_soon(self._grant)
                    return
                if not self._fits(config, size):
                    return
                self.enter(1, size)
                granted.set_result(None)
                count += 1
            del self.line[granted]


def no_room(timeout: float) -> RequestTimeout:
    """Return the error for a message that exceeded its timeout while waiting for the limits."""
    return RequestTimeout(
        f"the message was not sent: it waited {timeout:g} s behind others in flight (max_in_flight_messages, "
        "max_in_flight_bytes)"
    )
