"""Calls listeners for messages in order: by queue, or by key.

Fetched messages wait in lanes (`consumer.lanes`), and a worker of the `OrderedPool` processes one call of a lane::

    lane ready -> listener called -> consumed --------------> completed, the lane is ready again
       ^                          -> failed: the messages stay first in their lane
       |                          |   retries left -----------------.
       |                          |   none left: policy             |
       |                          |     SKIP --------> completed    |
       |                          |     DEAD_LETTER -> completed    | (a refused dead letter is retried, too)
       |                          |     STOP --------> consumer stops, nothing is committed
       `------------------------------- retry pause <---------------'

A lane that waits occupies no worker, so a failing key delays no other one. The committed offset is the smallest
unfinished one, so a key that is retried keeps the offset of its queue back until it is done.

A call begins only while the lock of its queue is valid (`consumer.handover`). A queue that goes to another member is
unlocked after its running call has ended; the rest of its messages is abandoned, and the next owner starts with them.

Neighbours: `consumer.listener_pool` is used without an order; `consumer.send_back` makes dead letters. Source:
RocketMQ `ConsumeMessageOrderlyService`; Confluent's parallel consumer for order by key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

from raptormq.client.config import ConsumerConfig, OnFailure, Order
from raptormq.client.consumer.lanes import Lane, Lanes, message_key
from raptormq.client.consumer.listener_call import Listener, WholeBatches
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.workers import ConsumeRequest, Workers
from raptormq.errors import ConsumptionStopped
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.message import MessageExt
from raptormq.protocol.topic_names import retry_topic
from raptormq.transport.timing import Backoff

log = get_logger(__name__)

MessageLane = Lane[QueueReader, ProcessQueue]


class OrderedPool(Workers[MessageLane]):
    """Runs the listeners of a consumer with an order.

    Args:
        config: order, calls at a time, messages per call, and what happens after failures.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        redelivery: takes the messages that become dead letters.
        stopped: called once, with the reason, when a message could not be consumed and the policy is to stop.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        redelivery: Redelivery,
        stopped: Callable[[ConsumptionStopped], None],
    ) -> None:
        super().__init__(config, group, listener_of)
        self._redelivery = redelivery
        self._stopped = stopped
        self._backoff = Backoff(config.retry_pause, config.longest_retry_pause)
        self._key_of: Callable[[MessageExt], Hashable] = config.order_key or message_key
        self._retry_topic = retry_topic(group)
        name_of = self._lane_by_key if config.order is Order.BY_KEY else self._lane_by_queue
        self._lanes: Lanes[QueueReader, ProcessQueue] = Lanes(name_of, self._queue.put)
        self._clock = asyncio.get_running_loop().time

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Append messages of one queue, in order, to their lanes; returns at once."""
        add = self._lanes.add
        for message in messages:
            add(reader, process_queue, message)

    def resume(self, reader: QueueReader) -> None:
        """Continue with the messages of a queue that was paused or not locked, or is not read any more."""
        self._lanes.release(reader)

    @staticmethod
    def _lane_by_queue(reader: QueueReader, _: MessageExt) -> tuple[Hashable, Hashable]:
        return None, reader.queue

    def _lane_by_key(self, _: QueueReader, message: MessageExt) -> tuple[Hashable, Hashable]:
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(names.RETRY_TOPIC, topic)
        try:
            name = topic, self._key_of(message)
            hash(name)
        except Exception:
            log.exception(
                "order_key of group %s failed for message %s, offset %d of %s, which is consumed with the messages "
                "without a key",
                *(self._group, message.message_id, message.queue_offset, message.queue),
            )
            return topic, None
        return name

    def _request(self, item: MessageLane) -> ConsumeRequest | None:
        found = self._lanes.next(item, self._config.consume_batch, self._is_blocked)
        if not found:
            return None
        reader, process_queue, message = found[0]
        messages = [message] if len(found) == 1 else [each.message for each in found]
        return ConsumeRequest(reader, process_queue, messages)

    def _is_blocked(self, reader: QueueReader) -> bool:
        return reader.is_paused or reader.locked_until <= self._clock()

    async def _finish(self, item: MessageLane, request: ConsumeRequest, failed: Sequence[MessageExt]) -> None:
        messages = request.messages
        if not failed:
            self._complete(item, request)
            return
        if request.process_queue.is_closed:  # the next reader of the queue delivers them
            self._lanes.proceed(item)
            return
        topic, times = messages[0].topic, messages[0].reconsume_times
        if self._caller.is_disabled(topic) or self._listener_of(topic) is None:
            self._put_later(item, self._backoff.longest)
        elif len(messages) > 1:
            item.split(len(messages))
            self._put_later(item, self._backoff.first)
        elif times < self._config.max_reconsume_times:
            messages[0].reconsume_times += 1
            self._put_later(item, self._backoff.pause(times))
        elif await self._is_given_up(messages[0]):
            self._complete(item, request)
        else:
            self._put_later(item, self._backoff.longest)

    def _complete(self, lane: MessageLane, request: ConsumeRequest) -> None:
        for message in request.messages:
            request.reader.complete(request.process_queue, message.queue_offset)
        lane.remove(len(request.messages))
        self._lanes.proceed(lane)

    async def _is_given_up(self, message: MessageExt) -> bool:
        """Apply the policy to a message whose retries are used up; false when it has to be consumed after all."""
        place = f"message {message.message_id}, offset {message.queue_offset} of {message.queue}"
        failed = f"{place}, failed {message.reconsume_times + 1} times in group {self._group}"
        match self._config.on_failure:
            case OnFailure.SKIP:
                log.error("%s and is skipped", failed)
                return True
            case OnFailure.STOP:
                log.error("%s, and the consumer stops", failed)
                self._stopping = True
                self._stopped(ConsumptionStopped(f"{failed}, and on_failure is STOP"))
                return False
            case OnFailure.DEAD_LETTER:
                self._queue.share()
                accepted = await self._redelivery.dead_letter(message)
                if accepted:
                    log.error("%s and is a dead letter now", failed)
                return accepted
