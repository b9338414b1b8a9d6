"""Workers of a consumer: a fixed number of tasks that call listeners, including their cancellation and shutdown.

`Workers` takes items from a `WorkQueue` and calls the listener for their messages; a subclass handles the result. A
listener that cancels its own task ends its call, but not the worker.

See also: `consumer.listener_pool` for messages in any order, `consumer.ordered_pool` for messages in order,
`consumer.listener_call` calls the listener, `consumer.work_queue` wakes the workers. Source: the thread pools of
RocketMQ's `ConsumeMessageService`.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raptormq.client.background import CANCELLED_S, background, cancel_all, sleep_forever
from raptormq.client.config import ConsumerConfig
from raptormq.client.consumer.listener_call import Listener, ListenerCaller, WholeBatches, topic_of
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.work_queue import WorkQueue
from raptormq.client.description import WorkerDescription
from raptormq.client.interceptors import ConsumeChain
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt

log = get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class ConsumeRequest:
    """Messages for one listener call, with their queue."""

    reader: QueueReader
    process_queue: ProcessQueue
    messages: Sequence[MessageExt]
    batch_offset: int | None = None
    """Offset of a run whose messages are completed together; None if they are completed individually."""
    began: float = 0.0
    """Time at which the call began, in seconds of a monotonic clock."""


class Workers(ABC, Generic[T]):
    """Runs the listeners of one consumer.

    Args:
        config: number of concurrent calls, and timeout of a call.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        interceptors: called around each call.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        interceptors: ConsumeChain,
    ) -> None:
        self._config = config
        self._group = group
        self._listener_of = listener_of
        self._queue: WorkQueue[T] = WorkQueue()  # bounded by the flow limits of the readers
        self._caller = ListenerCaller(
            group, config.consume_timeout, listener_of, self._queue.share, self._survives, interceptors
        )
        self._timers: set[asyncio.TimerHandle] = set()
        self._running: dict[asyncio.Task[Any], ConsumeRequest] = {}
        """Current request of each busy worker."""
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.workers: list[asyncio.Task[None]] = []
        """The tasks that call listeners."""
        self._bystander: asyncio.Task[None] | None = None
        """Sentinel task. `asyncio.run` cancels it at its end, like all tasks; a listener that cancels its own task does
        not.
        """

    @abstractmethod
    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Enqueue messages of one queue, in order, or a batch that is completed as a whole. Does not block."""

    @abstractmethod
    def resume(self, reader: QueueReader) -> None:
        """Continue with the submitted messages of a queue after a pause, or discard them when it is no longer read."""

    @abstractmethod
    def _request(self, item: T) -> ConsumeRequest | None:
        """Return the next request of an item; None if there is none now."""

    @abstractmethod
    async def _finish(self, item: T, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        """Complete or retry the messages of a call. `failed` contains the messages that were not consumed."""

    def start(self) -> None:
        """Start the workers."""
        self.workers = [
            background(self._work(), f"listener {number} of {self._group}")
            for number in range(self._config.concurrency)
        ]
        self._bystander = background(sleep_forever(), f"listeners of {self._group}")

    def describe(self) -> tuple[WorkerDescription, ...]:
        """Return the state of each worker."""
        now = time.monotonic()
        return tuple(self._describe(worker, now) for worker in self.workers)

    def _describe(self, worker: asyncio.Task[None], now: float) -> WorkerDescription:
        request = self._running.get(worker)
        if request is None:
            return WorkerDescription(worker.get_name(), None, None, 0, 0.0)
        topic, count = topic_of(request.messages), len(request.messages)
        return WorkerDescription(worker.get_name(), topic, request.reader.queue, count, now - request.began)

    async def consume_directly(self, message: MessageExt) -> bool:
        """Call the listener for a message from an administrator. Return True if it was consumed."""
        self._caller.restore_topics([message])
        return not await self._caller.call([message])

    async def stop(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the running calls, then cancel them. No further call starts.

        A listener that ignores the cancellation keeps running. Its messages are not completed until it ends.
        """
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            count = len(self._running)
            log.warning("%d listener calls of group %s are cancelled after %g s", count, self._group, timeout)
        if self._bystander is not None:
            await cancel_all([self._bystander])
        for worker in await cancel_all(self.workers, CANCELLED_S):
            if worker in self._running:
                topic = topic_of(self._running[worker].messages)
                log.error(
                    "%s ignores its cancellation, in %s; its messages of topic %s are delivered again",
                    *(worker.get_name(), self._caller.name_of(topic), topic),
                )
                self._running[worker].reader.calls.is_abandoned = True
                self._end_call(worker)

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        # Still cancelled here: the program ends, and the listener has raised another error than its cancellation.
        while not (self._stopping or worker.cancelling()):
            item = await self._queue.take()
            request = self._request(item)
            if request is None or self._stopping:
                del item, request
                continue
            request.began = time.monotonic()
            self._running[worker] = request
            self._idle.clear()
            request.reader.calls.begin()
            try:
                failed = await self._caller.call(request.messages)
                if worker.cancelling() and self._survives(worker):
                    failed = await self._uncancel(worker, request.messages, failed)
                await self._finish(item, request, failed)
            finally:
                self._end_call(worker)
                failed = ()
                del item, request  # the messages would keep the whole pull result in memory

    def _end_call(self, worker: asyncio.Task[Any]) -> None:
        """Count the call of a worker as ended; no effect if `stop` has counted it."""
        request = self._running.pop(worker, None)
        if request is not None:
            request.reader.calls.end()
        if not self._running:
            self._idle.set()

    def _put_later(self, item: T, delay: float) -> None:
        """Enqueue an item again after `delay` seconds."""
        if self._stopping:
            return

        def requeue() -> None:
            self._timers.discard(timer)
            self._queue.put(item)

        timer = asyncio.get_running_loop().call_later(delay, requeue)
        self._timers.add(timer)

    def _survives(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a cancelled task continues, because it is a worker and its listener cancelled it."""
        is_end = self._stopping or self._bystander is None or self._bystander.cancelling()
        return not is_end and task in self.workers

    async def _uncancel(
        self, worker: asyncio.Task[Any], messages: Sequence[MessageExt], failed: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """Undo the cancellation of a worker by its listener. Return the messages to redeliver."""
        try:
            await asyncio.sleep(0)  # raises a pending cancellation that `uncancel` did not remove
        except asyncio.CancelledError as error:
            if not self._survives(worker):
                raise
            self._caller.failures.failed("listener cancelled its task", messages, error)
            failed = messages
        while worker.uncancel():
            pass
        return failed
