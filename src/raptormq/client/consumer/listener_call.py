"""One call of a listener: its time-out, what it may return, and what its failures mean.

`ListenerCaller` returns the messages that have to be delivered again. A listener that turns out to be a plain function
is disabled and not called again: its messages are not at fault, and wait for another subscription. A batch listener
gets a whole batch in one call and may return the indexes of the messages that failed.

`EagerCoroutine` runs a coroutine at once, up to its first wait. Most listeners count, compute or write to memory, and
end without waiting. These need neither a time-out nor another worker.

Neighbours: `consumer.listener_pool` schedules the calls. Source: RocketMQ `ConsumeMessageConcurrentlyService`; none for
`EagerCoroutine` (Python 3.12 has eager tasks).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, TypeVar, cast

from raptormq.client.consumer.failure_log import FailureLog
from raptormq.client.listener_checks import require_awaitable
from raptormq.client.message import DecodedMessages, MessageBatch
from raptormq.client.results import ConsumeResult
from raptormq.errors import ClientError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic

log = get_logger(__name__)

LISTENER_FAILED = "listener failed"
"""Event of the log line about a failed call."""

T = TypeVar("T")

Listener = Callable[[list[MessageExt]], Awaitable[ConsumeResult | None]]
"""An `async` function. `None` means success; after an exception, or any other result, the messages are delivered again
later.
"""
BatchListener = Callable[[MessageBatch], Awaitable[ConsumeResult | Iterable[int] | None]]
"""The same for whole batches; it may also return the indexes of the messages that have to be delivered again."""


@dataclass(frozen=True, slots=True)
class WholeBatches:
    """A listener that gets whole batches."""

    listener: BatchListener


class EagerCoroutine(Generator[Any, Any, T]):
    """Runs a coroutine up to its first wait; awaited once, it continues from there.

    The constructor raises what the coroutine raises before its first wait.
    """

    __slots__ = ("_waits_for", "_was_awaited", "coroutine", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.coroutine = coroutine
        self._waits_for: Any = None
        self._was_awaited = False
        self.is_done = False
        self.result = cast("T", None)
        """What the coroutine has returned, if `is_done`."""
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        """Return what the coroutine waits for, starting with its first wait; ends when the coroutine ends."""
        if self.is_done:
            raise StopIteration(self.result)
        if self._was_awaited:
            return self.coroutine.send(value)
        self._was_awaited = True
        return self._waits_for

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise in the coroutine the error that its wait has ended with, such as a cancellation."""
        self._was_awaited = True
        return self.coroutine.throw(kind if value is None else value)


class _PlainListener(ClientError):
    """A listener has returned a value that cannot be awaited."""


class _WrongResult(TypeError):
    """A listener has returned a value that is not one of the allowed results."""


