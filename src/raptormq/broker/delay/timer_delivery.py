"""Delivers timer messages when they are due (``TimerMessageStore``).

The messages are in the log. The index is a heap in memory with one integer for each message::

    due time in ms << 41 | 0 for a recall, 1 for a message << 40 | offset in the timer queue

A start rebuilds the index from the consume queue of rmq_sys_wheel_timer, whose tag codes contain the due times
(:mod:`raptormq.storage.records.parser`). For items that Apache RocketMQ wrote, it reads the records. RocketMQ's index
(``timerwheel`` and ``timerlog``) is neither read nor written.

A message is removed from the heap in the event loop iteration that writes it to its destination topic. The copy records
its origin. A start after a crash finds the messages that were delivered after the last save of the progress in the log
(:mod:`raptormq.broker.delivered`). A failed write is retried every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from logging import WARNING

from raptormq.broker.delay.delayed_message import why_discarded
from raptormq.broker.delay.stored_messages import decode_messages, has_topic
from raptormq.broker.delay.timer_message import deletion_keys, deliver_timer
from raptormq.broker.delay.timer_progress import TimerProgress, TimerProgressFile
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import TopicTable
from raptormq.errors import StorageError
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import TIMER_TOPIC
from raptormq.storage.fs import Buffer
from raptormq.storage.queue import Arrival, PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.records import TimerCode, decode_timer_code, encode_timer_code
from raptormq.storage.store import MessageStore
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_PAGE = 4_096
_GROUP = 64
"""Maximum number of messages per append."""
_GROUP_BYTES = 4 << 20
_RETRY_S = 1.0
_SEARCH_S = 60e-6
"""Interval between two searches for the smallest offset, in seconds per waiting message. A search of a million messages
takes 0.1 s in a thread.
"""
_MAX_SLEEP_S = 1.0
"""Maximum sleep in seconds, which limits the effect of a clock change."""
_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class TimerDelivery:
    """Background service that delivers timer messages."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        file: TimerProgressFile,
        precision_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """Create the service and read the progress file.

        Raises:
            StoreDamaged: the progress file cannot be read.
        """
        self._store = store
        self._failures: LogThrottle[str] = LogThrottle()
        self._writer = writer
        self._topics = topics
        self._file = file
        self._precision_ms = precision_ms
        self._clock = clock
        self._arrived = asyncio.Event()
        self._waiting: list[int] = []
        self._delivering: list[int] = []
        """Keys that were removed from the heap and are not written yet."""
        self._known = 0
        self._known_first = 0
        """End of the timer queue at the start. An earlier run may have delivered messages before it."""
        self._delivered: set[int] = set()
        """Log offsets of messages that an earlier run delivered after its last save of the progress."""
        self._before = file.load()  # a damaged file prevents the start
        self._recalled: dict[int, set[str]] = {}
        self._changes = self._saved_changes = 0
        self._first_waiting = self._saved_first = self._before.first_waiting
        self._search_at = 0.0
        self._to_save: tuple[TimerProgress, int] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_count(self) -> int:
        """Number of waiting messages and recalls."""
        return len(self._waiting)

    def start(self) -> None:
        """Start the task. It first delivers messages that became due while the broker was down."""
        high = self._store.queue_end(TIMER_TOPIC, 0)  # a crash may have truncated the queue
        self._before = self._before._replace(known_offset=min(self._before.known_offset, high))
        self._known = min(self._before.first_waiting, high)
        self._waiting.clear()
        self._recalled.clear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def role_changed(self, *, leads: bool) -> None:
        """Stop deliveries if this member has ceased to lead its group."""
        if not leads and self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is None:
            return
        await cancel_and_wait(self._task)
        self._task = None
        self._search_at = 0.0  # search again for the last save

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Wake the task when a timer message arrives."""
        if not self._arrived.is_set():
            for topic, _, _, _ in arrivals:
                if topic == TIMER_TOPIC:
                    self._arrived.set()
                    return

    async def _run(self) -> None:
        pause: float | None = _RETRY_S
        while True:
            self._arrived.clear()
            try:
                await self._index_new()
                while self._due_now():
                    await self._deliver_group()
                    await self._index_new()
                pause = self._pause()
            except StorageError as error:
                self._failures.log(logger, WARNING, "", "cannot deliver timer messages; retrying: %s", error)
                pause = _RETRY_S
            except Exception:
                logger.exception("cannot deliver timer messages; retrying")
                pause = _RETRY_S
            await wait_event(self._arrived, pause)

    # --- indexing ---

    async def _index_new(self) -> None:
        """Add new queue items to the heap."""
        low, high = await self._store.queue_bounds(TIMER_TOPIC, 0)
        self._known = max(self._known, low)
        while self._known < high:
            items = await self._store.queue_items(TIMER_TOPIC, 0, self._known, _PAGE)
            if not items:
                return
            for offset, (place, _, code) in enumerate(items, self._known):
                timer = decode_timer_code(code) or await self._read_code(offset)
                if timer is not None and not self._is_delivered(place, offset, timer):
                    heappush(self._waiting, _key(timer, offset))
                self._known = offset + 1  # for each item, because the read above may fail
            self._changes += 1
            await asyncio.sleep(0)  # yield: a million items must not block requests
        if not self.needs_copies:
            self._delivered = set()

    def _is_delivered(self, place: int, offset: int, timer: TimerCode) -> bool:
        return place in self._delivered or self._before.is_delivered(offset, timer.due_ms)

    async def _read_code(self, offset: int) -> TimerCode | None:
        """Return the due time from the record of a message whose queue item Apache RocketMQ wrote."""
        found = await self._store.load_messages(TIMER_TOPIC, 0, offset, ReadOptions(1, 1))
        if found.status is GetStatus.FOUND and found.next_offset == offset + 1:
            for message in decode_messages(found.buffers[0], "timer"):
                return decode_timer_code(encode_timer_code(message.properties))
        return None

    # --- delivering ---

    def _due_now(self) -> bool:
        return bool(self._waiting) and _due_ms(self._waiting[0]) <= self._clock() - self._precision_ms

    async def _deliver_group(self) -> None:
        keys = self._delivering
        while len(keys) < _GROUP and self._due_now():
            keys.append(heappop(self._waiting))
        try:
            records, done = await self._read_group(keys)
            written = self._writer.write(records) if records else None
            del keys[:done]
            self._changes += 1
            if written is not None:
                await self._writer.wait_confirmed(written)
        finally:
            for key in keys:
                heappush(self._waiting, key)
            keys.clear()
        for due_ms in [due for due in self._recalled if not self._waiting or due < _due_ms(self._waiting[0])]:
            del self._recalled[due_ms]

    async def _read_group(self, keys: list[int]) -> tuple[list[PendingRecord], int]:
        """Return the records to write for the first keys, and the number of these keys, at least 1."""
        records: list[PendingRecord] = []
        done = size = 0
        while done < len(keys) and size < _GROUP_BYTES:
            first, count = keys[done] & _OFFSET_MASK, _run_length(keys, done)
            found = await self._store.load_messages(TIMER_TOPIC, 0, first, ReadOptions(count, _GROUP_BYTES - size))
            for data in found.buffers if found.status is GetStatus.FOUND else ():
                size += len(data)
                records += self._due_records(data)
            done += max(1, min(found.next_offset - first, count))
        return records, done

    def _due_records(self, data: Buffer) -> Iterator[PendingRecord]:
        for message in decode_messages(data, "timer"):
            timer = decode_timer_code(encode_timer_code(message.properties))
            if timer is None:
                continue
            recalled = find_property(message.properties, names.TIMER_DELETE_KEY)
            if recalled is not None:
                self._recalled.setdefault(timer.due_ms, set()).add(recalled)
            elif not self._is_recalled(message, timer.due_ms):
                yield from self._restored(message)

    def _is_recalled(self, message: StoredMessage, due_ms: int) -> bool:
        recalled = self._recalled.get(due_ms)
        if not recalled:
            return False
        topic = find_property(message.properties, names.REAL_TOPIC) or ""
        unique_key = find_property(message.properties, names.UNIQUE_KEY) or ""
        return bool(unique_key) and not recalled.isdisjoint(deletion_keys(topic, unique_key))

    def _restored(self, message: StoredMessage) -> Iterator[PendingRecord]:
        record = deliver_timer(message, self._clock())
        if record is None or not has_topic(self._store, self._topics, record.topic, message.physical_offset):
            logger.warning(
                "discarded the timer message at log offset %d: %s", message.physical_offset, why_discarded(record)
            )
        else:
            yield record

    def _pause(self) -> float | None:
        """Return the seconds until the next message is due, or None if there is none."""
        if not self._waiting:
            return None
        due = _due_ms(self._waiting[0]) + self._precision_ms
        return min(max(0.0, (due - self._clock()) / 1000), _MAX_SLEEP_S)

    # --- progress ---

    def reload(self) -> None:
        """Continue with the saved progress. The progress in memory may count deliveries that were truncated."""
        self._before = self._file.load()
        self._first_waiting = self._saved_first = self._before.first_waiting
        self._to_save = None

    @property
    def needs_copies(self) -> bool:
        """True until all queue items from before the start are indexed."""
        return self._known < self._known_first

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Skip messages that have a copy in the log."""
        self._delivered = copies.origins
        self._known_first = self._store.queue_end(TIMER_TOPIC, 0)
        if forgotten:
            self._before = TimerProgress()

    @property
    def is_known(self) -> bool:
        """Whether an earlier run saved progress."""
        return self._before != TimerProgress()

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""
        return self._changes == self._saved_changes and self._first_waiting == self._saved_first

    async def prepare(self) -> None:
        """Search for the smallest waiting offset. The more messages wait, the less often the search runs. An older
        result remains valid.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._search_at:
            self._search_at = now + _SEARCH_S * len(self._waiting)
            keys = [*self._waiting, *self._delivering]
            self._first_waiting = await asyncio.to_thread(_first_offset, keys, self._known)

    def snapshot(self) -> None:
        """Take a snapshot: all indexed messages that are due before the first waiting one are delivered.

        While :attr:`needs_copies` is true, there is no snapshot, because the file contains more recent progress.
        """
        self._to_save = None if self.needs_copies else (self.progress(), self._changes)

    def progress(self) -> TimerProgress:
        """Return the current delivery progress; while :attr:`needs_copies` is True, the progress at the start of the
        broker.
        """
        if self.needs_copies:
            return self._before
        read = min(map(_due_ms, (*self._waiting[:1], *self._delivering)), default=self._clock() + 1)
        return TimerProgress(min(read, self._clock() + 1), self._known, self._first_waiting)

    def save(self) -> None:
        """Write the snapshot and sync it. Blocking.

        Raises:
            OSError: the write failed. The file has its old or its new content.
        """
        if self._to_save is not None:
            progress, changes = self._to_save
            self._file.save(progress)
            self._saved_changes, self._saved_first = changes, progress.first_waiting


def _key(timer: TimerCode, offset: int) -> int:
    return (timer.due_ms << 1 | (not timer.recall)) << _OFFSET_BITS | offset


def _due_ms(key: int) -> int:
    return key >> _OFFSET_BITS + 1


def _first_offset(waiting: Iterable[int], known: int) -> int:
    """Return the smallest offset of a waiting message, or ``known``, the first offset that is not indexed."""
    return min(min((key & _OFFSET_MASK for key in waiting), default=known), known)


def _run_length(keys: list[int], start: int) -> int:
    """Return the number of keys with consecutive offsets, beginning at index ``start``."""
    end = start + 1
    while end < len(keys) and keys[end] & _OFFSET_MASK == (keys[end - 1] & _OFFSET_MASK) + 1:
        end += 1
    return end - start
