"""Calls listeners: a fixed number of calls at a time over all queues, and what happens to the messages of each call.

Fetched messages become a `ConsumeRequest`, which a worker of the `ListenerPool` processes::

    queued -> listener called -> CONSUMED --------------------------------> completed
       ^                      -> FAILED ------> sent back to the broker --> completed
       |                      |                 `-> not accepted ---.
       |                      -> NOT_CALLABLE --------------------- +
       |                      -> ABANDONED: another reader delivers them
       `---------------------------- retry delay <------------------'

The listener is not callable when it is a plain function (`consumer.listener_call`). A request is abandoned when its
queue has been reset or handed over during the call.

Neighbours: `consumer.queue_reader` submits messages and learns which are completed, `consumer.listener_call` calls the
listener, `consumer.work_queue` wakes the workers, `consumer.send_back` returns failed messages to the broker. Source:
RocketMQ `ConsumeMessageConcurrentlyService`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raptormq.client.background import background, cancel_all, sleep_forever
from raptormq.client.config import ConsumerConfig
from raptormq.client.consumer.listener_call import Listener, ListenerCaller, WholeBatches, topic_of
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.work_queue import WorkQueue
from raptormq.client.message import DecodedMessages, MessageBatch
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt

log = get_logger(__name__)

_CANCELLED_S = 1.0
"""How long a consumer that stops waits for the listeners that it has cancelled."""


class Outcome(enum.Enum):
    """What a listener call means for its messages."""

    CONSUMED = enum.auto()
    """All messages are done."""
    FAILED = enum.auto()
    """Some or all have to be delivered again."""
    NOT_CALLABLE = enum.auto()
    """The listener is a plain function: the messages wait for another subscription."""
    ABANDONED = enum.auto()
    """They failed, and the queue has another reader, which gets them anyway."""


@dataclass(slots=True)
class ConsumeRequest:
    """Messages for one listener call, and the queue they came from."""

    reader: QueueReader
    process_queue: ProcessQueue
    messages: Sequence[MessageExt]
    batch_offset: int | None = None
    """Offset under which all messages are completed together; `None` when each is completed by itself."""


class ListenerPool:
    """Runs the listeners of one consumer.

    Args:
        config: how many calls at a time, how many messages per call, and how long a call may take.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        redelivery: takes the messages that failed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        redelivery: Redelivery,
    ) -> None:
        self._config = config
        self._group = group
        self._redelivery = redelivery
        self._queue: WorkQueue[ConsumeRequest] = WorkQueue()  # bounded by the flow limits of the readers
        self._caller = ListenerCaller(group, config.consume_timeout, listener_of, self._queue.share, self._survives)
        self._retry_timers: set[asyncio.TimerHandle] = set()
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

    def start(self) -> None:
        """Start the workers."""
        self.workers = [
            background(self._work(), f"listener {number} of {self._group}")
            for number in range(self._config.concurrency)
        ]
        self._bystander = background(sleep_forever(), f"listeners of {self._group}")

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue messages of one queue, in order, or a batch that is completed as a whole; returns at once."""
        if isinstance(messages, MessageBatch):
            self._queue.put(ConsumeRequest(reader, process_queue, messages, messages.offsets[0]))
            return
        size = self._config.consume_batch
        for start in range(0, len(messages), size):
            self._queue.put(ConsumeRequest(reader, process_queue, list(messages[start : start + size])))

    async def consume_directly(self, message: MessageExt) -> bool:
        """Call the listener for a message that an administrator has sent; true when it was consumed."""
        return not await self._caller.call([message])

    async def stop(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the running calls, then cancel them; no further call begins.

        A listener that ignores the cancellation is left running. Its messages are not completed until it ends.
        """
        self._stopping = True
        for timer in self._retry_timers:
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
                self._end_call(worker)

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        while not self._stopping:
            request = await self._queue.take()
            if request.process_queue.is_closed or self._stopping:
                del request
                continue
            self._running[worker] = request
            self._idle.clear()
            request.process_queue.calls.begin()
            try:
                await self._process(request, worker)
            finally:
                self._end_call(worker)
                del request  # its messages keep the whole pull result in memory

    def _end_call(self, worker: asyncio.Task[Any]) -> None:
        """Stop counting the call of a worker; does nothing when `stop` has done so already."""
        request = self._running.pop(worker, None)
        if request is not None:
            request.process_queue.calls.end()
        if not self._running:
            self._idle.set()

    async def _process(self, request: ConsumeRequest, worker: asyncio.Task[Any]) -> None:
        """Call the listener and complete, send back or requeue the messages."""
        failed = await self._caller.call(request.messages)
        if worker.cancelling() and self._survives(worker):
            failed = await self._uncancel(worker, request.messages, failed)
        match self._outcome(request, failed):
            case Outcome.CONSUMED:
                self._complete(request)
            case Outcome.NOT_CALLABLE:
                self._retry_later(request)
            case Outcome.FAILED:
                await self._send_back(request, failed)

    def _outcome(self, request: ConsumeRequest, failed: Sequence[MessageExt]) -> Outcome:
        if not failed:
            return Outcome.CONSUMED
        if request.process_queue.dropped:
            return Outcome.ABANDONED
        return Outcome.NOT_CALLABLE if self._caller.is_disabled(topic_of(request.messages)) else Outcome.FAILED

    @staticmethod
    def _complete(request: ConsumeRequest, unless: frozenset[int] = frozenset()) -> None:
        """Complete the batch of a request, or each of its messages except those at some offsets."""
        if request.batch_offset is not None:
            request.reader.complete(request.process_queue, request.batch_offset)
            return
        for message in request.messages:
            if message.queue_offset not in unless:
                request.reader.complete(request.process_queue, message.queue_offset)

    async def _send_back(self, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        """Return failed messages to the broker; those that it does not accept are retried here."""
        self._queue.share()
        accepted = await asyncio.gather(*map(self._redelivery.send_back, failed))
        kept = [message for message, is_accepted in zip(failed, accepted, strict=True) if not is_accepted]
        for message in kept:
            message.reconsume_times += 1
        reader, process_queue, batch_offset = request.reader, request.process_queue, request.batch_offset
        if batch_offset is None:
            self._complete(request, frozenset(message.queue_offset for message in kept))
            for message in kept:
                self._retry_later(ConsumeRequest(reader, process_queue, [message]))
        elif kept:
            self._retry_later(ConsumeRequest(reader, process_queue, DecodedMessages(kept), batch_offset))
        else:
            self._complete(request)

    def _retry_later(self, request: ConsumeRequest) -> None:
        """Queue a request again after the retry delay of its messages."""

        def requeue() -> None:
            self._retry_timers.discard(timer)
            self._queue.put(request)

        delay = self._redelivery.retry_delay(request.messages[0].reconsume_times)
        timer = asyncio.get_running_loop().call_later(delay, requeue)
        self._retry_timers.add(timer)

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
        except asyncio.CancelledError:
            if not self._survives(worker):
                raise
            log.exception("a listener of group %s cancelled its task", self._group)
            failed = messages
        while worker.uncancel():
            pass
        return failed
