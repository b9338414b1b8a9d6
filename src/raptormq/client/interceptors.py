"""Interceptors: code of the application, or of a library for metrics and traces, around each send and each consumption.

    class Counting(ProducerInterceptor):
        def after_send(self, context: SendContext) -> None:
            sent[context.message.topic] += 1

    Producer("billing", interceptors=[Counting()])

Order of the calls, with interceptors A and B::

    send      A.before_send, B.before_send, the send with all its attempts, B.after_send, A.after_send
    consume   A.before_consume, B.before_consume, listener or loop,         B.after_consume, A.after_consume

Each `before_` call has exactly one `after_` call with the same context. A listener runs between the two in one task, so
an interceptor may set a context variable in the first and reset it in the second. A loop over a `Consumer` may settle
its message at any time, perhaps in another task.

Other calls have no counterpart: `on_backpressure` and `on_end_transaction` of producers, `on_dead_letter` and
`on_rebalance` of consumers, and `on_start` and `on_close` of both. `on_start` passes the client, whose `describe()` an
interceptor may call until `on_close`.

Interceptors run in the event loop and must not block. An interceptor that raises is logged, once a minute for each kind
of call, and changes nothing else: a message must not be lost because a metric could not be counted.

See also: `config` has them as settings; `producer.producer`, `consumer.listener_call` and `consumer.delivery` call
them. Source: RocketMQ `SendMessageHook`, `ConsumeMessageHook`; Kafka `ProducerInterceptor`.
"""

from __future__ import annotations

import enum
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from raptormq.client.background import PROGRAM_ENDS
from raptormq.client.description import ConsumerDescription, ProducerDescription
from raptormq.client.results import SendResult, TransactionState
from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.message import Message, MessageExt, MessageQueue

log = get_logger(__name__)

FAILURE_INTERVAL_S = 60.0
"""Minimum interval in seconds between two log lines about the same method of an interceptor."""


