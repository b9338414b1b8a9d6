"""One call of a listener: its timeout, its permitted results, and the consequences of failures.

`ListenerCaller` returns the messages to redeliver. A listener that turns out to be a plain function is disabled; its
messages wait for another subscription. A batch listener receives a whole batch in one call and may return the indexes
of the failed messages.

`EagerCoroutine` runs a coroutine immediately, up to its first wait. Most listeners end without waiting; these need
neither a timeout nor another worker.

See also: `consumer.listener_pool` schedules the calls. Source: RocketMQ `ConsumeMessageConcurrentlyService`; none for
`EagerCoroutine` (Python 3.12 has eager tasks).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, TypeVar, cast

from raptormq.client.background import PROGRAM_ENDS
from raptormq.client.consumer.failure_log import FailureLog
from raptormq.client.consumer.send_back import restore_topic
from raptormq.client.interceptors import ConsumeChain, ConsumeStatus
from raptormq.client.listener_checks import require_awaitable
from raptormq.client.message import DecodedMessages, MessageBatch
from raptormq.client.results import ConsumeResult
from raptormq.errors import ClientError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic

log = get_logger(__name__)

LISTENER_FAILED = "listener failed"
"""Event name in the log line about a failed call."""

T = TypeVar("T")

Listener = Callable[[list[MessageExt]], Awaitable[ConsumeResult | None]]
"""An `async` function. `None` means success; after an exception, or any other result, the messages are delivered again
later.
"""
BatchListener = Callable[[MessageBatch], Awaitable[ConsumeResult | Iterable[int] | None]]
"""A `Listener` for whole batches. It may also return the indexes of the messages to redeliver."""


@dataclass(frozen=True, slots=True)
class WholeBatches:
    """A batch listener."""

    listener: BatchListener


class EagerCoroutine(Generator[Any, Any, T]):
    """Runs a coroutine up to its first wait. Awaiting the object continues the coroutine; this is possible once.

    The constructor raises what the coroutine raises before its first wait.
    """

    __slots__ = ("_waits_for", "_was_awaited", "coroutine", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.coroutine = coroutine
        self._waits_for: Any = None
        self._was_awaited = False
        self.is_done = False
        self.result = cast("T", None)
        """Result of the coroutine, if `is_done`."""
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        """Return the future that the coroutine waits for, starting with its first wait."""
        if self.is_done:
            raise StopIteration(self.result)
        if self._was_awaited:
            return self.coroutine.send(value)
        self._was_awaited = True
        return self._waits_for

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise an error in the coroutine, such as a cancellation of its wait."""
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
        before_wait: called before a listener waits.
        survives_cancel: returns whether a cancelled task continues, because its listener cancelled it.
        interceptors: called around each call.
    """

    def __init__(
        self,
        group: str,
        timeout: float,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        before_wait: Callable[[], None],
        survives_cancel: Callable[[asyncio.Task[Any]], bool],
        interceptors: ConsumeChain,
    ) -> None:
        self._group = group
        self._retry_topic = retry_topic(group)
        self._timeout = timeout
        self._listener_of = listener_of
        self._before_wait = before_wait
        self.failures = FailureLog(log, group)
        """Log of failed calls."""
        self._survives_cancel = survives_cancel
        self._interceptors = interceptors
        self._disabled: dict[str, Listener | WholeBatches] = {}
        """Disabled listeners by topic."""

    def is_disabled(self, topic: str) -> bool:
        """Return whether the listener of a topic is disabled because it is a plain function."""
        listener = self._disabled.get(topic) if self._disabled else None
        return listener is not None and listener is self._listener_of(topic)

    def name_of(self, topic: str) -> str:
        """Return the name of the function that listens to a topic."""
        listener = self._listener_of(topic)
        function = listener.listener if isinstance(listener, WholeBatches) else listener
        return getattr(function, "__qualname__", repr(function))

    def restore_topics(self, messages: Iterable[MessageExt]) -> None:
        """Give messages from the retry topic of the group their original topics back. Neighbours there may have
        different ones, and a call is for one topic.
        """
        for message in messages:
            restore_topic(message, self._retry_topic)

    async def call(self, messages: Sequence[MessageExt]) -> Sequence[MessageExt]:
        """Call the listener of the messages' topic. Return the messages to redeliver; empty if all were consumed.

        Raises:
            CancelledError: the calling task was cancelled, and not by its listener.
        """
        topic = topic_of(messages)
        listener = self._listener_of(topic)
        if listener is None:
            log.warning(
                "group %s no longer has a listener for topic %s: its fetched messages are not consumed",
                self._group,
                topic,
            )
            return messages
        if self.is_disabled(topic):
            return messages
        if not self._interceptors:
            return (await self._call(topic, listener, messages))[0]
        context = self._interceptors.begin(topic, messages)
        failed, error = messages, None
        try:
            failed, error = await self._call(topic, listener, messages)
        except BaseException as cancelled:
            error = cancelled
            raise
        finally:
            status = ConsumeStatus.RETRIED if failed else ConsumeStatus.CONSUMED
            self._interceptors.end(context, status, failed, error)
        return failed

    async def _call(
        self, topic: str, listener: Listener | WholeBatches, messages: Sequence[MessageExt]
    ) -> tuple[Sequence[MessageExt], BaseException | None]:
        """Call a listener. Return the messages to redeliver, which are all of them after any failure, and the error."""
        failure: BaseException
        try:
            if isinstance(listener, WholeBatches):
                batch = messages if isinstance(messages, MessageBatch) else DecodedMessages(messages)
                return _failed(batch, await self._in_time(listener.listener(batch))), None
            result = await self._in_time(listener(list(messages)))
            if result is None or result is ConsumeResult.SUCCESS:
                return (), None
            if result is not ConsumeResult.RECONSUME_LATER:
                raise _wrong_result("a listener", result, "None or a ConsumeResult")
            return messages, None
        except _PlainListener as error:
            self._disabled[topic] = listener
            failure = error
            log.error("topic %s is no longer consumed by this member of group %s: %s", topic, self._group, error)
        except _WrongResult as error:
            # Reported as TypeError, because the subclass and its traceback have no meaning for the application.
            failure = TypeError(str(error))
            self.failures.failed(LISTENER_FAILED, messages, failure, traceback=False)
        except asyncio.CancelledError as error:
            # Without a request to cancel this task, an awaitable of the listener was cancelled.
            if (task := asyncio.current_task()) is None or (task.cancelling() and not self._survives_cancel(task)):
                raise
            failure = error
            self.failures.failed("listener cancelled, by itself or by what it awaited", messages, error)
        except PROGRAM_ENDS:
            raise
        except BaseException as error:  # noqa: BLE001 - logged with the place of the messages
            failure = error
            self.failures.failed(LISTENER_FAILED, messages, error)
        return messages, failure

    async def _in_time(self, call: Awaitable[T]) -> T:
        """Await a call and return its result. Raises its error, or `TimeoutError` after the timeout."""
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
    """Return the messages that a batch listener has not consumed, without duplicates.

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
    """Return the distinct indexes; None if a value is not an index, such as a list of booleans."""
    places = range(count)
    try:
        given = list(result)
        indexes = {places[each] for each in given}
        # Negative indexes, which count from the end, are an error.
        if any(isinstance(each, bool) or each < 0 for each in given):
            return None
    except (IndexError, TypeError):
        return None
    return indexes
