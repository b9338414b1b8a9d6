"""A delivered message, until the application settles it: acknowledges it, retries it or stores it as a dead letter.

States of a `Delivery`::

    OPEN --ack, retry, dead_letter--> SETTLING --accepted--> SETTLED
      |<------------------------------ refused or cancelled: the call raises, and the application decides again
      `--given up, consumer closed--> ABANDONED: another member, or the next start, delivers the message again

`QueueDelivery` is a message of an assigned queue. The committed offset of a queue is that of its first unsettled
message. Messages may therefore be settled in any order, and an unsettled message is delivered again.
`ReceivedMessage` and `ReceivedBatch` are the objects for the application.
See also: `consumer.delivery_buffer` delivers them, `consumer.process_queue` counts unsettled messages,
`consumer.delayed_retry` sends, `consumer.popped_message` has the deliveries of popped messages. Source: none; the names
are those of NATS and RocketMQ 5 (`SimpleConsumer.ack`).
"""

from __future__ import annotations

import asyncio
import enum
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, overload

from raptormq.client.background import gather_all
from raptormq.client.consumer.delayed_retry import DelayedRetry, Retry, RetryKind
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.interceptors import ConsumeContext, ConsumeStatus
from raptormq.client.message import values_of
from raptormq.client.settings import check_setting
from raptormq.errors import ClientError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt

log = get_logger(__name__)

T = TypeVar("T")
E_co = TypeVar("E_co", bound=MessageExt, covariant=True)
M_co = TypeVar("M_co", bound="ReceivedMessage", covariant=True)


class DeliveryState(enum.Enum):
    """State of a delivered message."""

    OPEN = "open"
    SETTLING = "being settled"
    SETTLED = "settled"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class HoldingThread:
    """A thread that takes messages from a blocking consumer."""

    thread: threading.Thread

    def done(self) -> bool:
        """Return whether the thread has ended."""
        return not self.thread.is_alive()


Holder = asyncio.Task[Any] | HoldingThread
"""Who takes messages, and is expected to settle them until it ends."""

_holding_thread: ContextVar[HoldingThread | None] = ContextVar("holding thread", default=None)


async def held_by(thread: threading.Thread, call: Callable[[], Awaitable[T]]) -> T:
    """Await a call on behalf of a thread: that thread, and not the current task, holds the messages that it takes."""
    _holding_thread.set(HoldingThread(thread))
    return await call()


def current_holder() -> Holder | None:
    """Return the thread for which the current task works, else that task."""
    return _holding_thread.get() or asyncio.current_task()


