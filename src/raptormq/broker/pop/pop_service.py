"""Reads messages for pops from the requested queues and from the group's retry topic (``PopMessageProcessor``).

A queue serves one pop of a group at a time. A concurrent pop skips it. A checkpoint is stored before the messages are
returned and before the group's offset advances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.broker.clients import MATCH_ALL, SubscriptionFilter
from raptormq.broker.config import MAX_ANSWER_BYTES, BrokerConfig
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.metrics import is_young
from raptormq.broker.pop.orderly_pops import QueueKey
from raptormq.broker.pop.popped_messages import PoppedMessages
from raptormq.broker.pop.queue_order import QueueOrder
from raptormq.broker.pull import OffsetResets
from raptormq.errors import StorageError
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.pop import CheckPoint
from raptormq.protocol.pop_handle import (
    POP_ORDER_REVIVE_QUEUE,
    PopHandle,
    build_handle,
    offsets_info,
    start_info,
    topic_kind,
)
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import QUEUE_OFFSET_AT, decode_record, encode_record, encoded_texts
from raptormq.storage.fs import Buffer
from raptormq.storage.read import GetResult, GetStatus, ReadOptions
from raptormq.storage.records import peek
from raptormq.storage.store import MessageStore
from raptormq.transport.memory import Reading

_POP_CHECKPOINT = f"{names.POP_CHECKPOINT}\x01".encode()


class PopRequest(NamedTuple):
    """A validated pop request. A ``queue_id`` of -1 means all queues."""

    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int
    from_oldest: bool
    orderly: bool
    subscription: SubscriptionFilter = MATCH_ALL
    attempt: str | None = None
    """Attempt id of an orderly pop. A repetition returns the messages of the first attempt."""


@dataclass(slots=True)
class PopResult:
    """Result of a pop. ``starts``, ``offsets`` and ``order_counts`` are header fields of the response."""

    pop_time: int
    revive_queue: int
    records: list[Buffer] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    left: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of remaining messages by topic and queue, without empty queues."""
    skipped: bool = False
    """True if a read ended before the end of its queue without a matching message. The next read may find one."""
    failure: StorageError | None = None
    """First error of reading a queue or storing its checkpoint."""
    size: int = 0
    """Total size of the records in bytes."""
    copied: int = 0
    """Part of ``size`` that was copied; the rest are slices of the mapped log."""

    @property
    def remaining(self) -> int:
        """Number of remaining messages in all queues."""
        return sum(self.left.values())


