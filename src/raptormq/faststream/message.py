"""Messages in the form that handlers get, and their creation from received messages.

A handler settles a message by ``ack``, ``nack`` or ``reject``, or FastStream does so by the ack policy. Without an
order, this settles the client's message at once (:class:`raptormq.client.ReceivedMessage`). With an order, the result
of the listener decides, so :class:`OrderedMessage` only records the decision of the handler. A batch subscriber gets a
:class:`raptormq.client.ReceivedBatch` or :class:`OrderedBatch` in place of the message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from faststream.message import StreamMessage, decode_message

from raptormq.client import MessageExt, ReceivedBatch, ReceivedMessage, Retry, RetryKind
from raptormq.client.consumer import is_lasting
from raptormq.client.message import values_of
from raptormq.errors import ConfigError, NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.protocol.properties import REPLY_TO_CLIENT

CONTENT_TYPE = "content-type"
"""Property with the content type of the body, by which FastStream decodes it."""
CORRELATION_ID = "correlation_id"
"""Property with the id that connects messages of one flow."""
REJECTED = "rejected"
"""Default reason of a dead letter."""


class Noting:
    """Records the decision of the handler, which takes effect when its call has ended."""

    is_acked: bool
    is_rejected: bool

    async def ack(self) -> bool:
        """Record that the messages of the call are consumed."""
        self.is_acked = True
        return True

    async def retry(self, after: float | None = None) -> Retry:
        """Leave the messages for a retry, before the next messages of their queue or key.

        Raises:
            ConfigError: ``after`` is given; the pause is that of the consumer.
        """
        if after is not None:
            raise ConfigError(
                "an ordered message is retried after ConsumerConfig.retry_pause: call nack() without after"
            )
        return Retry(RetryKind.HANDED_OVER)

    async def dead_letter(self, reason: str) -> bool:
        """Record that the messages are given up: ``ConsumerConfig.on_failure`` applies."""
        self.is_rejected = True
        return True


@dataclass(slots=True)
class OrderedMessage(MessageExt, Noting):
    """A message of a consumer with an order."""

    is_acked: bool = field(default=False, kw_only=True, compare=False)
    is_rejected: bool = field(default=False, kw_only=True, compare=False)

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """Return ``message`` as a message that a handler can settle."""
        return cls(*values_of(message))


class OrderedBatch(list[MessageExt], Noting):
    """Messages of one call of a consumer with an order. They are settled together only. If several messages are
    rejected, they are first consumed again one by one.
    """

    def __init__(self, messages: Iterable[MessageExt]) -> None:
        super().__init__(messages)
        self.is_acked = self.is_rejected = False


Settleable = ReceivedMessage | OrderedMessage


class Unsettled:
    """A message or batch during the call of its handler, and the decision about it that no broker has accepted.

    FastStream logs the error of such a decision, and nobody else would repeat it.
    """

    def __init__(self, taken: object) -> None:
        self.taken = taken
        self.decision: Callable[[], Awaitable[object]] | None = None
        """Call that repeats the decision."""


def may_be_accepted(error: RaptorMQError) -> bool:
    """Return whether a broker may accept a decision later that has failed with this error."""
    return isinstance(error, NoRoute | TransportError | ServerError) and not is_lasting(error)


_unsettled: ContextVar[Unsettled | None] = ContextVar("unsettled", default=None)


def note_decisions(taken: object) -> Unsettled:
    """Note the refused decision about a message or batch, which the current task passes to its handler now."""
    unsettled = Unsettled(taken)
    _unsettled.set(unsettled)
    return unsettled


class StreamRaptorMessage(StreamMessage[Any]):
    """The message that a handler gets. ``raw_message`` is the message of the client."""

    raw_message: Settleable

    async def ack(self) -> None:
        """Acknowledge the message."""
        if self.committed is None:
            with self._noting(self.ack):
                await self.raw_message.ack()
        await super().ack()

    async def nack(self, after: float | None = None) -> None:
        """Request redelivery of the message ``after`` seconds later, by default with the growing delay of the broker.

        Raises:
            ConfigError: ``after`` is given and the subscriber has an order.
            ClientError, TransportError, ServerError, MessageError: as :meth:`raptormq.client.ReceivedMessage.retry`.
        """
        if self.committed is None:
            with self._noting(partial(self.nack, after)):
                await self.raw_message.retry(after)
        await super().nack()

    async def reject(self, reason: str = REJECTED) -> None:
        """Store the message as a dead letter of the group, with the reason in its property ``DLQ_REASON``. With an
        order, ``ConsumerConfig.on_failure`` applies instead, and the dead letter has no reason.

        Raises:
            ClientError, TransportError, ServerError: as :meth:`raptormq.client.ReceivedMessage.dead_letter`.
        """
        if self.committed is None:
            with self._noting(partial(self.reject, reason)):
                await self.raw_message.dead_letter(reason)
        await super().reject()

    @contextmanager
    def _noting(self, decision: Callable[[], Awaitable[object]]) -> Iterator[None]:
        """Note the decision if no broker accepts it in the block, and one may accept it later."""
        unsettled = _unsettled.get()
        if unsettled is None or unsettled.taken is not self.raw_message:  # taken without a handler: its caller decides
            yield
            return
        unsettled.decision = None
        try:
            yield
        except RaptorMQError as error:
            if may_be_accepted(error):
                unsettled.decision = decision
            raise


class StreamRaptorBatch(StreamRaptorMessage):
    """The batch that a handler gets. ``raw_message`` is a sequence of the client's messages. ``ack``, ``nack`` and
    ``reject`` settle the messages that are not settled.
    """

    raw_message: ReceivedBatch | OrderedBatch  # type: ignore[assignment] # it is settled by the same calls


async def parse_message(message: MessageExt) -> StreamRaptorMessage:
    """Return a received message in FastStream's form. Headers are the properties of the application."""
    headers = message.user_properties
    return StreamRaptorMessage(
        message,
        message.body,
        headers=headers,
        reply_to=message.properties.get(REPLY_TO_CLIENT, ""),
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        message_id=message.message_id,
    )


async def parse_batch(batch: ReceivedBatch | OrderedBatch) -> StreamRaptorBatch:
    """Return a received batch in FastStream's form. The headers are those of the first message; ``batch_headers``
    contains the headers of each message.
    """
    headers = [message.user_properties for message in batch]
    return StreamRaptorBatch(
        batch,
        [message.body for message in batch],
        headers=headers[0],
        batch_headers=headers,
        content_type=headers[0].get(CONTENT_TYPE),
        correlation_id=headers[0].get(CORRELATION_ID),
        message_id=",".join(message.message_id for message in batch),
    )


async def decode_batch(message: StreamMessage[Any]) -> list[Any]:
    """Return the value of each body of a batch, by its own content type."""
    return [decode_message(await parse_message(each)) for each in message.raw_message]


async def decode(message: StreamMessage[Any]) -> Any:
    """Return the value of a body: JSON, text or bytes, by its content type."""
    return decode_message(message)
