"""AutoBatch: messages that are sent one by one leave together (RIP-27).

One :class:`Accumulator` per client keeps count of what waits; a :class:`BatchQueue` holds the open
batches of the producers with one group and one configuration. A batch is for
one topic, queue (or any), tag and wait flag. It leaves when it is
full (bytes or count), when its first message is as old as allowed - a timer per batch, no thread and no polling - or
when a producer closes. A batch without a queue goes to one queue as a whole, so the choice sticks while it fills.
Batches that belong to queues of one broker leave together when the oldest is due
(`BrokerBatchGroup`), or alone when full.

What is not merged is sent by itself at once: delayed messages, messages to retry topics, ordered ones without a queue,
bodies as large as a whole batch, properties that hardly fit, and everything while too much waits already.
Neighbours: `producer.producer` adds, `producer.open_batch` encodes, `producer.batch_sender` sends. Source: RocketMQ
`ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, overload

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.client.lifecycle import require_loop
from raptormq.client.message import (
    MAX_KEYS_CHARS,
    as_bytes,
    check_parts,
    check_place,
    compressed,
    is_mergeable,
    is_mergeable_topic,
    message_properties,
    misfit,
)
from raptormq.client.producer.batch_sender import BatchSender, Send, Ships
from raptormq.client.producer.broker_features import QueueKinds
from raptormq.client.producer.callbacks import CLOSED, Callback, Waiter, fail
from raptormq.client.producer.open_batch import (
    BATCHES_WORTH,
    MAX_BATCHES,
    MAX_SHIPMENT_BYTES,
    BatchKey,
    BrokerBatchGroup,
    OpenBatch,
    ShipmentKey,
    Special,
    chars_of,
)
from raptormq.client.results import SendResult
from raptormq.errors import ClientClosed, MessageError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES

MAX_MERGED_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - 1024
"""Properties of a message that is merged: longer ones may not fit what the broker adds, and would cost its neighbours
their place.
"""

MAX_MERGED_TAG_CHARS = 2048
"""The batch has the tag of its messages beside the keys of all of them (`MAX_KEYS_CHARS`): with up to 4 bytes each they
fit its properties.
"""


class Accumulator:
    """What the lanes of one client have in common."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Bytes of the messages that wait for their batch to fill or to be answered."""
        self.open_batches = 0
        self._batch_queues: dict[tuple[str, ProducerConfig], BatchQueue] = {}

    @classmethod
    def of(cls, _: ClientInstance) -> Accumulator:
        """Return the accumulator of a client, for :meth:`ClientInstance.shared`."""
        return cls()

    def join(
        self,
        group: str,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        kinds: QueueKinds,
        shipping: Ships | None = None,
    ) -> BatchQueue:
        """Return the lane of the producers with this group and configuration; give it back with `BatchQueue.leave`.

        Without `shipping` every batch is a request of its own.
        """
        batch_queue = self._batch_queues.get((group, config))
        if batch_queue is None:
            batch_queue = self._batch_queues[group, config] = BatchQueue(self, config, ids, send, kinds, shipping)
        batch_queue.users += 1
        return batch_queue

    def drop(self, batch_queue: BatchQueue) -> None:
        """Forget a lane that nobody uses."""
        self._batch_queues = {key: known for key, known in self._batch_queues.items() if known is not batch_queue}


