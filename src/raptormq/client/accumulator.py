"""AutoBatch: messages that are sent one by one leave together (RIP-27).

One :class:`Accumulator` per client keeps count of what waits; a :class:`Lane` holds the open batches of the producers
with one group and one configuration. A batch is for one topic, queue (or any), tag and wait flag. It leaves when it is
full (bytes or count), when its first message is as old as allowed - a timer per batch, no thread and no polling - or
when a producer closes. A batch without a queue goes to one queue as a whole, so the choice sticks while it fills.

What is not merged is sent by itself at once: delayed messages, messages to retry topics, bodies as large as a whole
batch, and everything while too much waits already.
Neighbours: `producer` adds, `outgoing` encodes, `delivery` sends. Source: RocketMQ `ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from raptormq.client.config import ProducerConfig
from raptormq.client.outgoing import Outgoing, PreparedRecord, join_records, prepare_record, prepare_single
from raptormq.client.results import SendResult
from raptormq.errors import ClientClosed, RaptorMQError, ServerError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory

MAX_KEYS_CHARS = 4096
"""Keys united in one batch, in characters: with up to 4 bytes each they fit the properties of a request."""

Send = Callable[[Outgoing, MessageQueue | None, str | None, float], Awaitable[SendResult]]
_Key = tuple[str, MessageQueue | None, str | None, bool]


class Accumulator:
    """What the lanes of one client have in common."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Bytes of the messages that wait for their batch to fill or to be answered."""
        self.open_batches = 0
        self._lanes: dict[tuple[str, ProducerConfig], Lane] = {}

    def join(self, group: str, config: ProducerConfig, ids: UniqueIdFactory, send: Send) -> Lane:
        """Return the lane of the producers with this group and configuration; give it back with `Lane.leave`."""
        lane = self._lanes.get((group, config))
        if lane is None:
            lane = self._lanes[group, config] = Lane(self, config, ids, send)
        lane.users += 1
        return lane

    def drop(self, lane: Lane) -> None:
        """Forget a lane that nobody uses."""
        self._lanes = {key: known for key, known in self._lanes.items() if known is not lane}


class _Batch:
    """Messages of one key that leave together; columns, because there is an entry per message sent."""

    __slots__ = ("futures", "keys", "keys_chars", "records", "size", "timer")

    def __init__(self) -> None:
        self.records: list[PreparedRecord] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.keys: dict[str, None] = {}
        self.keys_chars = 0
        self.size = 0
        self.timer: asyncio.TimerHandle


class Lane:
    """The open batches of the producers that have one group and one configuration."""

    def __init__(self, shared: Accumulator, config: ProducerConfig, ids: UniqueIdFactory, send: Send) -> None:
        self._shared = shared
        self._config = config
        self._ids = ids
        self._send = send
        self._open: dict[_Key, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broker_knows_batches = True
        self.users = 0

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult] | None:
        """Put a message into its batch and return what will hold its result; None when it is to be sent by itself.

        Raises:
            MessageError: the message breaks a rule.
        """
        config, shared = self._config, self._shared
        if shared.held_bytes >= config.total_batch_max_bytes or not self._broker_knows_batches:
            return None
        key = message.topic, queue, message.tags, message.wait_stored
        batch = self._open.get(key)
        if batch is None and shared.open_batches >= config.max_open_batches:
            return None
        if len(message.body) >= config.batch_max_bytes:
            return None
        now_ms = time.time_ns() // 1_000_000
        record = prepare_record(message, self._ids, now_ms)
        if record is None:
            return None
        size = OVERHEAD_BYTES + len(record.body) + len(record.properties)
        keys_chars = sum(map(len, message.keys)) + len(message.keys) if message.keys else 0
        if batch is not None and not self._has_room(batch, size, keys_chars):
            self._close(key, batch)
            batch = None
        loop = asyncio.get_running_loop()
        if batch is None:
            batch = self._open[key] = _Batch()
            batch.timer = loop.call_later(config.batch_max_delay_ms / 1000, self._close, key, batch)
            shared.open_batches += 1
        future: asyncio.Future[SendResult] = loop.create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.size += size
        shared.held_bytes += size
        if keys_chars:
            batch.keys.update(dict.fromkeys(message.keys))
            batch.keys_chars += keys_chars
        if batch.size >= config.batch_max_bytes or len(batch.records) == MAX_BATCH_RECORDS:
            self._close(key, batch)
        return future

    def _has_room(self, batch: _Batch, size: int, keys_chars: int) -> bool:
        fits = batch.size + size <= self._config.max_message_bytes
        return fits and batch.keys_chars + keys_chars <= MAX_KEYS_CHARS

    def flush(self) -> None:
        """Let all open batches leave now."""
        for key, batch in list(self._open.items()):
            self._close(key, batch)

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

    def _close(self, key: _Key, batch: _Batch) -> None:
        """Take a batch out of the open ones and send it."""
        batch.timer.cancel()
        del self._open[key]
        self._shared.open_batches -= 1
        task = asyncio.get_running_loop().create_task(self._run(key, batch))
        self._tasks.add(task)
        # Not in the task: one that is cancelled before its first step never runs a line of itself.
        task.add_done_callback(lambda _task: self._finish(_task, batch))

    def _finish(self, task: asyncio.Task[None], batch: _Batch) -> None:
        self._tasks.discard(task)
        self._shared.held_bytes -= batch.size
        error = ClientClosed("the producer was closed before the broker answered")
        _fail(batch.futures, error if task.cancelled() else task.exception() or error)

    async def _run(self, key: _Key, batch: _Batch) -> None:
        records, futures = batch.records, batch.futures
        if any(future.cancelled() for future in futures):  # nobody wants to know of these any more
            wanted = [pair for pair in zip(records, futures, strict=True) if not pair[1].cancelled()]
            records, futures = [record for record, _ in wanted], [future for _, future in wanted]
        if not records:
            return
        topic, queue, tags, wait_stored = key
        now_ms = time.time_ns() // 1_000_000
        if len(records) > 1:
            outgoing = join_records(topic, records, tags, batch.keys, wait_stored, self._ids.next_id(now_ms), now_ms)
            try:
                _share_out(await self._send(outgoing, queue, None, self._config.send_timeout), records, futures)
                return
            except ServerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            self._broker_knows_batches = False
        await asyncio.gather(*(self._send_one(topic, queue, *pair) for pair in zip(records, futures, strict=True)))

    async def _send_one(
        self, topic: str, queue: MessageQueue | None, record: PreparedRecord, future: asyncio.Future[SendResult]
    ) -> None:
        outgoing = prepare_single(topic, record, time.time_ns() // 1_000_000, self._config)
        try:
            result = await self._send(outgoing, queue, None, self._config.send_timeout)
        except RaptorMQError as error:
            _fail([future], error)
        else:
            if not future.done():
                future.set_result(result)


def _share_out(
    result: SendResult, records: Sequence[PreparedRecord], futures: Sequence[asyncio.Future[SendResult]]
) -> None:
    """Give each sender its part: a broker that stored single messages names one id each, else all share the batch's."""
    ids = result.offset_message_id.split(",")
    if len(ids) != len(records):
        ids = [result.offset_message_id] * len(records)
    status, queue, base = result.status, result.queue, result.queue_offset
    new = tuple.__new__  # half the time of the constructor, which is a Python function
    for index, future in enumerate(futures):
        if not future.done():
            fields = status, records[index][3], ids[index], queue, base + index
            future.set_result(new(SendResult, fields))


def _fail(futures: Sequence[asyncio.Future[SendResult]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
