"""AutoBatch: merges individually sent messages into batches (RIP-27).

A client has one :class:`Accumulator`, which counts the bytes and the batches of all its producers. A
:class:`BatchQueue` contains the open batches of the producers with the same group and configuration. The messages of a
batch have the same topic, queue (or none), tag, wait flag and compression. A batch without a queue is sent to one queue
as a whole.

Every batch belongs to a :class:`BatchGroup`, which has the timer. Batches for the queues of one broker share a group
and are sent with one request when the timer fires. A batch without a queue has its own group::

    add -> OPEN -- the batch is full ---------------------> CLOSED: sent by itself
             |---- the group is due or full, or flush ----> CLOSED: all batches of the group are sent together
             |---- the batch queue is idle ---------------> CLOSED: all batches of the batch queue are sent
             |---- senders wait, none is pending ---------> CLOSED: all batches of the client are sent
    CLOSED -- answered, failed or cancelled --> COMPLETED: every waiter has its outcome, the bytes are released

A batch queue with open batches is BUSY or IDLE. It is IDLE when none of its batches is pending and no message was added
for a tenth of the delay of a batch: the senders probably wait for their results, so a further wait merges nothing.
Under load it is BUSY, and batches are as large as without this rule. `BatchQueue._look_whether_idle` decides.

Some messages are sent immediately without merging: delayed messages, messages to retry topics, ordered messages without
a queue, bodies as large as a whole batch, and messages whose properties leave no room for those that the broker adds.
While the limits of the client are reached, no message is merged. If open batches alone have reached them, they are
sent when a sender waits.

The `send_timeout` of a batch begins when the batch is closed. A message that waited for the limits before it was added
has less time: its sender gets `RequestTimeout` at the deadline of the message. The other messages of the batch are not
affected.

See also: `producer.producer` adds messages, `producer.open_batch` encodes them, `producer.batch_sender` sends the
batches. Source: RocketMQ `ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, overload

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.client.message import (
    as_bytes,
    check_destination,
    check_optional_fields,
    compressed,
    invalid_message,
    is_mergeable,
    is_mergeable_topic,
    message_properties,
)
from raptormq.client.producer.batch_sender import BatchSender, Send
from raptormq.client.producer.broker_features import BatchSupport
from raptormq.client.producer.callbacks import CLOSED, Waiter, fail_all
from raptormq.client.producer.open_batch import (
    FULL_BATCHES_PER_GROUP,
    MAX_GROUP_BATCHES,
    MAX_GROUP_BYTES,
    BatchGroup,
    BatchKey,
    GroupKey,
    OpenBatch,
    Special,
)
from raptormq.client.producer.queue_batches import QueueBatchesSender
from raptormq.client.producer.send_room import SendRoom
from raptormq.client.results import SendResult
from raptormq.errors import ClientClosed, MessageError, RequestTimeout, SendAttempt
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, PAIR_SEPARATOR

MAX_MERGED_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - 1024
"""Maximum size of the properties of a merged message. The broker adds its own properties, and rejects the whole batch
if they do not fit.
"""

MAX_MERGED_TAG_CHARS = 2048
"""Maximum length of the tag of a merged message. A batch has the tag and the merged keys (`MAX_KEYS_CHARS`) in its
properties; with up to 4 bytes per character both fit.
"""

EXPIRY_STEP_S = 0.05
"""Minimum time in seconds between two checks for expired messages of a batch. Each check reads all deadlines."""

IDLE_SHARE = 0.1
"""Share of `batch_max_delay_ms` without a new message after which a batch queue is idle."""


class Accumulator:
    """Limits of AutoBatch for one client, and its batch queues, which producers share."""

    def __init__(self, room: SendRoom) -> None:
        self.room = room
        """Limit of messages in flight, which includes messages in batches."""
        self.held_bytes = 0
        """Bytes of messages in open or unanswered batches."""
        self.open_groups = 0
        """Number of open groups; each results in at least one request."""
        self._queues: dict[tuple[str, ProducerConfig], BatchQueue] = {}
        room.when_full = self._flush_if_none_is_pending

    @classmethod
    def of(cls, instance: ClientInstance) -> Accumulator:
        """Return the accumulator of a client, for :meth:`ClientInstance.shared`."""
        return cls(instance.shared(SendRoom.of))

    def acquire(
        self,
        group: str,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        kinds: BatchSupport,
        queue_batches: QueueBatchesSender,
    ) -> BatchQueue:
        """Return the batch queue for a group and configuration. Release it with `BatchQueue.release`."""
        batch_queue = self._queues.get((group, config))
        if batch_queue is None:
            batch_queue = BatchQueue(self, config, ids, send, kinds, queue_batches)
            self._queues[group, config] = batch_queue
        batch_queue.users += 1
        return batch_queue

    def _flush_if_none_is_pending(self) -> None:
        """Send all open batches if no batch is pending: the open batches alone have reached the limits, and nothing can
        be added. The response to a pending batch makes room. Without this condition batches would become as small as
        the room that each response makes.
        """
        if not any(batch_queue.has_pending for batch_queue in self._queues.values()):
            for batch_queue in self._queues.values():
                batch_queue.flush()

    def forget(self, batch_queue: BatchQueue) -> None:
        """Remove an unused batch queue."""
        self._queues = {key: known for key, known in self._queues.items() if known is not batch_queue}


class BatchQueue:
    """Open batches of the producers with the same group and configuration."""

    def __init__(
        self,
        shared: Accumulator,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        kinds: BatchSupport,
        queue_batches: QueueBatchesSender,
    ) -> None:
        self._shared = shared
        self._room = shared.room
        self._config = config
        self._batch_max_bytes = config.batch_max_bytes
        self._group_max_bytes = min(FULL_BATCHES_PER_GROUP * config.batch_max_bytes, MAX_GROUP_BYTES)
        self._total_max_bytes = config.total_batch_max_bytes
        self._max_message_bytes = config.max_message_bytes
        self._ids = ids
        self._batch_support = kinds
        self._queue_batches = queue_batches
        self._sender = BatchSender(config, ids, send, queue_batches, self._discard)
        # the encryptor compresses
        compresses = config.compress_batches and config.compress_over_bytes > 0 and not config.encrypt
        self._compress_over_bytes = config.compress_over_bytes if compresses else config.batch_max_bytes
        self.loop = asyncio.get_running_loop()
        self._new_future: Callable[[], asyncio.Future[SendResult]] = self.loop.create_future
        self._open: dict[BatchKey, OpenBatch] = {}
        self._broker_groups: dict[GroupKey, BatchGroup] = {}
        """Open groups."""
        self._sends: dict[asyncio.Task[None], int] = {}
        """Pending sends, each with the number of `release` calls that wait for it."""
        self._idle_look: asyncio.TimerHandle | None = None
        """Timer of the next look whether the batch queue is idle; None while no batch is open."""
        self._bytes_at_look = 0
        """`Accumulator.held_bytes` at the last look."""
        self.users = 0

    @property
    def has_pending(self) -> bool:
        """Whether a batch was sent and has no outcome yet."""
        return bool(self._sends)

    @overload
    def add(
        self, message: Message, queue: MessageQueue | None, *, deadline: float | None = None
    ) -> asyncio.Future[SendResult] | None: ...

    @overload
    def add(
        self, message: Message, queue: MessageQueue | None, callback: Waiter, deadline: float | None = None
    ) -> Waiter | None: ...

    def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        callback: Waiter | None = None,
        deadline: float | None = None,
    ) -> Waiter | None:
        """Add a message to its batch. Return the waiter for its result: the callback, or a new future. Return None if
        the message must be sent individually. `callback` may also be an existing future. `deadline` (loop time) is
        given for a message that has waited for the limits before.

        Raises:
            MessageError: the message breaks a rule.
        """
        shared = self._shared
        try:
            body, topic = message.body, message.topic
            key: Any = (topic, queue, message.tags, message.wait_stored, 0)  # a `BatchKey`, without its constructor
            batch = self._open.get(key)
        except (AttributeError, TypeError):  # not a message, or one of its fields cannot be hashed
            check_destination(queue, getattr(message, "topic", ""))
            raise invalid_message(message) from None
        if type(body) is not bytes:
            body = as_bytes(body)
        length = len(body)
        if shared.held_bytes >= self._total_max_bytes or length >= self._batch_max_bytes:
            return None
        if (
            batch is None and not (is_mergeable_topic(topic) and _is_mergeable_tag(key[2]) and self._may_open(key))
        ) or not (self._batch_support.all_accept_batches or self._batch_support.accepts_batches(topic, queue)):
            return None

        special: Special | None = None
        if (
            message.properties
            or message.keys
            or message.flag != 0
            or message.delay
            or message.priority is not None
            or (length >= self._compress_over_bytes and self._batch_support.stores_whole(topic, queue) is False)
        ):
            found = self._find_special(message, key)
            if found is None:
                return None
            batch, body, special = found
        elif batch is None or batch.size + batch.plain_overhead + length > self._max_message_bytes:
            batch = self._open_batch(key, batch)

        waiter: Waiter = self._new_future() if callback is None else callback
        size = batch.add(body, waiter) if special is None else batch.add_special(body, waiter, special)
        if deadline is not None:
            self._expire_later(batch, len(batch) - 1, deadline)
        shared.held_bytes += size
        room = self._room  # its `enter` in place
        room.messages += 1
        room.bytes += size
        group = batch.group
        has_several = group.key is not None
        if has_several:
            group.size += size
        if batch.size >= self._batch_max_bytes or len(batch.waiters) == MAX_BATCH_RECORDS:
            self._close_batch(batch)
        elif has_several and (group.size >= self._group_max_bytes or len(group.batches) >= MAX_GROUP_BATCHES):
            self._close_group(group)
        return waiter

    def _find_special(self, message: Message, key: BatchKey) -> tuple[OpenBatch, bytes, Special] | None:
        """Return the batch, the body and the properties of a message with more than a tag, or with a compressed body;
        None if it must not be merged.
        """
        topic, queue = key[:2]
        check_optional_fields(message)
        if not is_mergeable(message, queue):
            return None
        body, sys_flag = as_bytes(message.body), 0
        if len(body) >= self._compress_over_bytes and self._batch_support.stores_whole(topic, queue) is False:
            body, sys_flag = compressed(body, self._config)
        own_id, properties = message_properties(message)
        id_bytes = self._ids.id_length if own_id is None else len(own_id.encode())
        properties_bytes = len(properties) + id_bytes + len(PAIR_SEPARATOR)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")
        if properties_bytes > MAX_MERGED_PROPERTIES_BYTES:
            return None
        size = OVERHEAD_BYTES + len(body) + properties_bytes
        special = Special(message.flag, properties, own_id, message.keys, size)
        key = BatchKey(*key[:4], sys_flag)
        batch = self._open.get(key)
        if batch is None and not self._may_open(key):
            return None
        if batch is None or not batch.has_room_for(special, self._max_message_bytes):
            batch = self._open_batch(key, batch)
        return batch, body, special

    def _may_open(self, key: BatchKey) -> bool:
        """Return whether a batch may be opened: it joins an open group, or the limit of groups permits another one.

        Raises:
            MessageError: the queue is not a queue, or belongs to another topic.
        """
        topic, queue, _, wait_stored, _ = key
        check_destination(queue, topic)
        if self._shared.open_groups < self._config.max_open_batches:
            return True
        return queue is not None and (queue.broker_name, wait_stored) in self._broker_groups

    def _open_batch(self, key: BatchKey, full: OpenBatch | None) -> OpenBatch:
        """Open a batch; it replaces a full batch."""
        topic, queue, tags, wait_stored, _ = key
        if not isinstance(wait_stored, bool):
            raise invalid_message(Message(topic, b"", tags, wait_stored=wait_stored))
        batch = OpenBatch(BatchKey(*key), self._ids.id_length)
        if full is not None:
            self._close_batch(full)
        batch.group = self._group_for(queue, wait_stored)
        batch.group.batches[batch] = None
        self._open[batch.key] = batch
        return batch

    def _group_for(self, queue: MessageQueue | None, wait_stored: bool) -> BatchGroup:
        """Return the open group of the queue's broker; open one if there is none."""
        key = None
        if queue is not None and self._queue_batches.serves(queue.broker_name):
            key = queue.broker_name, wait_stored
            if (group := self._broker_groups.get(key)) is not None:
                return group
        group = BatchGroup(key)
        group.timer = self.loop.call_later(self._config.batch_max_delay_ms / 1000, self._close_group, group)
        if key is not None:
            self._broker_groups[key] = group
        self._shared.open_groups += 1
        if self._idle_look is None:
            self._look_again_later()
        return group

    def _expire_later(self, batch: OpenBatch, index: int, deadline: float) -> None:
        """Set the deadline of a message."""
        batch.deadlines[index] = deadline
        if batch.expiry is None or deadline < batch.expiry.when():
            if batch.expiry is not None:
                batch.expiry.cancel()
            batch.expiry = self.loop.call_at(deadline, self._expire, batch)

    def _expire(self, batch: OpenBatch) -> None:
        """Fail the messages of a batch whose deadlines have passed."""
        now = self.loop.time()
        expired = batch.take_expired(now)
        batch.expiry = None
        if batch.deadlines:
            first = max(min(batch.deadlines.values()), now + EXPIRY_STEP_S)
            batch.expiry = self.loop.call_at(first, self._expire, batch)
        is_sent, timeout = batch.is_closed, self._config.send_timeout
        error = RequestTimeout(
            f"{'' if is_sent else 'the message was not sent: '}{timeout:g} s are over, in part of which it waited "
            "behind others in flight (max_in_flight_messages, max_in_flight_bytes)"
        )
        fail_all(expired, error.after([_unanswered(batch, timeout)]) if is_sent else error)

    def _look_again_later(self) -> None:
        self._bytes_at_look = self._shared.held_bytes
        quiet_s = self._config.batch_max_delay_ms * IDLE_SHARE / 1000
        self._idle_look = self.loop.call_later(quiet_s, self._look_whether_idle)

    def _look_whether_idle(self) -> None:
        """Send all open batches if the batch queue is idle (see the module); look again later if it is busy."""
        self._idle_look = None
        is_busy = self._sends or self._shared.held_bytes != self._bytes_at_look
        if not is_busy:
            self.flush()
        elif self._open:
            self._look_again_later()

    def flush(self) -> None:
        """Close all open batches and send them now."""
        if self._idle_look is not None:
            self._idle_look.cancel()
            self._idle_look = None
        while self._open:
            self._close_group(next(iter(self._open.values())).group)

    async def release(self, timeout: float) -> None:
        """Release the batch queue: send all open batches, and wait up to `timeout` seconds for pending sends.

        A batch may contain messages of several producers. A send without a response after `timeout` fails with
        `ClientClosed` only if no producer uses the queue and no other `release` waits for that send. After the last
        `release` nothing is pending, even if it was cancelled.
        """
        self.flush()
        self.users -= 1
        if not self.users:
            self._shared.forget(self)  # the next producer gets a new queue without these sends
        if not self._sends:
            return
        own = list(self._sends)
        for task in own:
            self._sends[task] += 1
        try:
            await asyncio.wait(own, timeout=timeout)
        finally:  # a cancelled `release` does not wait any more either
            unanswered = self._sends.keys() & own
            for task in unanswered:
                self._sends[task] -= 1
            abandoned = [] if self.users else [task for task in unanswered if not self._sends[task]]
            for task in abandoned:
                task.cancel()
        if abandoned:
            await asyncio.wait(abandoned)

    def _close_batch(self, batch: OpenBatch) -> None:
        """Close a full batch and send it individually; the remaining batches of its group stay open."""
        del self._open[batch.key]
        group = batch.group
        del group.batches[batch]
        group.size -= batch.size
        if not group.batches:
            self._drop_group(group)
        self._start_send(self._sender.send_batch(batch), (batch,))

    def _close_group(self, group: BatchGroup) -> None:
        """Close all batches of a group and send them together."""
        self._drop_group(group)
        batches = tuple(group.batches)
        for batch in batches:
            del self._open[batch.key]
        one = len(batches) == 1
        self._start_send(self._sender.send_batch(batches[0]) if one else self._sender.send_group(batches), batches)

    def _drop_group(self, group: BatchGroup) -> None:
        group.timer.cancel()
        if group.key is not None:
            del self._broker_groups[group.key]
        self._shared.open_groups -= 1

    def _start_send(self, work: Coroutine[Any, Any, None], batches: Sequence[OpenBatch]) -> None:
        task, began = self.loop.create_task(work), self.loop.time()
        self._sends[task] = 0
        # Use a callback, because a task that is cancelled before its first step runs no code.
        task.add_done_callback(lambda done: self._end_send(done, batches, began))

    def _end_send(self, task: asyncio.Task[None], batches: Iterable[OpenBatch], began: float) -> None:
        """Complete a send: its error is passed to all waiters without an outcome."""
        del self._sends[task]
        error = None if task.cancelled() else task.exception()
        for batch in batches:
            self._discard(batch)
            if waiters := batch.take_waiters():
                fail_all(waiters, error or self._closed(batch, began))

    def _closed(self, batch: OpenBatch, began: float) -> ClientClosed:
        """Return the error of a batch whose send began at a loop time and was abandoned."""
        error = ClientClosed(CLOSED)
        return error.after([_unanswered(batch, self.loop.time() - began)]) if batch.is_closed else error

    def _discard(self, batch: OpenBatch) -> None:
        """Free the messages of a completed batch."""
        if batch.expiry is not None:
            batch.expiry.cancel()
            batch.expiry = None
        messages, size = batch.discard()
        self._shared.held_bytes -= size
        self._room.leave(messages, size)


def _unanswered(batch: OpenBatch, seconds: float) -> SendAttempt:
    """Return the attempt of a closed batch that may still be on its way."""
    broker_name = None if batch.key.queue is None else batch.key.queue.broker_name
    return SendAttempt(broker_name, None, seconds, "no response in time", may_be_stored=True)


def _is_mergeable_tag(tag: object) -> bool:
    """Return whether a tag is short enough. A tag that is not a string is rejected later."""
    return not isinstance(tag, str) or len(tag) <= MAX_MERGED_TAG_CHARS
