"""A popped message until the application settles it, or its invisible time ends.

States are those of `consumer.delivery`. A message is given up when its invisible time ends: the broker delivers it
again, so nothing more is sent for it. The time is measured from the response to the pop, so it never ends here before
it ends at the broker.

See also: `consumer.pop_requests` sends, `consumer.pop_consumer` hands messages out. Source: RocketMQ 5
`SimpleConsumer.ack`, `changeInvisibleDuration`; none for `retry` and `dead_letter`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from raptormq.client.consumer.delayed_retry import LEVEL_DELAYS_S, DelayedRetry, Retry, RetryKind
from raptormq.client.consumer.delivery import Delivery, DeliveryState, MessagesToSettle, ReceivedMessage, results_of
from raptormq.client.consumer.pop_requests import Popped, PopRequests
from raptormq.client.interceptors import ConsumeStatus
from raptormq.client.settings import Limits, check_setting
from raptormq.protocol.delay_levels import FIRST_RETRY_LEVEL

MAX_INVISIBLE_S = 300.0
"""Longest invisible time of a pop that brokers accept."""
Invisible = Annotated[float, Limits(int(MAX_INVISIBLE_S))]
"""An invisible time in seconds."""


class PopDelivery(Delivery):
    """A popped message.

    Args:
        requests: sends requests to its broker.
        popped: the message with its handle.
        retries: stores dead letters.
        ended: called once, with the status, when the message is settled or abandoned.
    """

    __slots__ = ("_loop", "_requests", "_timer", "_visible_at", "popped")

    _GIVEN_UP = "its invisible time was over, or the consumer was closed"

    def __init__(
        self,
        requests: PopRequests,
        popped: Popped,
        retries: DelayedRetry,
        ended: Callable[[PopDelivery, ConsumeStatus], None],
    ) -> None:
        super().__init__(popped.message, retries, ended)
        self._loop = asyncio.get_running_loop()
        self._requests = requests
        self._timer: asyncio.TimerHandle | None = None
        self.popped = popped
        self._count_down()

    @property
    def is_given_up(self) -> bool:
        """Whether the invisible time is over."""
        return self._loop.time() >= self._visible_at

    async def ack(self) -> bool:
        """Acknowledge the message at its broker. Return False if its invisible time was over."""
        if not self._begin("acknowledged"):
            return False
        try:
            await self._requests.ack(self.popped)
        except BaseException:
            self._reopen()
            raise
        self._settle(ConsumeStatus.CONSUMED)
        return True

    async def retry(self, after: float | None) -> Retry:
        """Let the message become visible in `after` seconds."""
        if after:
            check_setting("after", after, Invisible)
        return await super().retry(after)

    async def change_invisible_time(self, seconds: float) -> bool:
        """Let the invisible time end in `seconds` from now. Return False if it was over."""
        check_setting("seconds", seconds, Invisible)
        if not self._begin("given another invisible time"):
            return False
        try:
            self.popped = await self._requests.change_invisible_time(self.popped, seconds)
            self._count_down()
        finally:
            self._reopen()
        return True

    async def _redeliver(self, after: float | None) -> Retry:
        if await self.retries.give_up_exhausted(self.message):
            await self._requests.ack(self.popped)
            return Retry(RetryKind.DEAD_LETTER)
        if after is None:
            level = min(FIRST_RETRY_LEVEL + self.message.reconsume_times, len(LEVEL_DELAYS_S))
            after = min(LEVEL_DELAYS_S[level - 1], MAX_INVISIBLE_S)
        await self._requests.change_invisible_time(self.popped, after)
        return Retry(RetryKind.TIMER, after) if after else Retry(RetryKind.AT_ONCE)

    async def _give_up(self, reason: str) -> None:
        await super()._give_up(reason)
        await self._requests.ack(self.popped)

    def _count_down(self) -> None:
        """Abandon the message at the end of its invisible time, which begins now."""
        if self._timer is not None:
            self._timer.cancel()
        self._visible_at = self._loop.time() + self.popped.handle.invisible_time / 1000
        self._timer = self._loop.call_at(self._visible_at, self._expire)

    def _expire(self) -> None:
        if not self.is_given_up:  # timers of uvloop may fire early by a fraction of a millisecond
            self._timer = self._loop.call_at(self._visible_at, self._expire)
        elif self.state is DeliveryState.OPEN:
            self.abandon()

    def _reopen(self) -> None:
        super()._reopen()
        if self.state is DeliveryState.OPEN and self.is_given_up:
            self.abandon()

    def _end(self, status: ConsumeStatus) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # a cancelled timer would keep this object until its time
        super()._end(status)


@dataclass(slots=True)
class PoppedMessage(ReceivedMessage):
    """A popped message, which the application settles before its invisible time ends.

    `ack`, `retry` and `dead_letter` wait for the broker. They return `False`, or a `Retry` of the kind `HANDED_OVER`,
    if the invisible time was over or the consumer was closed: the message is delivered again. They raise `NoRoute`,
    `TransportError` or `ServerError` if the broker has not accepted the call; the message may be delivered again, and
    can be settled by another call.

    `retry(after)` lets the message become visible after at most 300 seconds. Without a delay the time grows with the
    number of deliveries, from 10 s to 300 s. A message that was delivered 1 + `max_reconsume_times` times becomes a
    dead letter by `retry`, and also when its invisible time ends: the next member that pops it does not deliver it.
    """

    _delivery: PopDelivery = field(kw_only=True, repr=False, compare=False)

    @property
    def invisible_until_ms(self) -> int:
        """When the message becomes visible to other members, in ms since 1970 by the clock of the broker."""
        handle = self._delivery.popped.handle
        return handle.pop_time + handle.invisible_time

    async def change_invisible_time(self, seconds: float) -> bool:
        """Let the message become visible to other members in `seconds`, for example later because of long processing.
        May be called several times; the message stays unsettled.

        Returns:
            False if the invisible time was over, or the consumer was closed.

        Raises:
            ConfigError: `seconds` is not a number above 0, at most 300.
            ClientError: the message was settled before.
            NoRoute, TransportError, ServerError: as for `ack`.
        """
        return await self._delivery.change_invisible_time(seconds)


class PoppedBatch(MessagesToSettle[PoppedMessage]):
    """Messages that were popped together. They can also be settled individually."""

    __slots__ = ()

    async def ack(self) -> bool:
        """Acknowledge the unsettled messages concurrently. Return False if one of them was given up."""
        return all(await results_of(message.ack() for message in self._left))

    async def change_invisible_time(self, seconds: float) -> bool:
        """Change the invisible time of the unsettled messages concurrently. Return False if one of them was given up.
        Errors are those of `PoppedMessage.change_invisible_time`.
        """
        return all(await results_of(message.change_invisible_time(seconds) for message in self._left))
