"""Calls listeners without a message order, and handles the outcome of each call.

Fetched messages become a `ConsumeRequest`, which a worker of the `ListenerPool` processes::

    queued -> listener called -> CONSUMED --------------------------------> completed
       ^                      -> FAILED ------> sent back to the broker --> completed
       |                      |                 `-> not accepted ---.
       |                      -> NOT_CALLABLE --------------------- +
       |                      -> ABANDONED: another reader delivers them
       `---------------------------- retry delay <------------------'

The listener is not callable when it is a plain function (`consumer.listener_call`). A request is abandoned when its
queue has been reset or handed over during the call.

See also: `consumer.queue_reader` submits messages and is notified of completed ones, `consumer.workers` runs the
calls, `consumer.send_back` returns failed messages to the broker; `consumer.ordered_pool` replaces this module for
ordered consumption. Source: RocketMQ `ConsumeMessageConcurrentlyService`.
"""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from raptormq.client.config import ConsumerConfig
from raptormq.client.consumer.listener_call import Listener, WholeBatches, topic_of
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.workers import ConsumeRequest, Workers
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.message import DecodedMessages, MessageBatch
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic


class Outcome(enum.Enum):
    """Outcome of a listener call for its messages."""

    CONSUMED = enum.auto()
    """All messages are consumed."""
    FAILED = enum.auto()
    """Some or all messages must be redelivered."""
    NOT_CALLABLE = enum.auto()
    """The listener is a plain function: the messages wait for another subscription."""
    ABANDONED = enum.auto()
    """The call failed, but the queue has another reader, which receives the messages."""


class ListenerPool(Workers[ConsumeRequest]):
    """Runs the listeners of a consumer without an order.

    Args:
        config: number of concurrent calls, messages per call, and timeout of a call.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        interceptors: called around each call.
        redelivery: takes the messages that failed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        interceptors: ConsumeChain,
        redelivery: Redelivery,
    ) -> None:
        super().__init__(config, group, listener_of, interceptors)
        self._redelivery = redelivery
        self._retry_topic = retry_topic(group)
        self._paused: defaultdict[QueueReader, list[ConsumeRequest]] = defaultdict(list)
        """The requests of paused queues."""

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue messages of one queue, in order, or a batch that is completed as a whole; returns at once."""
        if isinstance(messages, MessageBatch):
            self._queue.put(ConsumeRequest(reader, process_queue, messages, messages.offsets[0]))
            return
        size = self._config.consume_batch
        for of_topic in self._by_topic(messages) if reader.queue.topic == self._retry_topic else (messages,):
            for start in range(0, len(of_topic), size):
                self._queue.put(ConsumeRequest(reader, process_queue, of_topic[start : start + size]))

    def _by_topic(self, retried: Sequence[MessageExt]) -> Iterable[list[MessageExt]]:
        """Return messages from the retry topic, grouped by their original topics."""
        self._caller.restore_topics(retried)
        by_topic: defaultdict[str, list[MessageExt]] = defaultdict(list)
        for message in retried:
            by_topic[message.topic].append(message)
        return by_topic.values()

    def _request(self, item: ConsumeRequest) -> ConsumeRequest | None:
        if item.process_queue.is_closed:
            return None
        if item.reader.is_paused:
            self._paused[item.reader].append(item)
            return None
        return item

    def resume(self, reader: QueueReader) -> None:
        """Continue with the submitted messages of a queue after a pause, or discard them when it is no longer read."""
        for request in self._paused.pop(reader, ()):
            self._queue.put(request)

    async def _finish(self, item: ConsumeRequest, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        match self._outcome(request, failed):
            case Outcome.CONSUMED:
                self._complete(request)
            case Outcome.NOT_CALLABLE:
                self._retry_later(item)
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
        """Complete the batch of a request, or all its messages except those at the given offsets."""
        if request.batch_offset is not None:
            request.reader.complete(request.process_queue, request.batch_offset)
            return
        for message in request.messages:
            if message.queue_offset not in unless:
                request.reader.complete(request.process_queue, message.queue_offset)

    async def _send_back(self, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        """Return failed messages to the broker. Messages that the broker does not accept are retried by this client."""
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
        self._put_later(request, self._redelivery.retry_delay(request.messages[0].reconsume_times))