class Delivery(ABC):
    """State of one delivered message, without its interface for the application.

    Args:
        message: the message.
        retries: redelivers messages.
        ended: called once, with this object and the status, when the message is settled or abandoned.
    """

    __slots__ = ("_ended", "_verb", "context", "holder", "message", "retries", "state")

    _GIVEN_UP: ClassVar[str]
    """Reason why a message cannot be settled any more, for the log."""

    def __init__(self, message: MessageExt, retries: DelayedRetry, ended: Callable[[Any, ConsumeStatus], None]) -> None:
        self.message = message
        self.retries = retries
        self._ended = ended
        self._verb = ""
        self.state = DeliveryState.OPEN
        self.holder = current_holder()
        """Who has received the message."""
        self.context: ConsumeContext | None = None
        """State of the interceptors for this message; None without interceptors."""

    @property
    @abstractmethod
    def is_given_up(self) -> bool:
        """Whether the message is delivered again, whatever the application decides."""

    @abstractmethod
    async def ack(self) -> bool:
        """Acknowledge the message. Return False if the message was given up."""

    @abstractmethod
    async def _redeliver(self, after: float | None) -> Retry:
        """Redeliver the message; raises what `DelayedRetry.retry` raises."""

    async def retry(self, after: float | None) -> Retry:
        """Redeliver the message; raises what `DelayedRetry.retry` raises."""
        self.retries.check(after)
        if not self._begin("retried"):
            return Retry(RetryKind.HANDED_OVER)
        try:
            outcome = await self._redeliver(after)
        except BaseException:
            self._reopen()
            raise
        is_dead = outcome.kind is RetryKind.DEAD_LETTER
        self._settle(ConsumeStatus.DEAD_LETTER if is_dead else ConsumeStatus.RETRIED)
        return outcome

    async def _give_up(self, reason: str) -> None:
        """Store the message as a dead letter; raises what `DelayedRetry.dead_letter` raises."""
        await self.retries.dead_letter(self.message, reason)

    async def dead_letter(self, reason: str) -> bool:
        """Store the message as a dead letter; raises what `DelayedRetry.dead_letter` raises. Return False if it was
        given up.
        """
        check_setting("reason", reason, str)
        self.retries.check(None)
        if not self._begin("made a dead letter"):
            return False
        try:
            await self._give_up(reason)
        except BaseException:
            self._reopen()
            raise
        self._settle(ConsumeStatus.DEAD_LETTER)
        return True

    def abandon(self) -> None:
        """Abandon the unsettled message; no effect if it is settled."""
        if self.state in {DeliveryState.OPEN, DeliveryState.SETTLING}:
            self.state = DeliveryState.ABANDONED
            self._end(ConsumeStatus.ABANDONED)

    def _begin(self, verb: str) -> bool:
        """Begin to settle the message. Return False if it was given up.

        Raises:
            ClientError: the message is settled, or being settled.
        """
        if self.state in {DeliveryState.SETTLING, DeliveryState.SETTLED}:
            raise ClientError(f"{self._place} cannot be {verb}: it was {self._verb} before; settle a message once")
        if self.state is DeliveryState.OPEN and not self.is_given_up:
            self.state, self._verb = DeliveryState.SETTLING, verb
            return True
        log.warning("%s was %s too late: %s, so the message is delivered again", self._place, verb, self._GIVEN_UP)
        self.abandon()
        return False

    def _settle(self, status: ConsumeStatus) -> None:
        """End the delivery with a status, unless it was abandoned meanwhile."""
        if self.state is DeliveryState.SETTLING:
            self.state = DeliveryState.SETTLED
            self._end(status)

    def _reopen(self) -> None:
        if self.state is DeliveryState.SETTLING:
            self.state = DeliveryState.OPEN

    def _end(self, status: ConsumeStatus) -> None:
        self._ended(self, status)

    @property
    def _place(self) -> str:
        return f"message {self.message.message_id} at offset {self.message.queue_offset} of {self.message.queue}"


class QueueDelivery(Delivery):
    """A message of an assigned queue.

    Args:
        reader: reader of the queue.
        process_queue: the unfinished messages of the queue when the message was fetched.
        message: the message.
        retries: redelivers messages.
        ended: called once, with the status, when the message is settled or abandoned.
    """

    __slots__ = ("process_queue", "reader")

    _GIVEN_UP = "its queue was given up"

    def __init__(
        self,
        reader: QueueReader,
        process_queue: ProcessQueue,
        message: MessageExt,
        retries: DelayedRetry,
        ended: Callable[[QueueDelivery, ConsumeStatus], None],
    ) -> None:
        super().__init__(message, retries, ended)
        self.reader = reader
        self.process_queue = process_queue
        reader.calls.begin()

    @property
    def is_given_up(self) -> bool:
        """Whether this consumer has given up the queue, for example to another member."""
        return self.process_queue.dropped

    def complete(self) -> bool:
        """Complete the message. Return False if its queue was given up."""
        if not self._begin("acknowledged"):
            return False
        self._settle(ConsumeStatus.CONSUMED)
        return True

    async def ack(self) -> bool:
        """Complete the message, without waiting. Return False if its queue was given up."""
        return self.complete()

    async def _redeliver(self, after: float | None) -> Retry:
        return await self.retries.retry(self.message, after)

    def _settle(self, status: ConsumeStatus) -> None:
        if self.state is DeliveryState.SETTLING:
            self.reader.complete(self.process_queue, self.message.queue_offset)
        super()._settle(status)

    def _end(self, status: ConsumeStatus) -> None:
        self.reader.calls.end()
        super()._end(status)


