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

A waiting lane uses no worker, so a failing key does not delay others. The committed offset is the smallest unfinished
offset, so a key in retry holds back the committed offset of its queue.

A call starts only while the lock of its queue is valid (`consumer.handover`). A revoked queue is unlocked after its
running call has ended. Its remaining messages are discarded; the next owner starts with them.

See also: `consumer.listener_pool` is used without an order; `consumer.send_back` sends dead letters. Source: RocketMQ
`ConsumeMessageOrderlyService`; Confluent's parallel consumer for order by key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

from raptormq.client.background import PROGRAM_ENDS
from raptormq.client.config import ConsumerConfig, OnFailure, Order
from raptormq.client.consumer.lanes import Lane, Lanes, message_key
from raptormq.client.consumer.listener_call import Listener, WholeBatches
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.workers import ConsumeRequest, Workers
from raptormq.client.interceptors import ConsumeChain
from raptormq.errors import ConsumptionStopped
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageExt
from raptormq.transport.timing import Backoff

log = get_logger(__name__)

MessageLane = Lane[QueueReader, ProcessQueue]


class OrderedPool(Workers[MessageLane]):
    """Runs the listeners of a consumer with an order.

    Args:
        config: order, number of concurrent calls, messages per call, and handling of failures.
        group: the consumer group.
        listener_of: returns the listener of a topic, `None` when the topic is not subscribed any more.
        interceptors: called around each call.
        redelivery: sends dead letters.
        stopped: called once with the reason if a message could not be consumed and the policy is STOP.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        listener_of: Callable[[str], Listener | WholeBatches | None],
        interceptors: ConsumeChain,
        redelivery: Redelivery,
        stopped: Callable[[ConsumptionStopped], None],
    ) -> None:
        super().__init__(config, group, listener_of, interceptors)
        self._redelivery = redelivery
        self._stopped = stopped
        self._backoff = Backoff(config.retry_pause, config.longest_retry_pause)
        self._key_of: Callable[[MessageExt], Hashable] = config.order_key or message_key
        name_of = self._lane_by_key if config.order is Order.BY_KEY else self._lane_by_queue
        self._lanes: Lanes[QueueReader, ProcessQueue] = Lanes(name_of, self._queue.put)
        self._clock = asyncio.get_running_loop().time

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Append messages of one queue, in order, to their lanes. Does not block."""
        self._caller.restore_topics(messages)
        add = self._lanes.add
        for message in messages:
            add(reader, process_queue, message)

    def resume(self, reader: QueueReader) -> None:
        """Continue with the submitted messages of a queue after a pause or a missing lock, or discard them when it is
        no longer read."""
        self._lanes.release(reader)

    @staticmethod
    def _lane_by_queue(reader: QueueReader, _: MessageExt) -> tuple[Hashable, Hashable]:
        return None, reader.queue

    def _lane_by_key(self, _: QueueReader, message: MessageExt) -> tuple[Hashable, Hashable]:
        topic = message.topic
        try:
            name = topic, self._key_of(message)
            hash(name)
        except PROGRAM_ENDS:
            raise
        except BaseException:
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
        if request.process_queue.is_closed:  # the next reader delivers them
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
        """Apply the policy to a message whose retries are exhausted. Return False if it must be retried."""
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
