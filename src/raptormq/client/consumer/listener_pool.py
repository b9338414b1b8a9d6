"""Calls listeners: a fixed number of calls at a time, over all queues, and what becomes of each message.

    fetched -> waiting -> listener -> SUCCESS or None          -> finished
                  ^                -> RECONSUME_LATER, error,
                  |                   or too long              -> given back to the broker -> finished
                  `--- pause --------------------------------- <- or not

`Listening` runs the listeners of one consumer. When a listener turns out to be a plain function, its messages wait:
that is not their fault, and another consumer of the group, or the next program, may do better. A batch listener gets a
whole batch per call and may name the messages of it that failed; only those are given back.

`EagerCoroutine` begins a coroutine at once; it is awaited later, if it has to wait for something. Most listeners count,
compute or write to memory, and are done without waiting. For those neither a time-out has to be set nor another worker
to be woken.

`WorkQueue` holds what waits for one of several workers, who are woken one by one. A worker that is woken takes as much
as it can. Only a worker that has to wait for something wakes the next, so that a hundred batches whose listener waits
for nothing cost one turn of the event loop and not a hundred. After `TURN_S` everything else has its turn: heartbeats,
commits and answers must not wait for a thousand calls.

Neighbours: `consumer.queue_reader` hands messages in and learns what is finished, `consumer.send_back` gives them back.
Source: RocketMQ `ConsumeMessageConcurrentlyService`. `EagerCoroutine` does what eager tasks do in Python 3.12.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, Generic, TypeVar, cast

from raptormq.client.background import background, cancel_all, endless
from raptormq.client.config import ConsumerConfig
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.listener_checks import awaitable
from raptormq.client.message import MessageBatch, StoredMessages
from raptormq.client.results import ConsumeResult
from raptormq.errors import ClientError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic

log = get_logger(__name__)


T = TypeVar("T")


class EagerCoroutine(Generator[Any, Any, T]):
    """Runs a coroutine up to where it waits for the first time; awaited once, it goes on from there.

    What the coroutine raises before it waits is raised by the constructor.
    """

    __slots__ = ("_waits_for", "_was_awaited", "coroutine", "is_done", "result")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.coroutine = coroutine
        self._waits_for: Any = None
        self._was_awaited = False
        self.is_done = False
        self.result = cast("T", None)
        """What the coroutine has returned, when it waits for nothing."""
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        """Tell what is waited for, at first what the first step has found; ends as the coroutine does."""
        if self.is_done:
            raise StopIteration(self.result)
        if self._was_awaited:
            return self.coroutine.send(value)
        self._was_awaited = True
        return self._waits_for

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise in the coroutine what its waiting has ended with, a cancellation for one."""
        self._was_awaited = True
        return self.coroutine.throw(kind if value is None else value)


TURN_S = 0.005
"""How long workers that never wait keep the event loop, but for the call that is running."""