@dataclass(slots=True)
class ReceivedMessage(MessageExt):
    """A received message, which the application settles by one of `ack`, `retry` and `dead_letter`.

    An unsettled message is delivered again after the consumer is closed, or after another member has taken over its
    queue. Until it is settled, no later offset of its queue is committed.
    """

    _delivery: Delivery = field(kw_only=True, repr=False, compare=False)

    @classmethod
    def of(cls, message: MessageExt, delivery: Delivery) -> Self:
        """Return `message` as a message that can be settled."""
        return cls(*values_of(message), _delivery=delivery)

    async def ack(self) -> bool:
        """Acknowledge the message: it is consumed. The offset is committed later (`ConsumerConfig.commit_interval`), so
        this call does not wait for a broker.

        Returns:
            False if the queue was given up meanwhile, to another member or by closing the consumer: the message is
            delivered again.

        Raises:
            ClientError: the message was settled before.
        """
        return await self._delivery.ack()

    async def retry(self, after: float | None = None) -> Retry:
        """Request redelivery of the message. Its `reconsume_times` is incremented. A message that was delivered 1 +
        `ConsumerConfig.max_reconsume_times` times becomes a dead letter.

        Args:
            after: delay in seconds. Brokers of RocketMQ 5 with timers keep exactly this delay, up to 3 days by default.
            Others use the next delay level that is not shorter: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h,
            2 h. `None` for a delay chosen by the broker, from 10 s and growing with the number of deliveries; 0 for no
            delay.

        Returns:
            Kind and time of the redelivery.

        Raises:
            ConfigError: `after` is not a number from 0.
            ClientError: the message was settled before, or the group broadcasts.
            MessageError: there are no timers, and every delay level is shorter.
            NoRoute, TransportError, ServerError: no broker accepts the message now. It stays unsettled.
        """
        return await self._delivery.retry(after)

    async def dead_letter(self, reason: str) -> bool:
        """Store the message in the topic `%DLQ%` of the group, with the reason in its property `DLQ_REASON`.

        Args:
            reason: text for people, of which the first 1,000 characters are kept.

        Returns:
            False if the queue was given up meanwhile: the message is delivered again.

        Raises:
            ConfigError: the reason is not text.
            ClientError, NoRoute, TransportError, ServerError: as for `retry`.
        """
        return await self._delivery.dead_letter(reason)


class MessageSequence(Sequence[E_co]):
    """Messages that were received together."""

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[E_co]) -> None:
        self._messages = messages

    @overload
    def __getitem__(self, index: int) -> E_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[E_co]: ...

    def __getitem__(self, index: int | slice) -> E_co | Sequence[E_co]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} messages)"


class MessagesToSettle(MessageSequence[M_co]):
    """Messages that can be settled together or individually."""

    __slots__ = ()

    @property
    def open(self) -> list[M_co]:
        """The unsettled messages."""
        return [message for message in self._messages if message._delivery.state is DeliveryState.OPEN]  # noqa: SLF001

    @property
    def _left(self) -> list[M_co]:
        """The messages that are unsettled, or were given up."""
        left = DeliveryState.OPEN, DeliveryState.ABANDONED
        return [message for message in self._messages if message._delivery.state in left]  # noqa: SLF001

    async def ack(self) -> bool:
        """Acknowledge the unsettled messages. Return False if one of them was given up."""
        return all([await message.ack() for message in self._left])

    async def retry(self, after: float | None = None) -> list[Retry]:
        """Retry the unsettled messages concurrently; arguments and errors are those of `ReceivedMessage.retry`. After
        an error, the messages that no broker has accepted stay unsettled.
        """
        return await results_of(message.retry(after) for message in self._left)

    async def dead_letter(self, reason: str) -> bool:
        """Store the unsettled messages as dead letters concurrently. Return False if one of them was given up. Errors
        are those of `ReceivedMessage.dead_letter`.
        """
        return all(await results_of(message.dead_letter(reason) for message in self._left))


class ReceivedBatch(MessagesToSettle[ReceivedMessage]):
    """Messages that were received together. They can also be settled individually."""

    __slots__ = ()


async def results_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run calls concurrently and return their results. All of them end before an error is raised."""
    running = [asyncio.ensure_future(call) for call in calls]
    await gather_all(running)
    return [each.result() for each in running]
