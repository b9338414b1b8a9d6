"""AutoBatch: messages that are sent one by one leave together (RIP-27).

One :class:`Accumulator` per client keeps count of what waits; a :class:`Lane` holds the open batches of the producers
with one group and one configuration. A batch is for one topic, queue (or any), tag and wait flag. It leaves when it is
full (bytes or count), when its first message is as old as allowed - a timer per batch, no thread and no polling - or
when a producer closes. A batch without a queue goes to one queue as a whole, so the choice sticks while it fills.

What is not merged is sent by itself at once: delayed messages, messages to retry topics, ordered ones without a queue,
bodies as large as a whole batch, and everything while too much waits already.
Neighbours: `producer` adds, `open_batch` encodes, `delivery` sends. Source: RocketMQ `ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from raptormq.client.config import ProducerConfig
from raptormq.client.open_batch import BatchKey, OpenBatch, Special, chars_of
from raptormq.client.outgoing import (
    Outgoing,
    compressed,
    is_mergeable,
    is_mergeable_topic,
    message_properties,
    prepare_merged,
    prepare_single,
)
from raptormq.client.queue_kinds import QueueKinds
from raptormq.client.results import SendResult
from raptormq.errors import ClientClosed, MessageError, RaptorMQError, ServerError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES

MAX_KEYS_CHARS = 4096
"""Keys united in one batch, in characters: with up to 4 bytes each they fit the properties of a request."""

Send = Callable[[Outgoing, MessageQueue | None, str | None, float], Awaitable[SendResult]]


class Accumulator:
    """What the lanes of one client have in common."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Bytes of the messages that wait for their batch to fill or to be answered."""
        self.open_batches = 0
        self._lanes: dict[tuple[str, ProducerConfig], Lane] = {}

    def join(self, group: str, config: ProducerConfig, ids: UniqueIdFactory, send: Send, kinds: QueueKinds) -> Lane:
        """Return the lane of the producers with this group and configuration; give it back with `Lane.leave`."""
        lane = self._lanes.get((group, config))
        if lane is None:
            lane = self._lanes[group, config] = Lane(self, config, ids, send, kinds)
        lane.users += 1
        return lane

    def drop(self, lane: Lane) -> None:
        """Forget a lane that nobody uses."""
        self._lanes = {key: known for key, known in self._lanes.items() if known is not lane}


