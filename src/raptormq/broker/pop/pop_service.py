"""Serves pops from the requested queues and from the group's retry topic (``PopMessageProcessor``).

A queue serves one pop of a group at a time; a concurrent pop skips it. A checkpoint is stored before the messages are
returned and before the group's offset advances.

Queues are read from a random one on. Those of a PRIORITY topic (RIP-80) are read in the order of their numbers, which
are the priorities of their messages: the highest first, or with ``priorityOrderAsc = false`` the lowest. The group's
``priority.factor`` is the percentage of its pops that do so. Orderly pops never do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.broker.clients import MATCH_ALL, SubscriptionFilter
from raptormq.broker.config import MAX_ANSWER_BYTES, PopOrderSettings, PullSettings
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.metrics import is_young
from raptormq.broker.pop.orderly_pops import OrderlyPops, Place
from raptormq.broker.pop.revive_log import ReviveLog
from raptormq.broker.pull import OffsetResets
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.errors import StorageError
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.pop import CheckPoint
from raptormq.protocol.pop_handle import (
    POP_ORDER_REVIVE_QUEUE,
    PopHandle,
    build_handle,
    offsets_info,
    pop_retry_topic,
    start_info,
    topic_kind,
)
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import QUEUE_OFFSET_AT, decode_record, encode_record
from raptormq.protocol.topic_attributes import MESSAGE_TYPE, PRIORITY
from raptormq.protocol.topic_names import RETRY_PREFIX
from raptormq.storage.fs import Buffer
from raptormq.storage.read import GetResult, GetStatus, ReadOptions
from raptormq.storage.records import peek
from raptormq.storage.store import MessageStore
from raptormq.transport.memory import Reading


class PopRequest(NamedTuple):
    """A pop request; ``queue_id`` -1 stands for all queues."""

    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int
    from_oldest: bool
    orderly: bool
    wanted: SubscriptionFilter = MATCH_ALL
    attempt: str | None = None
    """Attempt id of an orderly pop; a repetition gets the messages of its first try."""


@dataclass(slots=True)
class PopResult:
    """Result of a pop; ``starts``, ``offsets`` and ``order_counts`` are header fields of the response."""

    pop_time: int
    revive_queue: int
    records: list[Buffer] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    left: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of remaining messages by topic and queue, without empty queues."""
    skipped: bool = False
    """A read found no matching message before the end of its queue; the next read may find one."""
    failure: StorageError | None = None
    """First error of reading a queue or storing its checkpoint."""
    size: int = 0
    """Bytes of all records."""
    copied: int = 0
    """Bytes of ``size`` that are copies, not slices of the mapped log."""

    @property
    def rest(self) -> int:
        """Remaining messages in all queues."""
        return sum(self.left.values())