class WorkQueue(Generic[T]):
    """A line of waiting work, without bounds; first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._someone_comes = False
        """A worker was woken and has not looked yet."""
        self._turn_began: float | None = None
        """When the first worker took something in this turn of the loop; `None`: nobody has."""

    def put(self, work: T) -> None:
        """Append to the line."""
        self._waiting.append(work)
        if not self._someone_comes:
            self.share()

    async def take(self) -> T:
        """Return the first of the line, waiting for one. Who has to wait while working on it calls `share` before."""
        while not self._waiting or self._is_turn_over():
            if self._waiting:
                await asyncio.sleep(0)
            else:
                await self._called()
        return self._waiting.popleft()

    async def _called(self) -> None:
        call = asyncio.get_running_loop().create_future()
        self._idle.append(call)
        try:
            await call
        except asyncio.CancelledError:
            if call.done() and not call.cancelled():  # it was woken, another one has to come in its place
                self._someone_comes = False
                self.share()
            raise
        self._someone_comes = False

    def _is_turn_over(self) -> bool:
        """Whether workers, all together, have had the event loop for long enough in this turn of it."""
        now = time.monotonic()
        if self._turn_began is None:
            self._turn_began = now
            asyncio.get_running_loop().call_soon(self._next_turn)
        return now - self._turn_began > TURN_S

    def _next_turn(self) -> None:
        self._turn_began = None

    def share(self) -> None:
        """Wake another worker if there is something left to do."""
        while self._waiting and self._idle:
            call = self._idle.popleft()
            if not call.done():  # else its worker was cancelled
                call.set_result(None)
                self._someone_comes = True
                return


_CANCELLED_S = 1.0
"""How long the consumer, when it stops, waits for a listener that it has cancelled."""

Listener = Callable[[list[MessageExt]], Awaitable[ConsumeResult | None]]
"""An `async` function. `None` means success; any exception means the messages are delivered again later."""
BatchListener = Callable[[MessageBatch], Awaitable[ConsumeResult | Iterable[int] | None]]
"""The same for whole batches; it may also return the indexes of those messages that are to be delivered again later."""


class _PlainListener(ClientError):
    """What a listener has returned cannot be awaited."""


class _WrongAnswer(ClientError):
    """What a listener has returned says nothing."""


@dataclass(frozen=True, slots=True)
class WholeBatches:
    """Marks a listener that gets whole batches."""

    listener: BatchListener


@dataclass(slots=True)
class Waiting:
    """Messages for one listener call, and where they came from."""

    reader: QueueReader
    progress: ProcessQueue
    messages: Sequence[MessageExt]
    batch_offset: int | None = None
    """The offset under which all of them are finished together; `None`: each is finished by itself."""


class Listening:
    """Runs the listeners of one consumer.

    Args:
        config: how many calls at a time, how many messages per call, how long.
        group: the consumer group.
        listener_of: the listener of a topic, `None` for one that is not subscribed any more.
        redelivery: where failed messages go.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        redelivery: Redelivery,
    ) -> None:
        self._config = config
        self._retry_topic = retry_topic(group)
        self._group = group
        self._listener_of = listener_of
        self._redelivery = redelivery
        self._plain: dict[str, Listener | WholeBatches] = {}
        """By topic, listeners whose answer could not be awaited: they are not called again."""
        self._waiting: WorkQueue[Waiting] = WorkQueue()  # bounded by the flow limits of the readers
        self._pauses: set[asyncio.TimerHandle] = set()
        self._calls: dict[asyncio.Task[Any], Waiting] = {}
        """What the workers have that call a listener now."""
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.workers: list[asyncio.Task[None]] = []
        """They call listeners."""
        self._bystander: asyncio.Task[None] | None = None
        """Cancelled by who cancels everything, as `asyncio.run` does at its end, and not by a listener that cancels the
        task it runs in.
        """

    def start(self) -> None:
        """Begin to call listeners."""
        self.workers = [
            background(self._work(), f"listener {number} of {self._group}")
            for number in range(self._config.concurrency)
        ]
        self._bystander = background(endless(), f"listeners of {self._group}")

    def hand_out(self, reader: QueueReader, progress: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Take messages of one queue, in order, or a batch that is finished as a whole; returns at once."""
        if isinstance(messages, MessageBatch):
            self._waiting.put(Waiting(reader, progress, messages, messages.offsets[0]))
            return
        size = self._config.consume_batch
        for start in range(0, len(messages), size):
            self._waiting.put(Waiting(reader, progress, list(messages[start : start + size])))

    async def consume_directly(self, message: MessageExt) -> bool:
        """Call the listener for a message that an administrator has sent; true when it is done."""
        return not await self._call([message])

    async def stop(self, timeout: float) -> None:
        """Let the calls that run end, at most `timeout` seconds, then cancel them; nothing new is called. A call that
        goes on all the same is left alone: as long as it has not ended, its messages are not finished.
        """
        self._stopping = True
        for pause in self._pauses:
            pause.cancel()
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            count = len(self._calls)
            log.warning("%d listener calls of group %s are cancelled after %g s", count, self._group, timeout)
        if self._bystander is not None:
            await cancel_all([self._bystander])
        for worker in await cancel_all(self.workers, _CANCELLED_S):
            if worker in self._calls:
                topic = _topic(self._calls[worker].messages)
                log.error(
                    "%s goes on though it was cancelled, in %s; its messages of topic %s come again",
                    *(worker.get_name(), _name(self._listener_of(topic)), topic),
                )
                self._call_ended(worker)

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        while not self._stopping:
            waiting = await self._waiting.take()
            if waiting.progress.is_over or self._stopping:
                del waiting
                continue
            self._calls[worker] = waiting
            self._idle.clear()
            waiting.progress.calls.begin()
            try:
                await self._consume(waiting, worker)
            finally:
                self._call_ended(worker)
                del waiting  # its messages hold the whole answer that they came with

    def _call_ended(self, worker: asyncio.Task[Any]) -> None:
        """Wait for a call no more; it may have been left alone before it ended."""
        waiting = self._calls.pop(worker, None)
        if waiting is not None:
            waiting.progress.calls.end()
        if not self._calls:
            self._idle.set()

    async def _consume(self, waiting: Waiting, worker: asyncio.Task[Any]) -> None:
        failed = await self._call(waiting.messages)
        if worker.cancelling() and self._outlives(worker):
            failed = await self._uncancelled(worker, waiting.messages, failed)
        if not failed and waiting.batch_offset is not None:
            waiting.reader.finished(waiting.progress, waiting.batch_offset)
            return
        if failed and waiting.progress.dropped:
            return  # the queue's new reader gets the messages anyway
        if failed and self._is_plain(topic := _topic(waiting.messages), self._listener_of(topic)):
            self._again_later(waiting)
            return
        self._waiting.share()
        taken = await asyncio.gather(*map(self._redelivery.give_back, failed))
        retried_here = [message for message, is_taken in zip(failed, taken, strict=True) if not is_taken]
        for message in retried_here:
            message.reconsume_times += 1
        reader, progress, batch_offset = waiting.reader, waiting.progress, waiting.batch_offset
        if batch_offset is None:
            kept = {message.queue_offset for message in retried_here}
            for message in waiting.messages:
                if message.queue_offset not in kept:
                    reader.finished(progress, message.queue_offset)
            for message in retried_here:
                self._again_later(Waiting(reader, progress, [message]))
        elif retried_here:
            self._again_later(Waiting(reader, progress, StoredMessages(retried_here), batch_offset))
        else:
            reader.finished(progress, batch_offset)

    async def _call(self, messages: Sequence[MessageExt]) -> Sequence[MessageExt]:
        """Return the messages that are to be delivered again; none when all are done."""
        if not isinstance(messages, MessageBatch):
            for message in messages:
                if message.topic == self._retry_topic:
                    message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        topic = _topic(messages)
        listener = self._listener_of(topic)
        if listener is None:
            log.warning("group %s has no listener for topic %s any more", self._group, topic)
            return messages
        return messages if self._is_plain(topic, listener) else await self._answer(topic, listener, messages)

    async def _answer(
        self, topic: str, listener: Listener | WholeBatches, messages: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """Call a listener, and take any failure of it for the wish to get all of them again."""
        try:
            if isinstance(listener, WholeBatches):
                batch = messages if isinstance(messages, MessageBatch) else StoredMessages(messages)
                return _failed(batch, await self._in_time(listener.listener(batch)))
            later = await self._in_time(listener(list(messages))) is ConsumeResult.RECONSUME_LATER
            return messages if later else ()
        except _PlainListener as error:
            self._plain[topic] = listener
            log.error("topic %s is not consumed any more by group %s here: %s", topic, self._group, error)
        except _WrongAnswer as error:
            log.error("messages of topic %s come again to group %s: %s", topic, self._group, error)
        except TimeoutError:
            log.exception("a listener of group %s took too long, or timed out itself", self._group)
        except asyncio.CancelledError:
            # Unless somebody cancelled this task, something that the listener waited for was cancelled.
            if (task := asyncio.current_task()) is None or (task.cancelling() and not self._outlives(task)):
                raise
            log.exception("a listener of group %s was cancelled, by itself or by what it waited for", self._group)
        except Exception:
            log.exception("a listener of group %s failed", self._group)
        return messages

    def _outlives(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancelled task goes on: it is a worker, which nobody but a listener wants to end."""
        is_end = self._stopping or self._bystander is None or self._bystander.cancelling()
        return not is_end and task in self.workers

    async def _uncancelled(
        self, worker: asyncio.Task[Any], messages: Sequence[MessageExt], failed: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """Let a worker go on as if nobody had cancelled it; returns what is to be delivered again."""
        try:
            await asyncio.sleep(0)  # a cancellation that the listener has not waited for: `uncancel` may leave it
        except asyncio.CancelledError:
            if not self._outlives(worker):
                raise
            log.exception("a listener of group %s cancelled its task", self._group)
            failed = messages
        while worker.uncancel():
            pass
        return failed

    async def _in_time(self, call: Awaitable[T]) -> T:
        """Return what a listener returns; raises what it raises, and `TimeoutError` when it takes too long."""
        if type(call) is CoroutineType:
            begun: EagerCoroutine[T] = EagerCoroutine(call)
            call = begun
            if begun.is_done:
                return begun.result
        waited_for = awaitable(call, "a listener", _PlainListener)
        self._waiting.share()
        async with asyncio.timeout(self._config.consume_timeout):
            return await waited_for

    def _is_plain(self, topic: str, listener: Listener | WholeBatches | None) -> bool:
        return bool(self._plain) and self._plain.get(topic) is listener

    def _again_later(self, waiting: Waiting) -> None:
        def hand_out() -> None:
            self._pauses.discard(timer)
            self._waiting.put(waiting)

        pause = self._redelivery.pause(waiting.messages[0].reconsume_times)
        timer = asyncio.get_running_loop().call_later(pause, hand_out)
        self._pauses.add(timer)


def _topic(messages: Sequence[MessageExt]) -> str:
    return messages.topic if isinstance(messages, MessageBatch) else messages[0].topic


def _name(listener: Listener | WholeBatches | None) -> str:
    function = listener.listener if isinstance(listener, WholeBatches) else listener
    return getattr(function, "__qualname__", repr(function))


def _failed(messages: MessageBatch, answer: ConsumeResult | Iterable[int] | None) -> Sequence[MessageExt]:
    """Return the messages that a listener wants again, each once.

    Raises:
        _WrongAnswer: it is none of those that `BatchListener` allows.
    """
    if answer is ConsumeResult.RECONSUME_LATER:
        return messages
    if answer is None or answer is ConsumeResult.SUCCESS:
        return ()
    indexes = _indexes(answer, len(messages))
    if indexes is None:
        raise _WrongAnswer(
            f"a batch listener returned {answer!r:.80}: it returns None, a ConsumeResult, or the indexes, "
            f"0 to {len(messages) - 1} here, of the messages that are to come again"
        )
    return [messages[index] for index in sorted(indexes)]


def _indexes(answer: Iterable[int], count: int) -> set[int] | None:
    """Return them, each once; None where one is something else, such as one truth value per message."""
    places = range(count)
    try:
        given = list(answer)
        indexes = {places[each] for each in given}
        # A place counts from the end where it is negative; no listener means that.
        if any(isinstance(each, bool) or each < 0 for each in given):
            return None
    except (IndexError, TypeError):
        return None
    return indexes
