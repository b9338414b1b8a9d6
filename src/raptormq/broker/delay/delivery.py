"""Delivers delayed messages when they are due (``ScheduleMessageService``).

The messages of a level become due in queue order. One task checks the first message of every level and sleeps until the
earliest is due, or until a message arrives at an empty level.

Progress advances in the event loop iteration that writes a message to its destination topic. The copy records its
origin. A start after a crash finds the messages that were delivered after the last save of the progress in the log
(:mod:`raptormq.broker.delivered`). A failed write is retried every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import takewhile
from logging import WARNING

from raptormq.broker.cooperative import steady_ms
from raptormq.broker.delay.clock_rollback import ClockRollback
from raptormq.broker.delay.delayed_message import restore, why_discarded
from raptormq.broker.delay.progress import DelayProgress
from raptormq.broker.delay.stored_messages import decode_messages, has_topic
from raptormq.broker.delivered.copies import Copies
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import TopicTable
from raptormq.errors import StorageError
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.queue import Arrival, PendingRecord
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.store import MessageStore
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_GROUP = 64
"""Maximum number of messages per append."""
_GROUP_BYTES = 4 << 20
_RETRY_S = 1.0
_MAX_SLEEP_S = 1.0
"""Maximum sleep in seconds, which limits the effect of a clock change."""


class DelayedDelivery:
    """Background service that delivers the messages of all delay levels."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        progress: DelayProgress,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._failures: LogThrottle[str] = LogThrottle()
        self._writer = writer
        self._topics = topics
        self._progress = progress
        self._clock = clock
        self._delays_ms = store.config.delays_ms
        self._clock_rollback = {
            level: ClockRollback(delay, steady_ms) for level, delay in enumerate(self._delays_ms, 1)
        }
        self._arrived = asyncio.Event()
        self._idle_levels: set[int] = set()
        self._delivered: set[int] = set()
        """Log offsets of messages that an earlier run delivered after its last save of the progress."""
        self._recovered_levels: set[int] = set()
        """Levels whose progress has passed all messages of ``_delivered``."""
        self._task: asyncio.Task[None] | None = None

    @property
    def needs_copies(self) -> bool:
        """True until the progress has passed all messages that the earlier run delivered."""
        return bool(self._delivered)

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Skip messages that have a copy in the log. ``forgotten`` has no effect: :class:`DelayProgress` is reset."""
        self._delivered = copies.origins

    def start(self) -> None:
        """Start the task. It first delivers messages that became due while the broker was down."""
        for level, offset in self._progress.offsets.items():
            high = self._store.queue_end(SCHEDULE_TOPIC, level - 1)
            self._progress.offsets[level] = min(offset, high)  # a crash may have truncated the queue
        self._recovered_levels.clear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def role_changed(self, *, leads: bool) -> None:
        """Stop deliveries if this member has ceased to lead its group."""
        if not leads and self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Wake the task if a message arrives at an empty level."""
        if self._idle_levels and not self._arrived.is_set():
            for topic, queue_id, _, _ in arrivals:
                if topic == SCHEDULE_TOPIC and queue_id + 1 in self._idle_levels:
                    self._arrived.set()
                    return

    async def _run(self) -> None:
        while True:
            self._arrived.clear()
            self._idle_levels.clear()
            try:
                due = [await self._deliver_level(level) for level in range(1, len(self._delays_ms) + 1)]
                next_due = min((at for at in due if at is not None), default=None)
                pause = None if next_due is None else min(max(0.0, (next_due - self._clock()) / 1000), _MAX_SLEEP_S)
            except StorageError as error:
                self._failures.log(logger, WARNING, "", "cannot deliver delayed messages; retrying: %s", error)
                pause = _RETRY_S
            except Exception:
                logger.exception("cannot deliver delayed messages; retrying")
                pause = _RETRY_S
            await wait_event(self._arrived, pause)

    async def _deliver_level(self, level: int) -> int | None:
        """Deliver due messages. Return the due time of the next message (ms since 1970), or None for an empty level."""
        delay = self._delays_ms[level - 1]
        while True:
            low, high = await self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)
            offset = min(max(self._progress.offsets.get(level, 0), low), high)
            items = await self._store.queue_items(SCHEDULE_TOPIC, level - 1, offset, _GROUP)
            times = [time for _, _, time in items]
            now = self._clock()
            if times and times[0] > now + delay:
                count = min(self._clock_rollback[level].due(high) - offset, len(times))
                next_due = now + self._clock_rollback[level].next_in_ms()
            else:
                self._clock_rollback[level].forget()
                count = sum(1 for _ in takewhile(now.__ge__, times))
                next_due = times[0] if times else 0
            if count > 0:
                await self._deliver(level, offset, count)
                continue
            if self._delivered.isdisjoint(place for place, _, _ in items):  # false after a clock rollback
                self._settle(level)
            if times:
                return next_due
            self._idle_levels.add(level)
            return None

    def _settle(self, level: int) -> None:
        self._recovered_levels.add(level)
        if len(self._recovered_levels) == len(self._delays_ms):
            self._delivered = set()

    async def _deliver(self, level: int, offset: int, count: int) -> None:
        found = await self._store.load_messages(SCHEDULE_TOPIC, level - 1, offset, ReadOptions(count, _GROUP_BYTES))
        records: list[PendingRecord] = []
        if found.status is GetStatus.FOUND:
            records = [record for data in found.buffers for record in self._restored(data)]
        written = self._writer.write(records) if records else None
        self._progress.offsets[level] = min(max(found.next_offset, offset + 1), offset + count)
        if written is not None:
            await self._writer.wait_confirmed(written)

    def _restored(self, data: bytes | bytearray | memoryview) -> Iterable[PendingRecord]:
        for message in decode_messages(data, "delayed"):
            if message.physical_offset in self._delivered:
                continue
            record = restore(message)
            if record is None or not has_topic(self._store, self._topics, record.topic, message.physical_offset):
                logger.warning(
                    "discarded the delayed message at log offset %d: %s",
                    message.physical_offset,
                    why_discarded(record),
                )
            else:
                yield record
