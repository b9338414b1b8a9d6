"""Buffer of fetched messages until the application takes them, and of taken messages until it settles them.

    queue readers --submit--> waiting --take--> in hand --ack, retry, dead_letter--> completed
                                  ^ pause         |
                                  `- set aside    `-- stop: abandoned, and delivered again

The flow limits of the readers bound the waiting and the taken messages, because both are not completed. When the
unsettled messages of a queue reach its limit, the queue is no longer read. This is logged as a warning, because a
forgotten `ack()` would otherwise look like a topic without messages.

See also: `consumer.queue_reader` submits, `consumer.consumer` takes, `consumer.messages_in_hand` contains the taken
messages, `consumer.delivery` settles them; `consumer.listener_pool` calls listeners instead. Source: none; the buffer
of RocketMQ's `DefaultLitePullConsumerImpl` commits what was taken.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from raptormq.client.consumer.delayed_retry import DelayedRetry
from raptormq.client.consumer.delivery import DeliveryState, QueueDelivery, ReceivedMessage
from raptormq.client.consumer.messages_in_hand import MessagesInHand
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import restore_topic
from raptormq.client.description import WorkerDescription
from raptormq.client.interceptors import ConsumeChain
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic

log = get_logger(__name__)

UNSETTLED_WARNING_S = 30.0
"""Interval in seconds of the warning about messages that are not settled."""
_TAKES_PER_YIELD = 64


class _Waiting(NamedTuple):
    reader: QueueReader
    process_queue: ProcessQueue
    message: MessageExt


class DeliveryBuffer:
    """Passes the messages of one started consumer to the tasks of the application."""

    def __init__(self, group: str, retries: DelayedRetry, interceptors: ConsumeChain) -> None:
        self._group = group
        self._retry_topic = retry_topic(group)
        self._retries = retries
        self._waiting: deque[_Waiting] = deque()
        self._paused: defaultdict[QueueReader, list[_Waiting]] = defaultdict(list)
        """Messages of paused queues."""
        self._in_hand = MessagesInHand[QueueDelivery](group, interceptors)
        self._changed: set[asyncio.Future[None]] = set()
        """Futures of the tasks that wait for messages."""
        self._takes = 0
        self.is_closed = False

    # --- for the readers ---

    @property
    def workers(self) -> Collection[asyncio.Task[None]]:
        """Always empty, because `stop` itself excludes the task that closes the consumer."""
        return ()

    def start(self) -> None:
        """Do nothing: messages wait until they are taken."""

    def describe(self) -> tuple[WorkerDescription, ...]:
        """Return an empty tuple: the tasks of the application are unknown."""
        return ()

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Add messages of one queue, in order."""
        self._waiting.extend(_Waiting(reader, process_queue, message) for message in messages)
        self._wake()

    def resume(self, reader: QueueReader) -> None:
        """Continue with the messages of a queue after a pause. If the queue is no longer read, its messages are
        discarded when they are taken.
        """
        if (aside := self._paused.pop(reader, None)) is not None:
            self._waiting.extendleft(reversed(aside))
            self._wake()

    async def consume_directly(self, message: MessageExt) -> bool:
        """Return False: a message from an administrator cannot be passed to a loop, which would settle it by its
        offset.
        """
        return False

    # --- for the application ---

    async def take(self, most: int, max_wait: float) -> list[ReceivedMessage]:
        """Wait for messages and return up to `most`, in order for each queue; none only if the consumer is closed.
        After the first message, wait up to `max_wait` seconds for `most` messages. A cancelled call takes no messages.
        """
        self._takes += 1
        if self._takes % _TAKES_PER_YIELD == 0:
            await asyncio.sleep(0)  # a loop that never waits would hold up heartbeats and commits
        clock = asyncio.get_running_loop().time
        deadline: float | None = None
        while not self.is_closed:
            if self._waiting:
                deadline = clock() + max_wait if deadline is None else deadline
                if len(self._waiting) >= most or clock() >= deadline:
                    if taken := self.take_ready(most):
                        return taken
                    deadline = None
                    continue
            await self._wait(UNSETTLED_WARNING_S if deadline is None else deadline - clock())
            if deadline is None and not self._waiting:
                self._warn_of_unsettled()
        return []

    def take_ready(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages that wait now, in order for each queue."""
        taken: list[ReceivedMessage] = []
        while self._waiting and len(taken) < most:
            reader, process_queue, message = waiting = self._waiting.popleft()
            if process_queue.is_closed:
                continue
            if reader.is_paused:
                self._paused[reader].append(waiting)
                continue
            restore_topic(message, self._retry_topic)
            delivery = QueueDelivery(reader, process_queue, message, self._retries, self._in_hand.ended)
            received = ReceivedMessage.of(message, delivery)
            self._in_hand.begin(delivery, received)
            taken.append(received)
        return taken

    def ack_all(self) -> bool:
        """Acknowledge all taken messages that are not settled. Return False if one of their queues was given up."""
        taken = [delivery for delivery in self._in_hand if delivery.state is DeliveryState.OPEN]
        accepted = [delivery.complete() for delivery in taken]
        return all(accepted)

    def forget(self, reader: QueueReader) -> None:
        """Abandon the taken messages of a queue."""
        for delivery in [each for each in self._in_hand if each.reader is reader]:
            delivery.abandon()

    def next_offset(self, reader: QueueReader) -> int | None:
        """Return the offset of the next message of a queue to take; `None` while the reader does not know it."""
        process_queue = reader.process_queue
        waiting = [*self._paused.get(reader, ()), *self._waiting]
        ahead = (each.message.queue_offset for each in waiting if each.process_queue is process_queue)
        return next(ahead, None if process_queue is None else process_queue.next_offset)

    def close(self) -> None:
        """End all current and future calls of `take`, and remember the calling task, for which `stop` cannot wait."""
        self.is_closed = True
        self._in_hand.disregard_caller()
        self._wake()

    async def stop(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until other running tasks have settled their messages, then abandon the rest."""
        self.is_closed = True
        self._wake()
        await self._in_hand.end(timeout)
        self._waiting.clear()
        self._paused.clear()

    async def _wait(self, seconds: float) -> None:
        """Wait for a change, up to a timeout in seconds."""
        changed = asyncio.get_running_loop().create_future()
        self._changed.add(changed)
        try:
            await asyncio.wait([changed], timeout=max(seconds, 0.0))
        finally:
            self._changed.discard(changed)

    def _wake(self) -> None:
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)

    def _warn_of_unsettled(self) -> None:
        full = {each.reader for each in self._in_hand if each.reader.is_full}
        for reader in sorted(full, key=lambda reader: reader.queue):
            count = sum(each.reader is reader for each in self._in_hand)
            log.warning(
                "group %s: reading of %s is paused, because %d of its messages are neither acknowledged, "
                "retried nor dead "
                "letters (ack, retry, dead_letter)",
                *(self._group, reader.queue, count),
            )