class BatchQueue:
    """The open batches of the producers that have one group and one configuration."""

    def __init__(
        self,
        shared: Accumulator,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        kinds: QueueKinds,
        shipping: Ships | None,
    ) -> None:
        self._shared = shared
        self._config = config
        self._batch_max_bytes = config.batch_max_bytes
        self._shipment_max_bytes = min(BATCHES_WORTH * config.batch_max_bytes, MAX_SHIPMENT_BYTES)
        self._total_max_bytes = config.total_batch_max_bytes
        self._max_message_bytes = config.max_message_bytes
        self._ids = ids
        self._kinds = kinds
        self._shipping = shipping
        self._batch_sender = BatchSender(config, ids, send, shipping, self._release)
        self._batch_groups: dict[ShipmentKey, BrokerBatchGroup] = {}
        # What is encrypted is compressed on the way there.
        compresses = config.compress_batches and config.compress_over_bytes > 0 and not config.encrypt
        self._compress_over_bytes = config.compress_over_bytes if compresses else config.batch_max_bytes
        self._loop = asyncio.get_running_loop()
        self._new_future: Callable[[], asyncio.Future[SendResult]] = self._loop.create_future
        self._open: dict[BatchKey, OpenBatch] = {}
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What is under way, and how many of those that have left wait for it."""
        self.users = 0

    @overload
    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult] | None: ...

    @overload
    def add(self, message: Message, queue: MessageQueue | None, callback: Callback) -> Callback | None: ...

    def add(self, message: Message, queue: MessageQueue | None, callback: Callback | None = None) -> Waiter | None:
        """Put a message into its batch and return who will be told its result, the callback or a new future; None when
        it is to be sent by itself.

        Raises:
            MessageError: the message breaks a rule.
        """
        shared = self._shared
        try:
            body, topic = message.body, message.topic
            key = topic, queue, message.tags, message.wait_stored, 0
            batch = self._open.get(key)
        except (AttributeError, TypeError):  # a list, bytes; or a part that is one
            check_place(queue, getattr(message, "topic", ""))
            raise misfit(message) from None
        if type(body) is not bytes:
            body = as_bytes(body)
        length = len(body)
        if shared.held_bytes >= self._total_max_bytes or length >= self._batch_max_bytes:
            return None
        if batch is None and not (is_mergeable_topic(topic) and _is_mergeable_tag(key[2]) and self._may_open(key)):
            return None
        if not (self._kinds.all_take_batches or self._kinds.takes_batches(topic, queue)):
            return None
        if (
            message.properties
            or message.keys
            or message.flag != 0
            or message.delay
            or (length >= self._compress_over_bytes and self._kinds.stores_whole(topic, queue) is False)
        ):
            return self._add_special(message, key, callback)
        if batch is None or batch.size + batch.plain_overhead + length > self._max_message_bytes:
            batch = self._open_batch(key, batch)
        waiter: Waiter | None = callback
        if waiter is None:
            waiter = self._new_future()
            batch.futures += 1
        size = batch.add(body, waiter)
        shared.held_bytes += size
        if batch.batch_group is not None:
            self._loaded(batch, size)
        elif batch.size >= self._batch_max_bytes or len(batch.waiters) == MAX_BATCH_RECORDS:
            self._close(batch)
        return waiter

    def _add_special(self, message: Message, key: BatchKey, callback: Callback | None) -> Waiter | None:
        """Add a message that has more than a tag, or is compressed by itself."""
        check_parts(message)
        if not is_mergeable(message, key[1]):
            return None
        body = as_bytes(message.body)
        if len(body) >= self._compress_over_bytes and self._kinds.stores_whole(message.topic, key[1]) is False:
            body, sys_flag = compressed(body, self._config)
            key = (*key[:4], sys_flag)
        batch = self._open.get(key)
        if batch is None and not self._may_open(key):
            return None
        own_id, properties = message_properties(message)
        special = Special(message.flag, properties, own_id)
        properties_bytes = special.properties_bytes(self._ids.id_length)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")
        if properties_bytes > MAX_MERGED_PROPERTIES_BYTES:
            return None
        size = OVERHEAD_BYTES + len(body) + properties_bytes
        fits = (
            batch is not None
            and batch.size + size <= self._config.max_message_bytes
            and batch.keys_chars + chars_of(message.keys) <= MAX_KEYS_CHARS
        )
        if batch is None or not fits:
            batch = self._open_batch(key, batch)
        waiter: Waiter | None = callback
        if waiter is None:
            waiter = self._new_future()
            batch.futures += 1
        batch.add_special(body, waiter, special, message.keys, size)
        self._shared.held_bytes += size
        if batch.batch_group is not None:
            self._loaded(batch, size)
        elif batch.size >= self._batch_max_bytes or len(batch.waiters) == MAX_BATCH_RECORDS:
            self._close(batch)
        return waiter

    def _may_open(self, key: BatchKey) -> bool:
        """Whether one more batch may be opened: too many are not, but one more in a request that is open is none.

        Raises:
            MessageError: the queue is none, or of another topic.
        """
        check_place(key[1], key[0])
        if self._shared.open_batches < self._config.max_open_batches:
            return True
        queue = key[1]
        return queue is not None and (queue.broker_name, key[3]) in self._batch_groups

    def _open_batch(self, key: BatchKey, full: OpenBatch | None) -> OpenBatch:
        """Begin a batch, in place of one that has no room."""
        require_loop(self._loop)
        topic, queue, tags, wait_stored, _ = key
        if not isinstance(wait_stored, bool):
            raise misfit(Message(topic, b"", tags, wait_stored=wait_stored))
        batch = OpenBatch(key, self._ids.id_length)
        if full is not None:
            self._close(full)
        self._open[key] = batch
        if queue is not None and self._shipping is not None and self._shipping.serves(queue.broker_name):
            self._join_shipment(batch, (queue.broker_name, wait_stored))
        else:
            batch.timer = self._loop.call_later(self._config.batch_max_delay_ms / 1000, self._close, batch)
            self._shared.open_batches += 1
        return batch

    def _join_shipment(self, batch: OpenBatch, key: ShipmentKey) -> None:
        batch_group = self._batch_groups.get(key)
        if batch_group is None:
            timer = self._loop.call_later(self._config.batch_max_delay_ms / 1000, self._leave_together, key)
            batch_group = self._batch_groups[key] = BrokerBatchGroup(key, timer)
            self._shared.open_batches += 1
        batch_group.batches[batch] = None
        batch.batch_group = batch_group

    def _loaded(self, batch: OpenBatch, size: int) -> None:
        """See who is full now that a message was added to one of the batches of a shipment."""
        batch_group = batch.batch_group
        assert batch_group is not None
        batch_group.size += size
        if batch.size >= self._batch_max_bytes or len(batch.waiters) == MAX_BATCH_RECORDS:
            self._close(batch)
        elif batch_group.size >= self._shipment_max_bytes or len(batch_group.batches) >= MAX_BATCHES:
            self._leave_together(batch_group.key)

    def flush(self) -> None:
        """Let all open batches leave now."""
        for key in list(self._batch_groups):
            self._leave_together(key)
        for batch in list(self._open.values()):
            self._close(batch)

    async def leave(self, timeout: float) -> None:
        """Give the lane back: open batches leave; waits at most `timeout` seconds for those under way.

        A batch may have messages of everybody who used the lane when it left. So what has no answer by then fails, with
        `ClientClosed`, only when nobody uses the lane any more and nobody else who has left still waits for it: after
        the last one, cancelled or not, nothing stays pending.
        """
        self.flush()
        self.users -= 1
        if not self.users:
            self._shared.drop(self)  # whoever comes now has nothing to do with what is under way
        if not self._tasks:
            return
        own = list(self._tasks)
        for task in own:
            self._tasks[task] += 1
        try:
            await asyncio.wait(own, timeout=timeout)
        finally:  # who is cancelled waits no more either
            unanswered = self._tasks.keys() & own
            for task in unanswered:
                self._tasks[task] -= 1
            given_up = [] if self.users else [task for task in unanswered if not self._tasks[task]]
            for task in given_up:
                task.cancel()
        if given_up:
            await asyncio.wait(given_up)

    def _close(self, batch: OpenBatch) -> None:
        """Take a batch out of the open ones and send it by itself."""
        del self._open[batch.key]
        batch_group = batch.batch_group
        if batch_group is None:
            assert batch.timer is not None
            batch.timer.cancel()
            self._shared.open_batches -= 1
        else:
            del batch_group.batches[batch]
            batch_group.size -= batch.size
            if not batch_group.batches:
                self._forget(batch_group)
        self._start(self._batch_sender.alone(batch), (batch,))

    def _leave_together(self, key: ShipmentKey) -> None:
        """Send the batches of a shipment."""
        batch_group = self._batch_groups[key]
        self._forget(batch_group)
        batches = tuple(batch_group.batches)
        for batch in batches:
            del self._open[batch.key]
        one = len(batches) == 1
        self._start(self._batch_sender.alone(batches[0]) if one else self._batch_sender.together(batches), batches)

    def _forget(self, batch_group: BrokerBatchGroup) -> None:
        batch_group.timer.cancel()
        del self._batch_groups[batch_group.key]
        self._shared.open_batches -= 1

    def _start(self, work: Coroutine[Any, Any, None], batches: Sequence[OpenBatch]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = 0
        # Not in the task: one that is cancelled before its first step never runs a line of itself.
        task.add_done_callback(lambda _task: self._finish(_task, batches))

    def _finish(self, task: asyncio.Task[None], batches: Iterable[OpenBatch]) -> None:
        del self._tasks[task]
        closed = ClientClosed(CLOSED)
        error = closed if task.cancelled() else task.exception() or closed
        for batch in batches:
            self._release(batch)
            fail(batch.take_waiters(), error)

    def _release(self, batch: OpenBatch) -> None:
        """Count the messages of a batch no more."""
        self._shared.held_bytes -= batch.release()


def _is_mergeable_tag(tag: object) -> bool:
    """False for a tag that is too long; what is none is refused later."""
    return not isinstance(tag, str) or len(tag) <= MAX_MERGED_TAG_CHARS
