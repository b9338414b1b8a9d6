"""`BlockingConsumer` and `BlockingLitePullConsumer`: members of a group for programs without asyncio.

    with BlockingConsumer("billing", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            ...
            message.ack()

Several threads may iterate at the same time: each message goes to one of them. See also: `blocking` runs the event
loop in a thread, `consumer.consumer` implements the consumer.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar, overload

from raptormq.client.blocking import Blocking
from raptormq.client.config import ClientConfig, ConsumerConfig
from raptormq.client.consumer import Consumer, LitePullConsumer, ReceivedBatch, ReceivedMessage, Retry, Sql
from raptormq.client.description import ConsumerDescription
from raptormq.client.message import values_of
from raptormq.errors import ClientClosed
from raptormq.protocol.message import MessageExt, MessageQueue

T = TypeVar("T")
M_co = TypeVar("M_co", bound=Consumer | LitePullConsumer, covariant=True)


class Run(Protocol):
    """Runs a coroutine in the thread of the consumer."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Return its result, or raise its error."""


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
        return self._run(self._received.ack())

    def retry(self, after: float | None = None) -> Retry:
        """Request redelivery of the message after `after` seconds. Return how and when it is redelivered."""
        return self._run(self._received.retry(after))

    def dead_letter(self, reason: str) -> bool:
        """Store the message as a dead letter with a reason. Return False if its queue was given up meanwhile."""
        return self._run(self._received.dead_letter(reason))


class BlockingReceivedBatch(Sequence[BlockingReceivedMessage]):
    """`ReceivedBatch` without await; see there for arguments, results and errors."""

    __slots__ = ("_messages", "_received", "_run")

    def __init__(self, received: ReceivedBatch, run: Run) -> None:
        self._received = received
        self._run = run
        self._messages = [BlockingReceivedMessage.of(message, run) for message in received]

    @overload
    def __getitem__(self, index: int) -> BlockingReceivedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BlockingReceivedMessage]: ...

    def __getitem__(self, index: int | slice) -> BlockingReceivedMessage | Sequence[BlockingReceivedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"BlockingReceivedBatch({len(self)} messages)"

    def ack(self) -> bool:
        """Acknowledge the messages that are not settled."""
        return self._run(self._received.ack())

    def retry(self, after: float | None = None) -> list[Retry]:
        """Retry the messages that are not settled."""
        return self._run(self._received.retry(after))

    def dead_letter(self, reason: str) -> bool:
        """Store the messages that are not settled as dead letters."""
        return self._run(self._received.dead_letter(reason))


class _BlockingMember(Blocking[M_co]):
    """Base class of blocking group members.

    Args:
        member: the asynchronous object.
        shared: the client configuration.
        config: the configuration of the member.
    """

    def __init__(self, member: M_co, shared: ClientConfig, config: ConsumerConfig | None) -> None:
        settings = config or ConsumerConfig()
        # A stop waits for revoked queues, too.
        super().__init__(member, shared, settings.start_timeout + settings.hand_over_timeout)

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Subscribe to a topic; a second call replaces the expression."""
        self._in_loop(lambda: self._wrapped.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._in_loop(lambda: self._wrapped.unsubscribe(topic))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pause queues, or all of them."""
        self._in_loop(lambda: self._wrapped.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with queues after `pause`, or with all of them."""
        self._in_loop(lambda: self._wrapped.resume(queues))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now, in order."""
        return self._in_loop(lambda: self._wrapped.assignment)

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused, in order."""
        return self._in_loop(lambda: self._wrapped.paused)

    def describe(self) -> ConsumerDescription:
        """Return the assigned queues with offsets, lag and errors."""
        return self._in_loop(self._wrapped.describe)

    def _in_loop(self, call: Callable[[], T]) -> T:
        """Call in the thread of the loop, if it runs, because consumers are not thread-safe."""
        if self._thread is None:
            return call()

        async def run() -> T:
            return call()

        return self._run(run())


class BlockingLitePullConsumer(_BlockingMember[LitePullConsumer]):
    """`LitePullConsumer` without await; see there for arguments and errors."""

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        super().__init__(LitePullConsumer(group, config=config, client_config=shared), shared, config)

    def poll(self, timeout: float = 5.0, *, max_messages: int = 32) -> list[MessageExt]:
        """Return the next messages; empty if none arrived within `timeout` seconds."""
        return self._run(self._wrapped.poll(timeout, max_messages=max_messages), timeout)

    def commit(self) -> bool:
        """Commit all polled messages. Return False if one of their queues was given up meanwhile."""
        return self._run(self._wrapped.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group."""
        return self._run(self._wrapped.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` read an assigned queue from `offset`."""
        self._in_loop(lambda: self._wrapped.seek(queue, offset))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message that `poll` returns of an assigned queue."""
        return self._in_loop(lambda: self._wrapped.position(queue))


class BlockingConsumer(_BlockingMember[Consumer]):
    """`Consumer` without await; see there for arguments and errors."""

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        shared = ClientConfig.choose(client_config, name_servers)
        super().__init__(Consumer(group, config=config, client_config=shared), shared, config)
        self._has_started = False

    def start(self) -> Self:
        """Start the consumer; no effect if it is started. Raises what `Consumer.start` raises."""
        super().start()
        self._has_started = True
        return self

    def __iter__(self) -> Iterator[BlockingReceivedMessage]:
        """Iterate over messages, until the consumer is closed by another thread."""
        return self

    def __next__(self) -> BlockingReceivedMessage:
        """Return the next message.

        Raises:
            ClientClosed: the consumer was never started.
            StopIteration: it is closed.
        """
        received = self._until_closed(lambda: anext(self._wrapped, None))
        if received is None:
            raise StopIteration
        return BlockingReceivedMessage.of(received, self._settle)

    def batches(self, *, max_messages: int = 32, max_wait: float = 1.0) -> Iterator[BlockingReceivedBatch]:
        """Iterate over batches of messages, until the consumer is closed."""
        batches = self._in_loop(lambda: self._wrapped.batches(max_messages=max_messages, max_wait=max_wait))
        return self._batches(lambda: anext(batches, None))

    def _batches(self, following: Callable[[], Awaitable[ReceivedBatch | None]]) -> Iterator[BlockingReceivedBatch]:
        while (received := self._until_closed(following)) is not None:
            yield BlockingReceivedBatch(received, self._settle)

    def _until_closed(self, following: Callable[[], Awaitable[T | None]]) -> T | None:
        """Wait without a limit and return the next item; None after the end."""
        if self._thread is None and self._has_started:
            return None

        async def wait() -> T | None:
            return await following()

        try:
            return self._running(work := wait()).run(work, threading.TIMEOUT_MAX)
        except ClientClosed:
            if self._thread is None and self._has_started:
                return None
            raise

    def _settle(self, work: Coroutine[Any, Any, T], /) -> T:
        return self._run(work)
