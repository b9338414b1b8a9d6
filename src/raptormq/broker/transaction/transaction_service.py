"""Commits, rolls back, checks and discards transactions (``TransactionalMessageServiceImpl``,
``TransactionalMessageCheckService``).

A commit appends the committed message and then the op of its half message, with one write. If a crash separates the
two, the next start finds the message, which records its half message as origin, and writes the op
(:mod:`raptormq.broker.delivered`). Renewed and discarded half messages are written in the same way.

There are two differences from RocketMQ. A second commit of a decided half message is refused, while RocketMQ delivers
the message again. A check is counted only if a producer is connected, while RocketMQ discards a transaction whose
producers are disconnected for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from raptormq.broker.config import TransactionSettings as Settings
from raptormq.broker.delay.delayed_message import why_discarded
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.loading import Loading
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import TopicTable
from raptormq.broker.transaction.half_message import (
    Producers,
    check_count,
    committed,
    decided_offsets,
    discarded,
    immunity_ms,
    op_record,
    producers_of,
    renewed,
)
from raptormq.broker.transaction.half_message_index import HalfMessageIndex, OpenHalf
from raptormq.errors import RecordError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.record import StoredMessage, decode_record, iter_records
from raptormq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC, ROCKSDB_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.storage.background import cooperatively
from raptormq.storage.fs import Buffer
from raptormq.storage.queue import Arrival, PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

logger = get_logger(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
"""Consumer group whose offsets in the half queue and the op queue are the saved progress, as in RocketMQ."""
_PAGE = 1_024
_PAGE_BYTES = 4 << 20
_HOUR_MS = 3_600_000
_RETRY_S = 1.0

_RENEW_INTERVAL_MS = 600_000
"""Interval at which a half message without connected producers is renewed, in ms. A start reads the half queue and the
op queue from the oldest open half message, and renewals keep this range short. A half message with a later check time
is also read at this interval, because retention may have deleted it.
"""
_RENEWALS_PER_ROUND = 500
"""Maximum number of renewals of half messages without connected producers in one round of checks, oldest first. After a
start all of them are due. The checks of other half messages wait for the confirmation of each renewal.
"""


class CheckSender(Protocol):
    """Sends checks to producers."""

    def next_producer(self, producers: Producers) -> Connection | None:
        """Return the connection of the next producer to check, or None if none of ``producers`` is connected."""

    def ask(self, producer: Connection, half: StoredMessage) -> None:
        """Send a check of ``half`` to ``producer``."""


class TransactionService:
    """Background service that manages the open transactions of a broker."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        settings: Settings,
        check_sender: CheckSender,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._settings = settings
        self._check_sender = check_sender
        self._fit = partial(writer.properties.fit, HALF_TOPIC)
        self._clock = clock
        self._half_index = HalfMessageIndex(0, 0)
        self._unreachable = 0
        """Number of due half messages without a connected producer in this round."""
        self._renewing: dict[int, asyncio.Event] = {}
        """Halves that are being renewed, by offset. The event is set at the end of the renewal."""
        self._resumed: set[int] = set()
        """Log offsets of discarded half messages whose checks were resumed since the start."""
        self._copied: set[int] = set()
        """Log offsets of records that have a copy in the log. An op may be missing."""
        self._missing_ops: list[int] = []
        """Offsets of half messages that have a copy but no op."""
        self._loading = Loading()
        self._task: asyncio.Task[None] | None = None

    @property
    def open_count(self) -> int:
        """Number of undecided transactions."""
        return len(self._half_index.open)

    # --- start and stop ---

    @property
    def needs_copies(self) -> bool:
        """True until every decided half message has an op in the log."""
        return not self._loading.is_done or bool(self._missing_ops)

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Treat every half message with a copy as decided. A crash may have prevented its op."""
        self._copied = copies.origins
        if forgotten:
            self._store.consumer_offsets.remove_group(GROUP)

    def start(self) -> None:
        """Load the half messages that earlier runs left open, then check them periodically."""
        if self._store.queue_ids(ROCKSDB_HALF_TOPIC):
            logger.warning(
                "the store has transactional messages in topic %s, whose state Apache RocketMQ stores in RocksDB; "
                "undecided messages are kept but not delivered",
                ROCKSDB_HALF_TOPIC,
            )
        self._loading.begin()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def role_changed(self, *, leads: bool) -> None:
        """Forget the open transactions, because another member leads and decides them."""
        if leads:
            self._loading.begin()
            return
        self._loading.refuse("this member no longer leads the group of this broker: send the decision again")
        if self._task is not None:
            self._task.cancel()
        self._half_index, self._missing_ops = HalfMessageIndex(0, 0), []

    async def stop(self) -> None:
        """Stop the task and commit the progress."""
        if self._task is None:
            return
        await cancel_and_wait(self._task)
        self._task = None
        if self._loading.is_done:
            await self._commit_progress()

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Add half messages that have become visible."""
        if self._task is None:
            return  # a start loads them
        for topic, _, next_offset, _ in arrivals:
            if topic == HALF_TOPIC:
                self._half_index.add_half(next_offset - 1, self._clock())

    async def ready(self) -> None:
        """Wait until the decisions of earlier runs are loaded.

        Raises:
            NotLeader: this member no longer leads its Dledger group.
        """
        await self._loading.wait()

    async def _run(self) -> None:
        while not self._loading.is_done:
            try:
                await self._read_ops(await self._load_halves())
                await self._find_decided_copies()
                self._loading.finish()
            except Exception:  # new decisions wait in :meth:`ready`
                logger.exception("cannot load the decided transactions; retrying")
                await asyncio.sleep(_RETRY_S)
        work: list[Callable[[], Awaitable[None]]] = [self._write_missing_ops]
        while True:
            try:
                for each in work:
                    await each()
            except StorageError as error:
                logger.warning("cannot check open transactions; retrying: %s", error)
            except Exception:
                logger.exception("cannot check open transactions; retrying")
            work = [self._write_missing_ops, self._check_all, self._commit_progress]
            await asyncio.sleep(self._settings.check_interval_ms / 1000)

    async def _load_halves(self) -> int:
        """Load all half messages after the saved progress as open. Return the op offset from which to read
        decisions.
        """
        offsets = self._store.consumer_offsets
        half_low, _ = await self._store.queue_bounds(HALF_TOPIC, 0)
        op_low, op_end = await self._store.queue_bounds(OP_HALF_TOPIC, 0)
        half_end = self._store.queue_end(HALF_TOPIC, 0)
        first_half = min(max(offsets.get(HALF_TOPIC, GROUP, 0) or 0, half_low), half_end)
        first_op = min(max(offsets.get(OP_HALF_TOPIC, GROUP, 0) or 0, op_low), op_end)
        index = HalfMessageIndex(first_half, first_op)
        async for half in cooperatively(self._halves_from(first_half)):
            index.add_half(half, 0)
        self._half_index = index  # no await after the last half message: arrived() adds later ones
        return first_op

    def _halves_from(self, offset: int) -> Iterator[int]:
        """Yield the offsets of half messages, including those that arrive during the iteration."""
        while offset < self._store.queue_end(HALF_TOPIC, 0):
            yield offset
            offset += 1

    async def _read_ops(self, offset: int) -> None:
        """Read the decisions, starting at op offset ``offset``. The half messages of a damaged op are checked again."""
        count = _PAGE
        while offset < self._store.queue_end(OP_HALF_TOPIC, 0):
            found = await self._store.load_messages(OP_HALF_TOPIC, 0, offset, ReadOptions(count, _PAGE_BYTES))
            try:
                ops = [op for data in found.buffers for op in iter_records(data)]
            except RecordError as error:
                if count > 1:
                    count = 1  # read single records up to the damaged one
                    continue
                logger.warning("skipped a damaged transaction decision at op offset %d: %s", offset, error)
                ops, count = [], _PAGE
            for op in ops:
                self._half_index.add_op(op.queue_offset, decided_offsets(op))
            offset = max(found.next_offset, offset + 1)
            await asyncio.sleep(0)  # yield: a page takes some milliseconds

    async def _find_decided_copies(self) -> None:
        """Find the half messages that have a copy but no op."""
        pending_offsets, copied, self._missing_ops = self._half_index.open, self._copied, []
        offset = next(iter(pending_offsets), 0)
        while copied and pending_offsets and (items := await self._store.queue_items(HALF_TOPIC, 0, offset, _PAGE)):
            for each, (place, _, _) in enumerate(items, offset):
                if place in copied and each in pending_offsets:
                    self._half_index.begin_decision(each)
                    self._missing_ops.append(each)
            offset += len(items)
            await asyncio.sleep(0)
        self._copied = set()

    async def _write_missing_ops(self) -> None:
        """Write the ops that a crash prevented.

        Raises:
            StorageError: nothing was written. Call again later.
        """
        if halves := self._missing_ops:
            result = await self._writer.write_confirmed([op_record(half, self._clock()) for half in halves])
            for half, op in zip(halves, result.queue_offsets, strict=True):
                self._half_index.add_op(op, [half])
            self._missing_ops = []

    async def _commit_progress(self) -> None:
        async for _ in cooperatively(self._half_index.discard_ops()):
            pass
        half, op = self._half_index.progress
        if not half:
            return  # there has been no transaction
        self._store.consumer_offsets.commit(HALF_TOPIC, GROUP, 0, half)
        self._store.consumer_offsets.commit(OP_HALF_TOPIC, GROUP, 0, op)

    # --- decisions ---

    async def current(self, half: StoredMessage) -> StoredMessage | None:
        """Return the current copy of an open half message, or None if it is decided.

        Each check renews the half message, so a producer with a long local transaction may have an earlier offset.

        Raises:
            StorageError: the half message is open and cannot be read, or this member no longer leads its Dledger group.
        """
        current: StoredMessage | None = half
        while True:  # another decision or a check may run during each await
            await self.ready()
            # Look up the offset of the request: the offset of ``current`` may not have been sent to any producer.
            place = self._half_index.current_offset(half.queue_offset)
            if (moving := self._renewing.get(place)) is not None:
                await moving.wait()
            elif not self._half_index.is_open(place):
                return None
            elif current is not None and place == current.queue_offset:
                return current
            else:
                current = await self._read(place)
                if current is None and self._half_index.is_open(place):
                    raise StorageError(f"cannot read the open transaction at half offset {place}")

    async def commit(self, half: StoredMessage) -> None:
        """Commit an open half message: deliver its message.

        Raises:
            StorageError: the write failed. The half message is still open.
        """
        record = committed(half)
        if record is None or record.topic not in self._topics.configs:
            logger.warning(
                "discarded the committed message at log offset %d: %s", half.physical_offset, why_discarded(record)
            )
            await self._write_decision(half, [])
        else:
            await self._write_decision(half, [record])

    async def roll_back(self, half: StoredMessage) -> None:
        """Roll back an open half message.

        Raises:
            StorageError: the write failed. The half message is still open.
        """
        await self._write_decision(half, [])

    def is_resumed(self, half: StoredMessage) -> bool:
        """Return whether the checks of a discarded half message were resumed. A second copy would cause a second
        delivery.
        """
        return half.physical_offset in self._resumed

    async def resume(self, half: StoredMessage) -> None:
        """Restart the checks of an open or discarded half message with a count of 0.

        Raises:
            StorageError: the write failed.
        """
        record = renewed(half, 0, self._fit)
        if half.topic == HALF_TOPIC:
            await self._renew(half, record, announced=False)
        else:
            await self._resume_discarded(half, record)

    async def _resume_discarded(self, half: StoredMessage, record: PendingRecord) -> None:
        self._resumed.add(half.physical_offset)  # before the await, as in _write_decision()
        try:
            await self._writer.write_confirmed([record])
        except StorageError:
            self._resumed.remove(half.physical_offset)
            raise

    async def _renew(self, half: StoredMessage, record: PendingRecord, *, announced: bool) -> tuple[int, int]:
        """Renew an open half message. Return the queue offset and the log offset of the copy. ``announced``: whether
        they are sent to a producer.
        """
        before = half.queue_offset
        earlier, moving = self._half_index.known_offsets(before), asyncio.Event()
        self._renewing[before] = moving
        try:
            offset, place = await self._write_decision(half, [record])
            self._half_index.move(earlier, offset, place, announced=announced)
        finally:
            del self._renewing[before]
            moving.set()
        return offset, place

    async def _write_decision(self, half: StoredMessage, records: list[PendingRecord]) -> tuple[int, int]:
        """Append ``records`` and the op. Return the queue offset and the log offset of the first record."""
        offset = half.queue_offset
        self._half_index.begin_decision(offset)  # before the await, to exclude a concurrent decision
        try:
            result = await self._writer.write_confirmed([*records, op_record(offset, self._clock())])
        except StorageError:
            self._half_index.cancel_decision(offset, self._clock())
            raise
        self._half_index.add_op(result.queue_offsets[-1], [offset])
        return result.queue_offsets[0], result.physical_offsets[0]

    # --- checks ---

    async def _check_all(self) -> None:
        now, self._unreachable = self._clock(), 0
        async for offset in cooperatively(list(self._half_index.open)):
            if (known := self._half_index.undecided(offset)) is not None and self._is_due(known, now):
                await self._check_one(offset, known, now)

    def _is_due(self, known: OpenHalf, now: int) -> bool:
        if now < known.next_check_at:
            return known.producers is not None and self._check_sender.next_producer(known.producers) is not None
        return now - known.seen >= self._settings.timeout_ms

    async def _check_one(self, offset: int, known: OpenHalf, now: int) -> None:
        half = await self._read(offset)
        if self._half_index.undecided(offset) is not known:
            return  # decided during the await
        if half is None:
            logger.warning("the open transaction at half offset %d is no longer in the log", offset)
            self._half_index.remove(offset)
        elif now < (due := half.born_timestamp + (immunity_ms(half) or self._settings.timeout_ms)):
            known.next_check_at = min(due, now + _RENEW_INTERVAL_MS)  # retention may delete the half message earlier
        else:
            await self._check(half, known, now)

    async def _check(self, half: StoredMessage, known: OpenHalf, now: int) -> None:
        checks, producers = check_count(half), producers_of(half)
        producer = self._check_sender.next_producer(producers)
        end_of_life = half.born_timestamp + self._store.config.file_reserved_hours * _HOUR_MS
        if checks >= self._settings.check_max or now > end_of_life:
            logger.warning("discarded the transaction at log offset %d after %d checks", half.physical_offset, checks)
            self._topics.add_missing([TopicConfig(TRANS_CHECK_MAX_TIME_TOPIC, 1, 1)])
            await self._write_decision(half, [discarded(half)])
            return
        if producer is None and now < (due := self._next_renewal(known, now)):
            known.next_check_at, known.producers = min(due, end_of_life), producers
            return
        record = renewed(half, checks + (producer is not None), self._fit)
        offset, place = await self._renew(half, record, announced=producer is not None)
        if producer is not None:
            properties = record.properties.decode()
            asked = replace(half, properties=properties, queue_offset=offset, physical_offset=place)
            self._check_sender.ask(producer, asked)

    def _next_renewal(self, known: OpenHalf, now: int) -> int:
        """Return the time at which a half message without connected producers is renewed. A result of ``now`` means the
        current round of checks.
        """
        if now < known.seen + _RENEW_INTERVAL_MS:
            return known.seen + _RENEW_INTERVAL_MS
        rounds, self._unreachable = self._unreachable // _RENEWALS_PER_ROUND, self._unreachable + 1
        return now + min(rounds * self._settings.check_interval_ms, _RENEW_INTERVAL_MS)

    async def _read(self, offset: int) -> StoredMessage | None:
        data: Buffer | None
        if (copy := self._half_index.log_offset(offset)) is not None:
            data = await self._store.message_at(copy)
        else:
            found = await self._store.load_messages(HALF_TOPIC, 0, offset, ReadOptions(1, _PAGE_BYTES))
            data = found.buffers[0] if found.status is GetStatus.FOUND else None
        try:
            half = decode_record(data) if data is not None else None
        except RecordError:
            return None
        return half if half is not None and (half.topic, half.queue_offset) == (HALF_TOPIC, offset) else None
