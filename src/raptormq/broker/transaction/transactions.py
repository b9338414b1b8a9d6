"""Decides open transactions: by their producers' word, by asking, and at last by giving up
(``TransactionalMessageServiceImpl``, ``TransactionalMessageCheckService``).

What a decision writes - the committed message and the op that settles its half - goes into the log as one group, the
message first. After a crash between the two the next start finds the message, which names its half, and writes the op
(:mod:`raptormq.broker.delivered`); likewise for a half that was written anew, or given up. A half that is settled
stays settled: a second commit is refused, where RocketMQ delivers the message a second time. A question that nobody is
there to be asked does not count, as it does in RocketMQ: a transaction is not given up because its producers are away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from raptormq.broker.config import TransactionSettings as Settings
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import TopicTable
from raptormq.broker.transaction.half import (
    Producers,
    asked_again,
    checks_so_far,
    committed,
    given_up,
    immunity_ms,
    op_record,
    producers_of,
    settled_by,
)
from raptormq.broker.transaction.ledger import Ledger, OpenHalf
from raptormq.errors import RecordError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.record import StoredMessage, decode_record, iter_records
from raptormq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.storage.background import cooperatively
from raptormq.storage.fs import Buffer
from raptormq.storage.queue import Arrival, PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

logger = get_logger(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
"""Consumer group whose offsets in the two queues are the progress kept over restarts, as in RocketMQ."""
_PAGE = 1_024
_PAGE_BYTES = 4 << 20
_HOUR_MS = 3_600_000
_RETRY_S = 1.0

_UNASKED_MS = 600_000
"""So often a half that nobody can be asked about is written anew: what an open half holds back is read at a start. One
that rests is read as often at least, for the log may have lost it."""
_ANEW_A_ROUND = 500
"""So many of those are written anew at each look, the oldest first: after a start all of them are due at once, and
would stay together. Under SYNC_FLUSH each waits for the disk, and the questions about other halves wait for it.
"""


class Questions(Protocol):
    """What asks producer groups."""

    def next_producer(self, producers: Producers) -> Connection | None:
        """Whom of ``producers`` to ask; None when nobody is there."""

    def ask(self, producer: Connection, half: StoredMessage) -> None:
        """Send the half to its producer, with the question what became of it."""


class Transactions:
    """The open transactions of a broker; a background service."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        settings: Settings,
        questions: Questions,
        copies: CopyProperties,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._settings = settings
        self._questions = questions
        self._fit = partial(copies.fit, HALF_TOPIC)
        self._clock = clock
        self._ledger = Ledger(0, 0)
        self._unasked = 0
        """Halves due in this round that nobody can be asked about."""
        self._moving: dict[int, asyncio.Event] = {}
        """By offset, halves that are being written anew."""
        self._resumed: set[int] = set()
        """Where those were given up that are asked about again since the start."""
        self._copied: set[int] = set()
        """Places in the log of which there is a copy, maybe without an op."""
        self._op_lacking: list[int] = []  # offsets of such halves
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def open_count(self) -> int:
        """Transactions that nobody has decided yet."""
        return len(self._ledger.open)

    # --- life ---

    @property
    def settles_copies(self) -> bool:
        """True until the log says again in its own way what is settled."""
        return not self._ready.is_set() or bool(self._op_lacking)

    def take_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """A half that has a copy is settled, also where a crash came before its op."""
        self._copied = copies.origins
        if forgotten:
            self._store.consumer_offsets.remove_group(GROUP)

    def start(self) -> None:
        """Take up what earlier runs left open."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End and keep the progress."""
        if self._task is None:
            return
        await cancel_and_wait(self._task)
        self._task = None
        if self._ready.is_set():
            await self._keep_progress()

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Note halves that have become visible."""
        for topic, _, next_offset, _ in arrivals:
            if topic == HALF_TOPIC:
                self._ledger.half_seen(next_offset - 1, self._clock())

    async def ready(self) -> None:
        """Wait until it is known what earlier runs have settled."""
        await self._ready.wait()

    async def _run(self) -> None:
        while not self._ready.is_set():
            try:
                await self._read_ops(await self._name_halves())
                await self._find_copied()
                self._ready.set()
            except Exception:  # decisions wait until it is known what is decided
                logger.exception("the decided transactions cannot be read, it is tried again")
                await asyncio.sleep(_RETRY_S)
        work: list[Callable[[], Awaitable[None]]] = [self._write_lacking]
        while True:
            try:
                for each in work:
                    await each()
            except StorageError as error:
                logger.warning("open transactions cannot be checked, it is tried again: %s", error)
            except Exception:
                logger.exception("open transactions cannot be checked, it is tried again")
            work = [self._write_lacking, self._check_all, self._keep_progress]
            await asyncio.sleep(self._settings.check_interval_ms / 1000)

    async def _name_halves(self) -> int:
        """Take all halves from the kept progress on for open, and return from where the ops tell which are not."""
        offsets = self._store.consumer_offsets
        half_low, _ = await self._store.queue_bounds(HALF_TOPIC, 0)
        op_low, op_end = await self._store.queue_bounds(OP_HALF_TOPIC, 0)
        half_end = self._store.queue_end(HALF_TOPIC, 0)
        first_half = min(max(offsets.get(HALF_TOPIC, GROUP, 0) or 0, half_low), half_end)
        first_op = min(max(offsets.get(OP_HALF_TOPIC, GROUP, 0) or 0, op_low), op_end)
        ledger = Ledger(first_half, first_op)
        async for half in cooperatively(self._halves_from(first_half)):
            ledger.half_seen(half, 0)
        self._ledger = ledger  # in the turn in which no half is left: all others are still to arrive
        return first_op

    def _halves_from(self, offset: int) -> Iterator[int]:
        """Yield the offsets of halves, and of those that arrive meanwhile, too."""
        while offset < self._store.queue_end(HALF_TOPIC, 0):
            yield offset
            offset += 1

    async def _read_ops(self, offset: int) -> None:
        """Settle what the ops from ``offset`` on name. A damaged one settles nothing: its producer is asked again."""
        count = _PAGE
        while offset < self._store.queue_end(OP_HALF_TOPIC, 0):
            found = await self._store.load_messages(OP_HALF_TOPIC, 0, offset, ReadOptions(count, _PAGE_BYTES))
            try:
                ops = [op for data in found.buffers for op in iter_records(data)]
            except RecordError as error:
                if count > 1:
                    count = 1  # one by one up to the damaged one
                    continue
                logger.warning("the decision at %d is lost, its record is damaged: %s", offset, error)
                ops, count = [], _PAGE
            for op in ops:
                self._ledger.op_seen(op.queue_offset, settled_by(op))
            offset = max(found.next_offset, offset + 1)
            await asyncio.sleep(0)  # a page takes some milliseconds

    async def _find_copied(self) -> None:
        """Look for halves that are settled without an op, among those that are open as far as ops tell."""
        still_open, copied, self._op_lacking = self._ledger.open, self._copied, []
        offset = next(iter(still_open), 0)
        while copied and still_open and (items := await self._store.queue_items(HALF_TOPIC, 0, offset, _PAGE)):
            for each, (place, _, _) in enumerate(items, offset):
                if place in copied and each in still_open:
                    self._ledger.decide(each)
                    self._op_lacking.append(each)
            offset += len(items)
            await asyncio.sleep(0)
        self._copied = set()

    async def _write_lacking(self) -> None:
        """Write the ops that a crash has left out.

        Raises:
            StorageError: it is to be tried again.
        """
        if halves := self._op_lacking:
            result = await self._writer.write_confirmed([op_record(half, self._clock()) for half in halves])
            for half, op in zip(halves, result.queue_offsets, strict=True):
                self._ledger.op_seen(op, [half])
            self._op_lacking = []

    async def _keep_progress(self) -> None:
        async for _ in cooperatively(self._ledger.forget_ops()):
            pass
        half, op = self._ledger.progress
        if not half:
            return  # there never was a transaction
        self._store.consumer_offsets.commit(HALF_TOPIC, GROUP, 0, half)
        self._store.consumer_offsets.commit(OP_HALF_TOPIC, GROUP, 0, op)

    # --- decisions ---

    async def current(self, half: StoredMessage) -> StoredMessage | None:
        """Return the open half that ``half`` is now, since each question writes it anew, and a producer whose local
        transaction takes longer than that knows an earlier place; None where it is decided.

        Raises:
            StorageError: it is open and cannot be read.
        """
        current: StoredMessage | None = half
        while True:  # while the disk is waited for, another decision may come, or a question
            place = self._ledger.place(half.queue_offset)  # not of ``current``, which nobody may have been told of
            if (moving := self._moving.get(place)) is not None:
                await moving.wait()
            elif not self._ledger.is_open(place):
                return None
            elif current is not None and place == current.queue_offset:
                return current
            else:
                current = await self._read(place)
                if current is None and self._ledger.is_open(place):
                    raise StorageError(f"the open transaction with offset {place} cannot be read")

    async def commit(self, half: StoredMessage) -> None:
        """Deliver the message of an open half.

        Raises:
            StorageError: nothing has changed, the half is open.
        """
        record = committed(half)
        if record is None or record.topic not in self._topics.configs:
            logger.warning("the transaction at offset %d is dropped, its topic is gone", half.physical_offset)
            await self._settle(half, [])
        else:
            await self._settle(half, [record])

    async def roll_back(self, half: StoredMessage) -> None:
        """Forget an open half.

        Raises:
            StorageError: nothing has changed, the half is open.
        """
        await self._settle(half, [])

    def is_resumed(self, half: StoredMessage) -> bool:
        """Whether one that was given up is asked about again: once more, and its message would come twice."""
        return half.physical_offset in self._resumed

    async def resume(self, half: StoredMessage) -> None:
        """Begin again with the questions about a half that is open, or that was given up.

        Raises:
            StorageError: nothing has changed.
        """
        record = asked_again(half, 0, self._fit)
        if half.topic == HALF_TOPIC:
            await self._write_anew(half, record, told=False)
        else:
            await self._take_up(half, record)

    async def _take_up(self, half: StoredMessage, record: PendingRecord) -> None:
        self._resumed.add(half.physical_offset)  # before waiting, as in `_settle`
        try:
            await self._writer.write_confirmed([record])
        except StorageError:
            self._resumed.remove(half.physical_offset)
            raise

    async def _write_anew(self, half: StoredMessage, record: PendingRecord, *, told: bool) -> tuple[int, int]:
        """Write an open half again, and return queue offset and place; ``told``: its producer hears of them."""
        before = half.queue_offset
        earlier, moving = self._ledger.places(before), asyncio.Event()
        self._moving[before] = moving
        try:
            offset, place = await self._settle(half, [record])
            self._ledger.moved(earlier, offset, place, told=told)
        finally:
            del self._moving[before]
            moving.set()
        return offset, place

    async def _settle(self, half: StoredMessage, records: list[PendingRecord]) -> tuple[int, int]:
        """Write ``records`` and the op; return queue offset and place of the first."""
        offset = half.queue_offset
        self._ledger.decide(offset)  # before waiting: a second decision must not pass in between
        try:
            result = await self._writer.write_confirmed([*records, op_record(offset, self._clock())])
        except StorageError:
            self._ledger.reopen(offset, self._clock())
            raise
        self._ledger.op_seen(result.queue_offsets[-1], [offset])
        return result.queue_offsets[0], result.physical_offsets[0]

    # --- questions ---

    async def _check_all(self) -> None:
        now, self._unasked = self._clock(), 0
        async for offset in cooperatively(list(self._ledger.open)):
            if (known := self._ledger.known(offset)) is not None and self._is_due(known, now):
                await self._look_at(offset, known, now)

    def _is_due(self, known: OpenHalf, now: int) -> bool:
        if now < known.rests_until:
            return known.producers is not None and self._questions.next_producer(known.producers) is not None
        return now - known.seen >= self._settings.timeout_ms

    async def _look_at(self, offset: int, known: OpenHalf, now: int) -> None:
        half = await self._read(offset)
        if self._ledger.known(offset) is not known:
            return  # it was decided while the disk was waited for
        if half is None:
            logger.warning("the open transaction with offset %d is gone from the log", offset)
            self._ledger.gone(offset)
        elif now < (due := half.born_timestamp + (immunity_ms(half) or self._settings.timeout_ms)):
            known.rests_until = min(due, now + _UNASKED_MS)  # it may be gone from the log sooner
        else:
            await self._check(half, known, now)

    async def _check(self, half: StoredMessage, known: OpenHalf, now: int) -> None:
        checks, producers = checks_so_far(half), producers_of(half)
        producer = self._questions.next_producer(producers)
        end_of_life = half.born_timestamp + self._store.config.file_reserved_hours * _HOUR_MS
        if checks >= self._settings.check_max or now > end_of_life:
            logger.warning("the transaction at offset %d is given up after %d questions", half.physical_offset, checks)
            self._topics.add_missing([TopicConfig(TRANS_CHECK_MAX_TIME_TOPIC, 1, 1)])
            await self._settle(half, [given_up(half)])
            return
        if producer is None and now < (due := self._anew_at(known, now)):
            known.rests_until, known.producers = min(due, end_of_life), producers
            return
        record = asked_again(half, checks + (producer is not None), self._fit)
        offset, place = await self._write_anew(half, record, told=producer is not None)
        if producer is not None:
            properties = record.properties.decode()
            asked = replace(half, properties=properties, queue_offset=offset, physical_offset=place)
            self._questions.ask(producer, asked)

    def _anew_at(self, known: OpenHalf, now: int) -> int:
        """Return when a half that nobody can be asked about is to be written anew, ``now`` if in this round."""
        if now < known.seen + _UNASKED_MS:
            return known.seen + _UNASKED_MS
        rounds, self._unasked = self._unasked // _ANEW_A_ROUND, self._unasked + 1
        return now + min(rounds * self._settings.check_interval_ms, _UNASKED_MS)

    async def _read(self, offset: int) -> StoredMessage | None:
        data: Buffer | None
        if (copy := self._ledger.copy(offset)) is not None:
            data = await self._store.message_at(copy)
        else:
            found = await self._store.load_messages(HALF_TOPIC, 0, offset, ReadOptions(1, _PAGE_BYTES))
            data = found.buffers[0] if found.status is GetStatus.FOUND else None
        try:
            half = decode_record(data) if data is not None else None
        except RecordError:
            return None
        return half if half is not None and (half.topic, half.queue_offset) == (HALF_TOPIC, offset) else None