class PopService:
    """Pops messages of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        checkpoints: ReviveLog,
        orderly: OrderlyPops,
        resets: OffsetResets,
        broker_name: str,
        copies: CopyProperties,
        pulling: PullSettings,
        order: PopOrderSettings,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._checkpoints = checkpoints
        self._orderly = orderly
        self._resets = resets
        self._broker_name = broker_name
        self._copies = copies
        self._pulling = pulling
        self._order = order
        self._clock = clock
        self._busy: set[Place] = set()

    @property
    def is_full(self) -> bool:
        """True while no more messages may be popped (``maxOutstandingPops``)."""
        return self._checkpoints.is_full

    async def pop(self, asked: PopRequest, reading: Reading) -> PopResult:
        """Pop up to ``max_count`` messages. Queues that cannot be read, or for which memory is lacking, are skipped."""
        queue = POP_ORDER_REVIVE_QUEUE if asked.orderly else self._checkpoints.next_queue()
        popped = PopResult(self._clock(), queue)
        for topic, queue_id in self._places(asked):
            place = topic, asked.group, queue_id
            if place in self._busy or len(popped.records) >= asked.max_count:
                left = await self._rest(place)
            else:
                self._busy.add(place)
                try:
                    left = await self._take(asked, place, popped, reading)
                except StorageError as error:  # return what was popped: it is invisible already
                    popped.failure = popped.failure or error
                    left = await self._rest(place)
                finally:
                    self._busy.discard(place)
            if left:
                popped.left[topic, queue_id] = left
        return popped

    async def peek(
        self, group: str, topic: str, queue_id: int, most: int, reading: Reading
    ) -> tuple[list[Buffer], int]:
        """Return up to ``most`` stored messages that a pop would return, and the number of all remaining messages."""
        asked = PopRequest(group, topic, queue_id, most, 0, from_oldest=True, orderly=False)
        records: list[Buffer] = []
        rest = size = copied = 0
        for each, number in self._places(asked):
            count = await self._rest((each, group, number))
            rest += count
            if count and len(records) < most:
                low, high = await self._store.queue_bounds(each, number)
                start = max(low, high - count)
                result = await self._read(each, number, start, most - len(records), MATCH_ALL, reading)
                if result is None:
                    continue
                copied += result.copied_bytes
                reading.has(copied)
                size += result.total_bytes
                if records and size > MAX_ANSWER_BYTES:
                    most = len(records)
                    continue
                records += _split(result.buffers)
        return records, rest

    async def waiting(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        orderly: bool = False,
        attempt: str | None = None,
        tags: frozenset[int] | None = None,
    ) -> bool:
        """Return whether a pop of a queue (-1: any queue) would find messages. ``tags`` are the tag codes of the
        messages of ``topic`` that count, None stands for all. A queue with many messages is not filtered
        (``maxMessageFilterNumForNotification``).
        """
        asked = PopRequest(group, topic, queue_id, 1, 0, from_oldest=True, orderly=orderly, attempt=attempt)
        for each, number in self._places(asked):
            place = each, group, number
            if orderly and self._orderly.is_blocked(place, self._clock(), attempt):
                continue
            rest = await self._rest(place)
            if not rest:
                continue
            if tags is None or each != topic or rest >= self._pulling.filtered_notification_count:
                return True
            _, end = await self._store.queue_bounds(each, number)
            found = await self._store.load_messages(each, number, end - rest, ReadOptions(1, 1, tags))
            if found.message_count:
                return True
        return False

    def _places(self, asked: PopRequest) -> list[tuple[str, int]]:
        percent = random.randrange(100)
        by_priority = not asked.orderly and self._is_by_priority(asked.topic, asked.group, percent)
        queues = [asked.queue_id] if asked.queue_id >= 0 else self._queues(asked.topic, by_priority=by_priority)
        own = [(asked.topic, queue_id) for queue_id in queues]
        if asked.orderly or asked.topic.startswith(RETRY_PREFIX):
            return own
        v2, v1_too = self._pulling.retry_topic_v2, self._pulling.retry_topic_v1_too
        kinds = [True, False] if v2 and v1_too else [v2]
        topics = [pop_retry_topic(asked.topic, asked.group, v2=kind) for kind in kinds]
        retries = [(topic, queue_id) for topic in topics for queue_id in self._queues(topic, by_priority=by_priority)]
        order = self._order
        retry_first = percent < (order.retry_first_percent_by_priority if by_priority else order.retry_first_percent)
        return retries + own if retry_first else own + retries

    def _is_by_priority(self, topic: str, group: str, percent: int) -> bool:
        """Whether the pop with the random number ``percent`` reads the queues in the order of their priorities."""
        config, settings = self._topics.get(topic), self._groups.get(group)
        if config is None or config.attributes.get(MESSAGE_TYPE) != PRIORITY:
            return False
        return settings is None or percent < settings.priority_factor

    def _queues(self, topic: str, *, by_priority: bool) -> list[int]:
        config = self._topics.get(topic)
        count = config.read_queue_nums if config is not None else 0
        if by_priority:
            return list(range(count - 1, -1, -1) if self._order.highest_first else range(count))
        first = random.randrange(count) if count else 0
        return [(first + number) % count for number in range(count)]

    async def _take(self, asked: PopRequest, place: Place, popped: PopResult, reading: Reading) -> int:
        """Pop messages of one queue; return the number of remaining messages that can be popped now."""
        topic, _, queue_id = place
        tombstone_offset = self._store.tombstone_offset(topic)
        offset = await self._start(place, from_oldest=asked.from_oldest)
        if not self._commit(place, offset, tombstone_offset):
            return 0
        if asked.orderly and self._orderly.is_blocked(place, popped.pop_time, asked.attempt):
            return 0  # retried after an acknowledgement, not because of its messages
        wanted = asked.wanted if topic == asked.topic else MATCH_ALL
        most = asked.max_count - len(popped.records)
        result = await self._read(topic, queue_id, offset, most, wanted, reading)
        if result is not None and result.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
            offset = result.next_offset
            if not self._commit(place, offset, tombstone_offset):
                return 0
            result = await self._read(topic, queue_id, offset, most, wanted, reading)
        if result is None or self._store.tombstone_offset(topic) > tombstone_offset:
            return await self._rest(place)
        reading.has(popped.copied + result.copied_bytes)
        if popped.records and popped.size + result.total_bytes > MAX_ANSWER_BYTES:
            reading.has(popped.copied)
            return max(0, result.max_offset - offset)
        if result.message_count:
            await self._hand_out(asked, place, offset, result, popped)
        elif result.status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
            self._store.consumer_offsets.commit(topic, asked.group, queue_id, result.next_offset)
            popped.skipped |= offset < result.next_offset < result.max_offset
        return max(0, result.max_offset - max(result.next_offset, offset))

    async def _hand_out(
        self, asked: PopRequest, place: Place, start: int, result: GetResult, popped: PopResult
    ) -> None:
        topic, group, queue_id = place
        records: list[Buffer] = list(_split(result.buffers))
        offsets = [int.from_bytes(record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big") for record in records]
        handle = PopHandle(start, popped.pop_time, asked.invisible_ms, popped.revive_queue, self._broker_name)
        if asked.orderly:
            before = self._orderly.started(place, popped.pop_time, asked.invisible_ms, offsets, asked.attempt)
            kind = topic_kind(topic)
            popped.order_counts += [f"{kind} qo{queue_id}%{offset} {times}" for offset, times in before.items()]
        else:
            checkpoint = CheckPoint(
                topic, group, queue_id, start, popped.pop_time, asked.invisible_ms, tuple(offsets), self._broker_name
            )
            if not await self._checkpoints.write_checkpoint(checkpoint, popped.revive_queue):
                return
            self._store.consumer_offsets.commit(topic, group, queue_id, result.next_offset)
        popped.starts.append(start_info(topic, queue_id, start))
        popped.offsets.append(offsets_info(topic, queue_id, offsets))
        if topic != asked.topic:
            records = [self._as_origin(record, asked.topic, handle) for record in records]
            popped.copied += sum(map(len, records))
        else:
            popped.copied += result.copied_bytes
        popped.records += records
        popped.size += result.total_bytes

    def _as_origin(self, record: Buffer, topic: str, handle: PopHandle) -> bytes:
        """Return a message of a retry topic as a message of its original topic, with its pop handle."""
        message = decode_record(record, check_crc=False)
        found = decode_properties(message.properties)
        needed: dict[str, str] = {}
        if names.POP_CHECKPOINT not in found:
            own = build_handle(handle, message.topic, message.queue_id, message.queue_offset)
            needed[names.POP_CHECKPOINT] = own
        message.topic, message.properties = topic, self._copies.fit(topic, found, needed)
        return encode_record(message)

    async def _start(self, place: Place, *, from_oldest: bool) -> int:
        topic, group, queue_id = place
        offsets = self._store.consumer_offsets
        offset = self._resets.take(topic, group, queue_id)
        if offset is not None:
            self._orderly.forget(place)  # else the next acknowledgement would undo the reset
        else:
            offset = offsets.get(topic, group, queue_id)
        if offset is None:
            low, high = await self._store.queue_bounds(topic, queue_id)
            oldest = from_oldest or topic_kind(topic) != "0"
            offset = low if oldest or await is_young(self._store, topic, queue_id) else max(high - 1, 0)
        return offset

    def _commit(self, place: Place, offset: int, tombstone_offset: int) -> bool:
        """Advance the group's pop offset. Return False when the topic was deleted after its
        :meth:`MessageStore.tombstone_offset` was read; the offset does not belong to the recreated topic then.
        """
        topic, group, queue_id = place
        if self._store.tombstone_offset(topic) > tombstone_offset:
            return False
        self._store.consumer_offsets.commit(topic, group, queue_id, offset)
        return True

    async def _rest(self, place: Place) -> int:
        topic, group, queue_id = place
        low, high = await self._store.queue_bounds(topic, queue_id)
        return max(0, high - max(low, self._store.consumer_offsets.get(topic, group, queue_id) or 0))

    async def _read(
        self, topic: str, queue_id: int, offset: int, most: int, wanted: SubscriptionFilter, reading: Reading
    ) -> GetResult | None:
        """Read messages; None when there is no memory for copies."""
        options = ReadOptions(most, self._pulling.memory_bytes, *wanted)
        at_once = options if reading.may_copy else options._replace(copies=False)
        result = self._store.get_messages(topic, queue_id, offset, at_once)
        if not result.non_resident:
            return result if await reading.granted_mapped(result.total_bytes) else None
        if not await reading.granted(result.total_bytes):
            return None
        return await self._store.load_messages(topic, queue_id, offset, options)


def _split(buffers: list[Buffer]) -> Iterator[memoryview]:
    for buffer in buffers:
        view, at = memoryview(buffer), 0
        while at < len(view):
            size, _ = peek(view, at)
            yield view[at : at + size]
            at += size