class ListenerCaller:
    """Calls the listeners of one consumer.

    Args:
        group: the consumer group.
        timeout: seconds that a call may take.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        before_wait: called when a listener has to wait for something.
        survives_cancel: whether a cancelled task goes on, because only its listener wanted to end it.
    """

    def __init__(
        self,
        group: str,
        timeout: float,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        before_wait: Callable[[], None],
        survives_cancel: Callable[[asyncio.Task[Any]], bool],
    ) -> None:
        self._group = group
        self._retry_topic = retry_topic(group)
        self._timeout = timeout
        self._listener_of = listener_of
        self._before_wait = before_wait
        self.failures = FailureLog(log, group)
        """Where failed calls are logged."""
        self._survives_cancel = survives_cancel
        self._disabled: dict[str, Listener | WholeBatches] = {}
        """By topic, listeners that are plain functions."""

    def is_disabled(self, topic: str) -> bool:
        """Whether the listener of a topic is not called any more, because it is a plain function."""
        listener = self._disabled.get(topic) if self._disabled else None
        return listener is not None and listener is self._listener_of(topic)

    def name_of(self, topic: str) -> str:
        """Return the name of the function that listens to a topic."""
        listener = self._listener_of(topic)
        function = listener.listener if isinstance(listener, WholeBatches) else listener
        return getattr(function, "__qualname__", repr(function))

    async def call(self, messages: Sequence[MessageExt]) -> Sequence[MessageExt]:
        """Call the listener and return the messages to deliver again; none when all are consumed.

        Messages from the retry topic get their original topic back.

        Raises:
            CancelledError: the calling task was cancelled, and not by its listener.
        """
        if not isinstance(messages, MessageBatch):
            for message in messages:
                if message.topic == self._retry_topic:
                    message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        topic = topic_of(messages)
        listener = self._listener_of(topic)
        if listener is None:
            log.warning("group %s has no listener for topic %s any more", self._group, topic)
            return messages
        return messages if self.is_disabled(topic) else await self._call(topic, listener, messages)

    async def _call(
        self, topic: str, listener: Listener | WholeBatches, messages: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """Call a listener; any failure of it means that all messages are delivered again."""
        try:
            if isinstance(listener, WholeBatches):
                batch = messages if isinstance(messages, MessageBatch) else DecodedMessages(messages)
                return _failed(batch, await self._in_time(listener.listener(batch)))
            result = await self._in_time(listener(list(messages)))
            if result is None or result is ConsumeResult.SUCCESS:
                return ()
            if result is not ConsumeResult.RECONSUME_LATER:
                raise _wrong_result("a listener", result, "None or a ConsumeResult")
        except _PlainListener as error:
            self._disabled[topic] = listener
            log.error("topic %s is not consumed any more by group %s here: %s", topic, self._group, error)
        except _WrongResult as error:
            # To the application it is a TypeError; the name of the subclass and its traceback say nothing.
            self.failures.failed(LISTENER_FAILED, messages, TypeError(str(error)), traceback=False)
        except asyncio.CancelledError as error:
            # Without a request to cancel this task, an awaitable of the listener was cancelled.
            if (task := asyncio.current_task()) is None or (task.cancelling() and not self._survives_cancel(task)):
                raise
            self.failures.failed("listener cancelled, by itself or by what it awaited", messages, error)
        except Exception as error:  # noqa: BLE001 - logged with the place of the messages
            self.failures.failed(LISTENER_FAILED, messages, error)
        return messages

    async def _in_time(self, call: Awaitable[T]) -> T:
        """Await a call and return its result; raises its error, and `TimeoutError` when it takes too long."""
        if type(call) is CoroutineType:
            begun: EagerCoroutine[T] = EagerCoroutine(call)
            call = begun
            if begun.is_done:
                return begun.result
        waiting = require_awaitable(call, "a listener", _PlainListener)
        self._before_wait()
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await waiting
        except TimeoutError as error:
            if not limit.expired():
                raise  # the listener has raised it
            raise TimeoutError(f"the call took longer than consume_timeout, {self._timeout:g} s") from error


def topic_of(messages: Sequence[MessageExt]) -> str:
    """Return the topic of messages that are handed to one call."""
    return messages.topic if isinstance(messages, MessageBatch) else messages[0].topic


def _failed(messages: MessageBatch, result: ConsumeResult | Iterable[int] | None) -> Sequence[MessageExt]:
    """Return the messages that a batch listener has not consumed, each once.

    Raises:
        _WrongResult: the listener has returned none of the values that `BatchListener` allows.
    """
    if result is ConsumeResult.RECONSUME_LATER:
        return messages
    if result is None or result is ConsumeResult.SUCCESS:
        return ()
    indexes = _indexes(result, len(messages))
    if indexes is None:
        indexes_here = f"the indexes, 0 to {len(messages) - 1} here, of the messages to deliver again"
        raise _wrong_result("a batch listener", result, f"None, a ConsumeResult, or {indexes_here}")
    return [messages[index] for index in sorted(indexes)]


def _wrong_result(what: str, result: object, allowed: str) -> _WrongResult:
    return _WrongResult(f"{what} returned {result!r:.80}: it returns {allowed}; the messages are delivered again")


def _indexes(result: Iterable[int], count: int) -> set[int] | None:
    """Return the indexes, each once; None when a value is not an index, such as one truth value per message."""
    places = range(count)
    try:
        given = list(result)
        indexes = {places[each] for each in given}
        # A negative index would count from the end, which no listener means.
        if any(isinstance(each, bool) or each < 0 for each in given):
            return None
    except (IndexError, TypeError):
        return None
    return indexes