class PopService:
    """Pops messages of one broker."""

    def __init__(
        self,
        store: MessageStore,
        order: QueueOrder,
        popped: PoppedMessages,
        resets: OffsetResets,
        copies: CopyProperties,
        config: BrokerConfig,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._order = order
        self._popped = popped
        self._revive_log, self._orderly = popped.revive_log, popped.orderly
        self._resets = resets
        self._copies = copies
        self._broker_name = config.identity.broker_name
        self._pulling = config.pulling
        self._clock = clock
        self._busy: set[QueueKey] = set()

    @property
    def is_full(self) -> bool:
        """True if the limit of unacknowledged pops (``maxOutstandingPops``) is reached."""
        return self._revive_log.is_full

    async def loaded(self) -> None:
        """Wait until the checkpoints of earlier runs are loaded. Messages may be popped only afterwards."""
        await self._popped.loaded()

    async def pop(self, request: PopRequest, reading: Reading) -> PopResult:
        """Pop up to ``max_count`` messages. Skip queues that cannot be read, and queues without memory for the copy."""
        queue = POP_ORDER_REVIVE_QUEUE if request.orderly else self._revive_log.next_queue()
        popped = PopResult(self._clock(), queue)
        for topic, queue_id in self._queues(request):
            key = topic, request.group, queue_id
            if key in self._busy or len(popped.records) >= request.max_count:
                left = await self._remaining(key)
            else:
                self._busy.add(key)
                try:
                    left = await self._pop_queue(request, key, popped, reading)
                except StorageError as error:  # return the popped messages, which are already invisible
                    popped.failure = popped.failure or error
                    left = await self._remaining(key)
                finally:
                    self._busy.discard(key)
            if left:
                popped.left[topic, queue_id] = left
        return popped

    async def peek(
        self, group: str, topic: str, queue_id: int, limit: int, reading: Reading
    ) -> tuple[list[Buffer], int]:
        """Return up to ``limit`` messages that a pop would return, and the total number of remaining messages."""
        request = PopRequest(group, topic, queue_id, limit, 0, from_oldest=True, orderly=False)
        records: list[Buffer] = []
        remaining = size = copied = 0
        for each, number in self._queues(request):
            count = await self._remaining((each, group, number))
            remaining += count
            if count and len(records) < limit:
                low, high = await self._store.queue_bounds(each, number)
                start = max(low, high - count)
                result = await self._read(each, number, start, limit - len(records), MATCH_ALL, reading)
                if result is None:
                    continue
                copied += result.copied_bytes
                reading.has(copied)
                size += result.total_bytes
                if records and size > MAX_ANSWER_BYTES:
                    limit = len(records)
                    continue
                records += _split(result.buffers)
        return records, remaining

    async def has_messages(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        orderly: bool = False,
        attempt: str | None = None,
        tags: frozenset[int] | None = None,
    ) -> bool:
        """Return whether a pop of ``queue_id`` (-1: any queue) would find messages.

        ``tags`` are the tag codes of the messages of ``topic`` that count; None means all messages. In a queue with at
        least ``maxMessageFilterNumForNotification`` messages, all messages count.
        """
        request = PopRequest(group, topic, queue_id, 1, 0, from_oldest=True, orderly=orderly, attempt=attempt)
        for each, number in self._queues(request):
            key = each, group, number
            if orderly and self._orderly.is_blocked(key, self._clock(), attempt):
                continue
            remaining = await self._remaining(key)
            if not remaining:
                continue
            if tags is None or each != topic or remaining >= self._pulling.filtered_notification_count:
                return True
            _, end = await self._store.queue_bounds(each, number)
            found = await self._store.load_messages(each, number, end - remaining, ReadOptions(1, 1, tags))
            if found.message_count:
                return True
        return False

    def _queues(self, request: PopRequest) -> list[tuple[str, int]]:
        return self._order.queues(request.topic, request.group, request.queue_id, orderly=request.orderly)

    async def _pop_queue(self, request: PopRequest, key: QueueKey, popped: PopResult, reading: Reading) -> int:
        """Pop messages of one queue. Return the number of remaining messages that can be popped now."""
        topic, _, queue_id = key
        tombstone_offset = self._store.tombstone_offset(topic)
        offset = await self._start(key, from_oldest=request.from_oldest)
        if not self._commit(key, offset, tombstone_offset):
            return 0
        if request.orderly and self._orderly.is_blocked(key, popped.pop_time, request.attempt):
            return 0  # an acknowledgement wakes the next pop, not the messages of the queue
        subscription = request.subscription if topic == request.topic else MATCH_ALL
        limit = request.max_count - len(popped.records)
        result = await self._read(topic, queue_id, offset, limit, subscription, reading)
        if result is not None and result.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
            offset = result.next_offset
            if not self._commit(key, offset, tombstone_offset):
                return 0
            result = await self._read(topic, queue_id, offset, limit, subscription, reading)
        if result is None or self._store.tombstone_offset(topic) > tombstone_offset:
            return await self._remaining(key)
        reading.has(popped.copied + result.copied_bytes)
        if popped.records and popped.size + result.total_bytes > MAX_ANSWER_BYTES:
            reading.has(popped.copied)
            return max(0, result.max_offset - offset)
        if result.message_count:
            await self._return_messages(request, key, offset, result, popped)
        elif result.status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
            self._store.consumer_offsets.commit(topic, request.group, queue_id, result.next_offset)
            popped.skipped |= offset < result.next_offset < result.max_offset
        return max(0, result.max_offset - max(result.next_offset, offset))

    async def _return_messages(
        self, request: PopRequest, key: QueueKey, start: int, result: GetResult, popped: PopResult
    ) -> None:
        topic, group, queue_id = key
        records: list[Buffer] = list(_split(result.buffers))
        offsets = [int.from_bytes(record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big") for record in records]
        handle = PopHandle(start, popped.pop_time, request.invisible_ms, popped.revive_queue, self._broker_name)
        if request.orderly:
            before = self._orderly.started(key, popped.pop_time, request.invisible_ms, offsets, request.attempt)
            kind = topic_kind(topic)
            popped.order_counts += [f"{kind} qo{queue_id}%{offset} {times}" for offset, times in before.items()]
        else:
            checkpoint = CheckPoint(
                topic, group, queue_id, start, popped.pop_time, request.invisible_ms, tuple(offsets), self._broker_name
            )
            if not await self._revive_log.write_checkpoint(checkpoint, popped.revive_queue):
                return
            self._store.consumer_offsets.commit(topic, group, queue_id, result.next_offset)
        popped.starts.append(start_info(topic, queue_id, start))
        popped.offsets.append(offsets_info(topic, queue_id, offsets))
        if topic != request.topic:
            records = [self._with_handle(record, request.topic, handle) for record in records]
            popped.copied += sum(map(len, records))
        elif any(map(_has_handle, records)):
            records = [self._with_handle(each, topic, handle) if _has_handle(each) else each for each in records]
            popped.copied += sum(map(len, records))
        else:
            popped.copied += result.copied_bytes
        popped.records += records
        popped.size += result.total_bytes

    def _with_handle(self, record: Buffer, topic: str, handle: PopHandle) -> bytes:
        """Return a message with its pop handle. A message of a retry topic becomes one of its original ``topic``.

        A handle in the stored message, which a producer has sent, is replaced. This broker drops such handles from
        messages that it can read (:data:`~names.BROKER_ONLY`), but those of other brokers and of compressed batches
        may be in the log.
        """
        message = decode_record(record, check_crc=False)
        found = decode_properties(message.properties)
        needed = {names.POP_CHECKPOINT: build_handle(handle, message.topic, message.queue_id, message.queue_offset)}
        message.topic, message.properties = topic, self._copies.fit(topic, found, needed)
        return encode_record(message)

    async def _start(self, key: QueueKey, *, from_oldest: bool) -> int:
        topic, group, queue_id = key
        offsets = self._store.consumer_offsets
        offset = self._resets.take(topic, group, queue_id)
        if offset is not None:
            self._orderly.forget(key)  # the next acknowledgement would undo the reset
        else:
            offset = offsets.get(topic, group, queue_id)
        if offset is None:
            low, high = await self._store.queue_bounds(topic, queue_id)
            oldest = from_oldest or topic_kind(topic) != "0"
            offset = low if oldest or await is_young(self._store, topic, queue_id) else max(high - 1, 0)
        return offset

    def _commit(self, key: QueueKey, offset: int, tombstone_offset: int) -> bool:
        """Advance the group's pop offset.

        Return False if the topic was deleted after ``tombstone_offset`` (:meth:`MessageStore.tombstone_offset`) was
        read. The offset does not apply to a topic that was created again.
        """
        topic, group, queue_id = key
        if self._store.tombstone_offset(topic) > tombstone_offset:
            return False
        self._store.consumer_offsets.commit(topic, group, queue_id, offset)
        return True

    async def _remaining(self, key: QueueKey) -> int:
        topic, group, queue_id = key
        low, high = await self._store.queue_bounds(topic, queue_id)
        return max(0, high - max(low, self._store.consumer_offsets.get(topic, group, queue_id) or 0))

    async def _read(
        self, topic: str, queue_id: int, offset: int, limit: int, subscription: SubscriptionFilter, reading: Reading
    ) -> GetResult | None:
        """Return the result of a read, or None if there is no memory for copies."""
        options = ReadOptions(limit, self._pulling.memory_bytes, *subscription)
        at_once = options if reading.may_copy else options._replace(copies=False)
        result = self._store.get_messages(topic, queue_id, offset, at_once)
        if not result.non_resident:
            return result if await reading.granted_mapped(result.total_bytes) else None
        if not await reading.granted(result.total_bytes):
            return None
        return await self._store.load_messages(topic, queue_id, offset, options)


def _has_handle(record: Buffer) -> bool:
    return _POP_CHECKPOINT in encoded_texts(record)


def _split(buffers: list[Buffer]) -> Iterator[memoryview]:
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        while at < len(view):
            size, _ = peek(view, at)
            yield view[at : at + size]
            at += size