class Lane:
    """The open batches of the producers that have one group and one configuration."""

    def __init__(
        self, shared: Accumulator, config: ProducerConfig, ids: UniqueIdFactory, send: Send, kinds: QueueKinds
    ) -> None:
        self._shared = shared
        self._config = config
        self._batch_max_bytes = config.batch_max_bytes
        self._total_max_bytes = config.total_batch_max_bytes
        self._ids = ids
        self._send = send
        self._kinds = kinds
        # What is encrypted is compressed on the way there.
        compresses = config.compress_batches and config.compress_over_bytes > 0 and not config.encrypt
        self._compress_over_bytes = config.compress_over_bytes if compresses else config.batch_max_bytes
        self._loop = asyncio.get_running_loop()
        self._new_future: Callable[[], asyncio.Future[SendResult]] = self._loop.create_future
        self._open: dict[BatchKey, OpenBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broker_knows_batches = True
        self.users = 0

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult] | None:
        """Put a message into its batch and return what will hold its result; None when it is to be sent by itself.

        Raises:
            MessageError: the message breaks a rule.
        """
        shared, body, topic = self._shared, message.body, message.topic
        length = len(body)
        if (
            shared.held_bytes >= self._total_max_bytes
            or length >= self._batch_max_bytes
            or not self._broker_knows_batches
        ):
            return None
        key = topic, queue, message.tags, message.wait_stored, 0
        batch = self._open.get(key)
        if batch is None and not (is_mergeable_topic(topic) and shared.open_batches < self._config.max_open_batches):
            return None
        if (
            message.properties
            or message.keys
            or message.flag
            or message.delay
            or (length >= self._compress_over_bytes and self._kinds.stores_whole(topic) is False)
        ):
            return self._add_special(message, key)
        if batch is None or batch.size + batch.plain_overhead + length > self._config.max_message_bytes:
            batch = self._open_batch(key, batch)
        future = self._new_future()
        shared.held_bytes += batch.add(body, future)
        if batch.size >= self._batch_max_bytes or len(batch.futures) == MAX_BATCH_RECORDS:
            self._close(batch)
        return future

    def _add_special(self, message: Message, key: BatchKey) -> asyncio.Future[SendResult] | None:
        """Add a message that has more than a tag, or is compressed by itself."""
        if not is_mergeable(message, key[1]):
            return None
        body = message.body
        if len(body) >= self._compress_over_bytes and self._kinds.stores_whole(message.topic) is False:
            body, sys_flag = compressed(body, self._config)
            key = (*key[:4], sys_flag)
        batch = self._open.get(key)
        if batch is None and self._shared.open_batches >= self._config.max_open_batches:
            return None
        message_id, properties = message_properties(message, self._ids, time.time_ns() // 1_000_000)
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")
        size = OVERHEAD_BYTES + len(body) + len(properties)
        fits = (
            batch is not None
            and batch.size + size <= self._config.max_message_bytes
            and batch.keys_chars + chars_of(message.keys) <= MAX_KEYS_CHARS
        )
        if batch is None or not fits:
            batch = self._open_batch(key, batch)
        future = self._new_future()
        special = Special(message.flag, properties, message_id)
        self._shared.held_bytes += batch.add_special(body, future, special, message.keys)
        if batch.size >= self._batch_max_bytes or len(batch.futures) == MAX_BATCH_RECORDS:
            self._close(batch)
        return future

    def _open_batch(self, key: BatchKey, full: OpenBatch | None) -> OpenBatch:
        """Begin a batch, in place of one that has no room."""
        batch = OpenBatch(key, self._ids.id_length)
        if full is not None:
            self._close(full)
        self._open[key] = batch
        batch.timer = self._loop.call_later(self._config.batch_max_delay_ms / 1000, self._close, batch)
        self._shared.open_batches += 1
        return batch

    def flush(self) -> None:
        """Let all open batches leave now."""
        for batch in list(self._open.values()):
            self._close(batch)

    async def leave(self, timeout: float) -> None:
        """Give the lane back: open batches leave; waits at most `timeout` seconds for those under way.

        After the last user nothing stays pending: what has no answer by then fails with `ClientClosed`.
        """
        self.flush()
        self.users -= 1
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        if self.users == 0:
            self._shared.drop(self)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close(self, batch: OpenBatch) -> None:
        """Take a batch out of the open ones and send it."""
        batch.timer.cancel()
        del self._open[batch.key]
        self._shared.open_batches -= 1
        task = self._loop.create_task(self._run(batch))
        self._tasks.add(task)
        # Not in the task: one that is cancelled before its first step never runs a line of itself.
        task.add_done_callback(lambda _task: self._finish(_task, batch))

    def _finish(self, task: asyncio.Task[None], batch: OpenBatch) -> None:
        self._tasks.discard(task)
        self._shared.held_bytes -= batch.size
        error = ClientClosed("the producer was closed before the broker answered")
        _fail(batch.futures, error if task.cancelled() else task.exception() or error)

    async def _run(self, batch: OpenBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch.seal(self._ids, now_ms)
        if not batch.futures:
            return
        topic, queue, tags, wait_stored, sys_flag = batch.key
        if len(batch) > 1:
            batch_id = self._ids.next_id(now_ms)
            outgoing = prepare_merged(
                topic, batch.encode(), len(batch), sys_flag, tags, batch.keys, wait_stored, batch_id, now_ms
            )
            try:
                result = await self._send(outgoing, queue, None, self._config.send_timeout)
                if not (sys_flag and self._kinds.stores_whole(topic)):
                    _share_out(result, batch)
                    return
                # The topic changed its type: consumers will leave this one out, they take a batch for compressed.
            except ServerError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._broker_knows_batches = False
                elif sys_flag and error.code == ResponseCode.MESSAGE_ILLEGAL:
                    self._kinds.refused(topic)
                else:
                    raise
        await asyncio.gather(*self._singles(batch))

    def _singles(self, batch: OpenBatch) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sends of the messages one by one."""
        (topic, queue, _, _, sys_flag), now_ms = batch.key, time.time_ns() // 1_000_000
        for record, message_id, future in zip(batch.records(), batch.message_ids, batch.futures, strict=True):
            yield self._send_one(
                prepare_single(topic, record, sys_flag, message_id, now_ms, self._config), queue, future
            )

    async def _send_one(
        self, outgoing: Outgoing, queue: MessageQueue | None, future: asyncio.Future[SendResult]
    ) -> None:
        try:
            result = await self._send(outgoing, queue, None, self._config.send_timeout)
        except RaptorMQError as error:
            _fail([future], error)
        else:
            if not future.done():
                future.set_result(result)


def _share_out(result: SendResult, batch: OpenBatch) -> None:
    """Give each sender its part: a broker that stored single messages names one id each, else all share the batch's."""
    ids = result.offset_message_id.split(",")
    if len(ids) != len(batch):
        ids = [result.offset_message_id] * len(batch)
    status, queue, base = result.status, result.queue, result.queue_offset
    new = tuple.__new__  # half the time of the constructor, which is a Python function
    for offset, future, message_id, offset_id in zip(
        itertools.count(base), batch.futures, batch.message_ids, ids, strict=False
    ):
        if not future.done():
            future.set_result(new(SendResult, (status, message_id, offset_id, queue, offset, None)))


def _fail(futures: Sequence[asyncio.Future[SendResult]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
