"""The workers of a consumer: a fixed number of listener calls at a time, what a listener may do to the task that runs
it, and how the calls end.

`Workers` takes items of work from a `WorkQueue`, calls the listener for the messages of each and lets a subclass decide
what the result means. A listener that cancels its own task ends its call and not the worker.

Neighbours: `consumer.listener_pool` for messages in any order, `consumer.ordered_pool` for messages in order,
`consumer.listener_call` calls the listener, `consumer.work_queue` wakes the workers. Source: the thread pools of
RocketMQ's `ConsumeMessageService`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raptormq.client.background import background, cancel_all, sleep_forever
from raptormq.client.config import ConsumerConfig
from raptormq.client.consumer.listener_call import Listener, ListenerCaller, WholeBatches, topic_of
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.work_queue import WorkQueue
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt

log = get_logger(__name__)

T = TypeVar("T")

_CANCELLED_S = 1.0
"""How long a consumer that stops waits for the listeners that it has cancelled."""


@dataclass(slots=True)
class ConsumeRequest:
    """Messages for one listener call, and the queue they came from."""

    reader: QueueReader
    process_queue: ProcessQueue
    messages: Sequence[MessageExt]
    batch_offset: int | None = None
    """Offset under which all messages are completed together; `None` when each is completed by itself."""


class Workers(ABC, Generic[T]):
    """Runs the listeners of one consumer.

    Args:
        config: how many calls at a time, and how long a call may take.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
    """

    def __init__(
        self, config: ConsumerConfig, group: str, listener_of: Callable[[str], Listener | WholeBatches | None]
    ) -> None:
        self._config = config
        self._group = group
        self._listener_of = listener_of
        self._queue: WorkQueue[T] = WorkQueue()  # bounded by the flow limits of the readers
        self._caller = ListenerCaller(group, config.consume_timeout, listener_of, self._queue.share, self._survives)
        self._timers: set[asyncio.TimerHandle] = set()
        self._running: dict[asyncio.Task[Any], ConsumeRequest] = {}
        """The request that each busy worker processes."""
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.workers: list[asyncio.Task[None]] = []
        """The tasks that call listeners."""
        self._bystander: asyncio.Task[None] | None = None
        """A task that `asyncio.run` cancels at its end like all tasks, and a listener that cancels its own task does
        not.
        """

    @abstractmethod
    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue messages of one queue, in order, or a batch that is completed as a whole; returns at once."""

    @abstractmethod
    def resume(self, reader: QueueReader) -> None:
        """Continue with the messages of a queue that was paused, or is not read any more."""

    @abstractmethod
    def _request(self, item: T) -> ConsumeRequest | None:
        """Return the next call of an item; `None` when there is nothing to call for now."""

    @abstractmethod
    async def _finish(self, item: T, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        """Complete or retry the messages of a call; `failed` are those that the listener has not consumed."""

    def start(self) -> None:
        """Start the workers."""
        self.workers = [
            background(self._work(), f"listener {number} of {self._group}")
            for number in range(self._config.concurrency)
        ]
        self._bystander = background(sleep_forever(), f"listeners of {self._group}")

    async def consume_directly(self, message: MessageExt) -> bool:
        """Call the listener for a message that an administrator has sent; true when it was consumed."""
        return not await self._caller.call([message])

    async def stop(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the running calls, then cancel them; no further call begins.

        A listener that ignores the cancellation is left running. Its messages are not completed until it ends.
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
        for worker in await cancel_all(self.workers, _CANCELLED_S):
            if worker in self._running:
                topic = topic_of(self._running[worker].messages)
                log.error(
                    "%s ignores its cancellation, in %s; its messages of topic %s are delivered again",
                    *(worker.get_name(), self._caller.name_of(topic), topic),
                )
                self._running[worker].process_queue.calls.is_abandoned = True
                self._end_call(worker)

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        while not self._stopping:
            item = await self._queue.take()
            request = self._request(item)
            if request is None or self._stopping:
                del item, request
                continue
            self._running[worker] = request
            self._idle.clear()
            request.process_queue.calls.begin()
            try:
                failed = await self._caller.call(request.messages)
                if worker.cancelling() and self._survives(worker):
                    failed = await self._uncancel(worker, request.messages, failed)
                await self._finish(item, request, failed)
            finally:
                self._end_call(worker)
                failed = ()
                del item, request  # the messages keep the whole pull result in memory

    def _end_call(self, worker: asyncio.Task[Any]) -> None:
        """Stop counting the call of a worker; does nothing when `stop` has done so already."""
        request = self._running.pop(worker, None)
        if request is not None:
            request.process_queue.calls.end()
        if not self._running:
            self._idle.set()

    def _put_later(self, item: T, delay: float) -> None:
        """Queue an item again after `delay` seconds."""
        if self._stopping:
            return

        def requeue() -> None:
            self._timers.discard(timer)
            self._queue.put(item)

        timer = asyncio.get_running_loop().call_later(delay, requeue)
        self._timers.add(timer)

    def _survives(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancelled task goes on: it is a worker, and only its listener wanted to end it."""
        is_end = self._stopping or self._bystander is None or self._bystander.cancelling()
        return not is_end and task in self.workers

    async def _uncancel(
        self, worker: asyncio.Task[Any], messages: Sequence[MessageExt], failed: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        """Undo the cancellation of a worker by its listener; returns the messages to deliver again."""
        try:
            await asyncio.sleep(0)  # raises a cancellation that is still pending, which `uncancel` may not remove
        except asyncio.CancelledError as error:
            if not self._survives(worker):
                raise
            self._caller.failures.failed("listener cancelled its task", messages, error)
            failed = messages
        while worker.uncancel():
            pass
        return failed
