"""`BlockingConsumer`, `BlockingLitePullConsumer` and `BlockingPopConsumer`: members of a group for programs without
asyncio.

    with BlockingConsumer("billing", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            ...
            message.ack()

Several threads may iterate at the same time: each message goes to one of them. See also: `blocking` runs the event
loop in a thread, `consumer.consumer` and its neighbours implement the consumers.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from raptormq.client.blocking import Blocking, LoopThread
from raptormq.client.config import ClientConfig, ConsumeFromWhere, ConsumerConfig
from raptormq.client.consumer import (
    MAX_POPPED,
    Consumer,
    LitePullConsumer,
    MessageSequence,
    MessagesToSettle,
    PopConsumer,
    PoppedBatch,
    PoppedMessage,
    ReceivedBatch,
    ReceivedMessage,
    Retry,
    Sql,
    held_by,
)
from raptormq.client.description import ConsumerDescription
from raptormq.client.interceptors import ConsumerInterceptor
from raptormq.client.message import values_of
from raptormq.errors import ClientClosed
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.topic_names import TRACE_TOPIC

T = TypeVar("T")
C_co = TypeVar("C_co", bound=Consumer | LitePullConsumer | PopConsumer, covariant=True)
M_co = TypeVar("M_co", bound=Consumer | LitePullConsumer, covariant=True)
R = TypeVar("R", bound=ReceivedMessage)
B = TypeVar("B", bound=MessagesToSettle[Any])


class Run(Protocol):
    """Settles messages in the thread of the consumer."""

    def __call__(self, call: Callable[[], Coroutine[Any, Any, T]], /) -> T:
        """Run the coroutine that `call` returns. Return its result, or raise its error."""


@dataclass(slots=True)
class BlockingReceivedMessage(MessageExt):
    """`ReceivedMessage` without await; see there for arguments, results and errors."""

    _received: ReceivedMessage = field(kw_only=True, repr=False, compare=False)
    _run: Run = field(kw_only=True, repr=False, compare=False)

    @classmethod
    def of(cls, received: ReceivedMessage, run: Run) -> Self:
        """Return the blocking form of `received`."""
        return cls(*values_of(received), _received=received, _run=run)

    def ack(self) -> bool:
        """Acknowledge the message: it is consumed. Return False if its queue was given up meanwhile."""
        return self._run(self._received.ack)

    def retry(self, after: float | None = None) -> Retry:
        """Request redelivery of the message after `after` seconds. Return how and when it is redelivered."""
        return self._run(lambda: self._received.retry(after))

    def dead_letter(self, reason: str) -> bool:
        """Store the message as a dead letter with a reason. Return False if its queue was given up meanwhile."""
        return self._run(lambda: self._received.dead_letter(reason))


@dataclass(slots=True)
class BlockingPoppedMessage(BlockingReceivedMessage):
    """`PoppedMessage` without await; see there for arguments, results and errors."""

    _received: PoppedMessage = field(kw_only=True, repr=False, compare=False)

    @property
    def invisible_until_ms(self) -> int:
        """When the message becomes visible to other members, in ms since 1970 by the clock of the broker."""
        return self._received.invisible_until_ms

    def change_invisible_time(self, seconds: float) -> bool:
        """Let the message become visible to other members in `seconds`. Return False if its invisible time was over."""
        return self._run(lambda: self._received.change_invisible_time(seconds))


BM_co = TypeVar("BM_co", bound=BlockingReceivedMessage, covariant=True)
BB_co = TypeVar("BB_co", covariant=True)
R_co = TypeVar("R_co", bound=ReceivedMessage, covariant=True)
B_co = TypeVar("B_co", bound=MessagesToSettle[Any], covariant=True)


class _BlockingBatch(MessageSequence[BM_co], Generic[BM_co, B]):
    """Base class of blocking batches.

    Args:
        received: the batch.
        messages: its messages in their blocking form.
        run: runs coroutines.
    """

    __slots__ = ("_received", "_run")

    def __init__(self, received: B, messages: Sequence[BM_co], run: Run) -> None:
        super().__init__(messages)
        self._received = received
        self._run = run

    def ack(self) -> bool:
        """Acknowledge the messages that are not settled."""
        return self._run(self._received.ack)

    def retry(self, after: float | None = None) -> list[Retry]:
        """Retry the messages that are not settled."""
        return self._run(lambda: self._received.retry(after))

    def dead_letter(self, reason: str) -> bool:
        """Store the messages that are not settled as dead letters."""
        return self._run(lambda: self._received.dead_letter(reason))


class BlockingReceivedBatch(_BlockingBatch[BlockingReceivedMessage, ReceivedBatch]):
    """`ReceivedBatch` without await; see there for arguments, results and errors."""

    __slots__ = ()


class BlockingPoppedBatch(_BlockingBatch[BlockingPoppedMessage, PoppedBatch]):
    """`PoppedBatch` without await; see there for arguments, results and errors."""

    __slots__ = ()

    def change_invisible_time(self, seconds: float) -> bool:
        """Let the unsettled messages become visible to other members in `seconds`. Return False if the invisible time
        of one of them was over.
        """
        return self._run(lambda: self._received.change_invisible_time(seconds))


class _BlockingDescribed(Blocking[C_co]):
    """Base class of blocking consumers."""

    def describe(self) -> ConsumerDescription:
        """Return the queues with offsets, lag and errors."""
        return self._in_loop(self._wrapped.describe)

    def _in_loop(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread of the event loop if that thread runs, because consumers are not thread-safe."""
        if self._thread is None:
            return call()

        async def run() -> T:
            return call()

        return self._run(run())