@dataclass(slots=True)
class SendContext:
    """One message that is sent; the messages of `send_batch` have one context each."""

    group: str
    """The producer group."""
    message: Message
    """A copy of the message of the application. `before_send` may change it, for example its properties, or replace it
    by another message of the same topic.
    """
    queue: MessageQueue | None
    """The queue that the application has chosen."""
    count: int = 1
    """Number of messages that are sent by the same call."""
    index: int = 0
    """Index of the message in that call."""
    in_transaction: bool = False
    """Whether the message is delivered only when its transaction is committed."""
    result: SendResult | None = None
    """The result, for `after_send`; `None` after an error, and for a oneway message."""
    error: BaseException | None = None
    """Error of a failed or cancelled send."""
    duration: float = 0.0
    """Seconds between `before_send` and `after_send`."""
    began: float | None = None
    """Time of `before_send`, in seconds of a monotonic clock; `None` if the interceptors were not called, because the
    value is not a message.
    """
    state: dict[Any, Any] = field(default_factory=dict)
    """Values that an interceptor keeps between its two calls, under a key of its own."""

    @property
    def message_id(self) -> str | None:
        """The id of the message; `None` without a result."""
        if self.result is None:
            return None
        return self.result.message_id.split(",")[self.index] if self.count > 1 else self.result.message_id


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The decision on a transaction, whether or not the broker has accepted it."""

    group: str
    """The producer group."""
    message: Message | MessageExt
    """The message: as it was sent, or as the broker has returned it for a check."""
    message_id: str
    offset_message_id: str
    """The id of the half message that the broker has assigned."""
    state: TransactionState
    from_check: bool
    """Whether the decision answers a transaction check of a broker."""


@dataclass(frozen=True, slots=True)
class BackpressureContext:
    """A send that has to wait for the limits of messages in flight."""

    group: str
    """The producer group."""
    topic: str
    in_flight_messages: int
    """Messages without an outcome, of all producers with the same `ClientConfig`."""
    in_flight_bytes: int


class ConsumeStatus(enum.Enum):
    """Outcome of consumed messages."""

    CONSUMED = "consumed"
    """A listener has returned successfully, or the loop has acknowledged the message."""
    RETRIED = "retried"
    """Some or all messages are delivered again, after a failure or at the request of the application."""
    DEAD_LETTER = "dead letter"
    """The loop has made the message a dead letter."""
    ABANDONED = "abandoned"
    """The loop has not settled the message before its queue was given up, or before the invisible time of a popped
    message was over; it is delivered again.
    """


@dataclass(slots=True)
class ConsumeContext:
    """The messages of one listener call, or one message of a loop."""

    group: str
    """The consumer group."""
    topic: str
    """The topic of the messages, also when they came from a retry topic."""
    messages: Sequence[MessageExt]
    in_listener: bool = True
    """Whether a listener runs between `before_consume` and `after_consume`, in one task. False for a loop, which may
    settle its messages at any time.
    """
    status: ConsumeStatus | None = None
    """The outcome, for `after_consume`; `None` before."""
    failed: Sequence[MessageExt] = ()
    """The messages that are delivered again."""
    error: BaseException | None = None
    """Exception of the listener; `None` if the listener has returned, also if it requests redelivery."""
    duration: float = 0.0
    """Seconds between `before_consume` and `after_consume`."""
    began: float = 0.0
    """Time of `before_consume`, in seconds of a monotonic clock."""
    state: dict[Any, Any] = field(default_factory=dict)
    """Values that an interceptor keeps between its two calls, under a key of its own."""


@dataclass(frozen=True, slots=True)
class DeadLetterContext:
    """A message that is in the dead letter queue now."""

    group: str
    """The consumer group that could not consume the message."""
    message: MessageExt
    """The message, with its own topic also when it came from a retry topic."""
    dead_letter_topic: str
    reason: str | None
    """Reason given by the application; `None` if the retries are exhausted."""


class QueueChange(enum.Enum):
    """Kind of a change of the queues of a consumer."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    """The consumer gives up the queues, to another member or because it is closed."""
    LOST = "lost"
    """Another member has already taken over the queues."""


@dataclass(frozen=True, slots=True)
class RebalanceContext:
    """A change of the queues of a consumer."""

    group: str
    change: QueueChange
    queues: Sequence[MessageQueue]
    """The queues, without those of the retry topic, in order."""


class Described(Protocol):
    """A producer or a consumer."""

    def describe(self) -> ProducerDescription | ConsumerDescription:
        """Return the current state. Call it in the event loop of the client."""


class Interceptor:
    """Common base class of interceptors of sends and of consumption."""

    def on_start(self, client: Described) -> None:
        """Called in the event loop of a client, when it is started."""

    def on_close(self, client: Described) -> None:
        """Called when the client is closed, after the last other call."""


class ProducerInterceptor(Interceptor):
    """Base class of interceptors of sends; override the methods that you need."""

    def before_send(self, context: SendContext) -> None:
        """Called before the message is validated and sent."""

    def after_send(self, context: SendContext) -> None:
        """Called when the outcome is known, after all attempts."""

    def on_end_transaction(self, context: EndTransactionContext) -> None:
        """Called when the result of a transaction is known, by its end or by a check."""

    def on_backpressure(self, context: BackpressureContext) -> None:
        """Called when a message, or a list of them, begins to wait for the limits of messages in flight."""


class ConsumerInterceptor(Interceptor):
    """Base class of interceptors of consumption; override the methods that you need."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Called before the listener is called, or the loop gets the message."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called when the listener has ended, or the message is settled. Failed messages are not sent back yet."""

    def on_dead_letter(self, context: DeadLetterContext) -> None:
        """Called when a broker has accepted a message as a dead letter. A dead letter that a broker stores by its own
        count of deliveries is not reported.
        """

    def on_rebalance(self, context: RebalanceContext) -> None:
        """Called when queues are assigned, revoked or lost, before the `RebalanceListener` is called."""


I = TypeVar("I", ProducerInterceptor, ConsumerInterceptor)  # noqa: E741 - an interceptor


def check_interceptors(interceptors: Sequence[I], kind: type[I]) -> tuple[I, ...]:
    """Check a setting, and return it as a value that cannot change.

    Raises:
        ConfigError: a value is not an interceptor of that kind, or one of its methods is an async function, which would
        not be awaited.
    """
    for each in interceptors:
        if not isinstance(each, kind):
            raise ConfigError(f"interceptors must be objects of subclasses of {kind.__name__}, not {each!r}")
        for name in dir(kind):
            if not name.startswith("_") and inspect.iscoroutinefunction(getattr(each, name)):
                raise ConfigError(f"{type(each).__name__}.{name} must be a plain def: interceptors are not awaited")
    return tuple(interceptors)


class _Chain(Generic[I]):
    """Calls interceptors, and logs those that fail."""

    def __init__(self, group: str, interceptors: Sequence[I], clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._interceptors: tuple[I, ...] = tuple(interceptors)
        self._reversed: tuple[I, ...] = self._interceptors[::-1]
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        """Time of the last logged failure by method, in seconds of the clock."""

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def started(self, client: Described) -> None:
        """Call `on_start`."""
        self._call(self._interceptors, "on_start", client)

    def closed(self, client: Described) -> None:
        """Call `on_close`."""
        self._call(self._reversed, "on_close", client)

    def _call(self, interceptors: Sequence[I], method: str, context: object) -> None:
        """Call a method of each interceptor; those that fail are logged."""
        for each in interceptors:
            try:
                getattr(each, method)(context)
            except PROGRAM_ENDS:
                raise
            except BaseException as error:  # noqa: BLE001 - code of the application
                self._log_failure(f"{type(each).__name__}.{method}", error)

    def _log_failure(self, name: str, error: BaseException) -> None:
        now = self._clock()
        if now - self._logged_at.get(name, float("-inf")) >= FAILURE_INTERVAL_S:
            self._logged_at[name] = now
            log.error(
                "interceptor %s of group %s failed; sends and consumption are not affected",
                name,
                self._group,
                exc_info=error,
            )


class SendChain(_Chain[ProducerInterceptor]):
    """The interceptors of one producer."""

    def begin(
        self,
        message: Message,
        queue: MessageQueue | None,
        count: int = 1,
        index: int = 0,
        *,
        in_transaction: bool = False,
    ) -> SendContext:
        """Call `before_send` for a message. Values that are not messages are rejected later by the validation."""
        context = SendContext(self._group, message, queue, count, index, in_transaction)
        given: object = message
        if not isinstance(given, Message) or not isinstance(given.properties, Mapping):
            return context
        context.message = replace(message, properties=dict(message.properties))
        context.began = self._clock()
        self._call(self._interceptors, "before_send", context)
        return context

    def end(self, context: SendContext, outcome: SendResult | BaseException | None) -> None:
        """Call `after_send` with the outcome."""
        if context.began is None:
            return
        context.duration = self._clock() - context.began
        if isinstance(outcome, BaseException):
            context.error = outcome
        else:
            context.result = outcome
        self._call(self._reversed, "after_send", context)

    def ended_transaction(
        self,
        message: Message | MessageExt,
        message_id: str,
        offset_message_id: str,
        state: TransactionState,
        *,
        from_check: bool,
    ) -> None:
        """Call `on_end_transaction`."""
        if self._interceptors:
            context = EndTransactionContext(self._group, message, message_id, offset_message_id, state, from_check)
            self._call(self._interceptors, "on_end_transaction", context)

    def backpressured(self, topic: str, messages: int, size: int) -> None:
        """Call `on_backpressure`; `messages` of `size` bytes are in flight."""
        if self._interceptors:
            context = BackpressureContext(self._group, topic, messages, size)
            self._call(self._interceptors, "on_backpressure", context)

    @contextmanager
    def around(
        self, messages: Sequence[Message], queue: MessageQueue | None, *, in_transaction: bool = False
    ) -> Iterator[Sending]:
        """Call the interceptors around a send of messages with one result, which the caller sets."""
        contexts = [
            self.begin(message, queue, len(messages), index, in_transaction=in_transaction)
            for index, message in enumerate(messages)
        ]
        sending = Sending([context.message for context in contexts])
        outcome: SendResult | BaseException | None = None
        try:
            yield sending
            outcome = sending.result
        except BaseException as error:
            outcome = error
            raise
        finally:
            for context in contexts:
                self.end(context, outcome)


@dataclass(slots=True)
class Sending:
    """A send between its interceptors."""

    messages: list[Message]
    """The messages to send, as changed by `before_send`."""
    result: SendResult | None = None


class ConsumeChain(_Chain[ConsumerInterceptor]):
    """The interceptors of one consumer."""

    def begin(self, topic: str, messages: Sequence[MessageExt], *, in_listener: bool = True) -> ConsumeContext:
        """Call `before_consume`."""
        context = ConsumeContext(self._group, topic, messages, in_listener, began=self._clock())
        self._call(self._interceptors, "before_consume", context)
        return context

    def end(
        self,
        context: ConsumeContext,
        status: ConsumeStatus,
        failed: Sequence[MessageExt] = (),
        error: BaseException | None = None,
    ) -> None:
        """Call `after_consume`."""
        context.duration = self._clock() - context.began
        context.status, context.failed, context.error = status, failed, error
        self._call(self._reversed, "after_consume", context)

    def dead_letter(self, message: MessageExt, dead_letter_topic: str, reason: str | None = None) -> None:
        """Call `on_dead_letter`."""
        if self._interceptors:
            context = DeadLetterContext(self._group, message, dead_letter_topic, reason)
            self._call(self._interceptors, "on_dead_letter", context)

    def rebalanced(self, change: QueueChange, queues: Sequence[MessageQueue]) -> None:
        """Call `on_rebalance`."""
        if self._interceptors and queues:
            self._call(self._interceptors, "on_rebalance", RebalanceContext(self._group, change, queues))