class _BlockingMember(_BlockingDescribed[M_co]):
    """Base class of blocking group members.

    Arguments and errors are those of the asynchronous object.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        member = self._new_member(group, config, shared)
        settings = config or ConsumerConfig()
        # A stop waits for revoked queues, too.
        super().__init__(member, shared, settings.start_timeout + settings.hand_over_timeout)

    @abstractmethod
    def _new_member(self, group: str, config: ConsumerConfig | None, shared: ClientConfig) -> M_co:
        """Return the asynchronous object."""

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Subscribe to a topic; a second call replaces the expression."""
        self._in_loop(lambda: self._wrapped.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._in_loop(lambda: self._wrapped.unsubscribe(topic))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pause `queues`, or all queues for None."""
        self._in_loop(lambda: self._wrapped.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Resume `queues` after `pause`, or all queues for None."""
        self._in_loop(lambda: self._wrapped.resume(queues))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now, in order."""
        return self._in_loop(lambda: self._wrapped.assignment)

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused, in order."""
        return self._in_loop(lambda: self._wrapped.paused)


class BlockingLitePullConsumer(_BlockingMember[LitePullConsumer]):
    """`LitePullConsumer` without await; see there for arguments and errors."""

    def _new_member(self, group: str, config: ConsumerConfig | None, shared: ClientConfig) -> LitePullConsumer:
        return LitePullConsumer(group, config=config, client_config=shared)

    def poll(self, timeout: float = 5.0, *, max_messages: int = 32) -> list[MessageExt]:
        """Return the next messages; empty if none arrived within `timeout` seconds."""
        return self._run(self._wrapped.poll(timeout, max_messages=max_messages), timeout)

    def commit(self) -> bool:
        """Commit all polled messages. Return False if one of their queues was given up meanwhile."""
        return self._run(self._wrapped.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group in a queue; None if there is none."""
        return self._run(self._wrapped.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` read an assigned queue from `offset`."""
        self._in_loop(lambda: self._wrapped.seek(queue, offset))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the message of an assigned queue that `poll` returns next; None if it is not known."""
        return self._in_loop(lambda: self._wrapped.position(queue))


class _Loop(Protocol[R_co, B_co]):
    """The methods of `Consumer` and `PopConsumer` that iterate over messages."""

    def __anext__(self) -> Awaitable[R_co]:
        """Return the next message."""

    def batches(self, *, max_messages: int, max_wait: float) -> AsyncGenerator[B_co, None]:
        """Iterate over batches."""


class _BlockingLoop(_BlockingDescribed[C_co], Generic[C_co, R, B, BM_co, BB_co]):
    """Base class of blocking consumers that pass their messages to a loop."""

    _has_started = False

    @abstractmethod
    def _loop(self) -> _Loop[R, B]:
        """Return the consumer."""

    @abstractmethod
    def _message(self, received: R) -> BM_co:
        """Return the blocking form of a message."""

    @abstractmethod
    def _batch(self, received: B) -> BB_co:
        """Return the blocking form of a batch."""

    def start(self) -> Self:
        """Start the consumer; no effect if it is started. Raises what `start` of the consumer raises."""
        super().start()
        self._has_started = True
        return self

    def __iter__(self) -> Iterator[BM_co]:
        """Iterate over messages, until the consumer is closed by another thread."""
        return self

    def __next__(self) -> BM_co:
        """Return the next message.

        Raises:
            ClientClosed: the consumer was never started.
            StopIteration: the consumer is closed.
        """
        received = self._until_closed(lambda: anext(self._loop(), None))
        if received is None:
            raise StopIteration
        return self._message(received)

    def batches(self, *, max_messages: int = 32, max_wait: float = 1.0) -> Iterator[BB_co]:
        """Iterate over batches of messages, until the consumer is closed."""
        batches = self._in_loop(lambda: self._loop().batches(max_messages=max_messages, max_wait=max_wait))
        return self._batches(lambda: anext(batches, None))

    def _batches(self, following: Callable[[], Awaitable[B | None]]) -> Iterator[BB_co]:
        while (received := self._until_closed(following)) is not None:
            yield self._batch(received)

    def _until_closed(self, following: Callable[[], Awaitable[T | None]]) -> T | None:
        """Wait for the next item without a timeout and return it; None after the consumer was closed."""
        if self._thread is None and self._has_started:
            return None

        try:
            return self._running(work := held_by(threading.current_thread(), following)).run(
                work, threading.TIMEOUT_MAX
            )
        except ClientClosed:
            if self._thread is None and self._has_started:
                return None
            raise

    def _end(self) -> Coroutine[Any, Any, None]:
        return held_by(threading.current_thread(), self._wrapped.close)

    def _settle(self, call: Callable[[], Coroutine[Any, Any, T]], /) -> T:
        """Settle messages. After the close they are given up, so that nothing is sent, and no event loop is left."""
        try:
            return self._run(call())
        except ClientClosed:
            if self._thread is not None or not self._has_started:
                raise
        thread = LoopThread(f"raptormq late call of {type(self).__name__}")
        try:
            return thread.run(call(), self._wait_s)
        finally:
            thread.stop()


class BlockingConsumer(
    _BlockingLoop[Consumer, ReceivedMessage, ReceivedBatch, BlockingReceivedMessage, BlockingReceivedBatch],
    _BlockingMember[Consumer],
):
    """`Consumer` without await; see there for arguments and errors."""

    def _new_member(self, group: str, config: ConsumerConfig | None, shared: ClientConfig) -> Consumer:
        return Consumer(group, config=config, client_config=shared)

    def _loop(self) -> Consumer:
        return self._wrapped

    def _message(self, received: ReceivedMessage) -> BlockingReceivedMessage:
        return BlockingReceivedMessage.of(received, self._settle)

    def _batch(self, received: ReceivedBatch) -> BlockingReceivedBatch:
        return BlockingReceivedBatch(received, [self._message(message) for message in received], self._settle)


class BlockingPopConsumer(
    _BlockingLoop[PopConsumer, PoppedMessage, PoppedBatch, BlockingPoppedMessage, BlockingPoppedBatch]
):
    """`PopConsumer` without await; see there for arguments and errors."""

    def __init__(
        self,
        group: str,
        topic: str,
        expression: str | Sql = "*",
        *,
        name_servers: Sequence[str] | str | None = None,
        invisible_time: float = 60.0,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.FIRST,
        max_reconsume_times: int = 16,
        message_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        interceptors: Sequence[ConsumerInterceptor] = (),
        client_config: ClientConfig | None = None,
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        consumer = PopConsumer(
            group,
            topic,
            expression,
            invisible_time=invisible_time,
            consume_from=consume_from,
            max_reconsume_times=max_reconsume_times,
            message_trace=message_trace,
            trace_topic=trace_topic,
            interceptors=interceptors,
            client_config=shared,
        )
        super().__init__(consumer, shared)

    def receive(self, max_messages: int = MAX_POPPED, *, timeout: float = 15.0) -> list[BlockingPoppedMessage]:
        """Wait for messages and pop them; empty if none arrived within `timeout` seconds."""
        receiving = held_by(threading.current_thread(), lambda: self._wrapped.receive(max_messages, timeout=timeout))
        received = self._run(receiving, timeout)
        return [self._message(message) for message in received]

    def _loop(self) -> PopConsumer:
        return self._wrapped

    def _message(self, received: PoppedMessage) -> BlockingPoppedMessage:
        return BlockingPoppedMessage.of(received, self._settle)

    def _batch(self, received: PoppedBatch) -> BlockingPoppedBatch:
        return BlockingPoppedBatch(received, [self._message(message) for message in received], self._settle)
