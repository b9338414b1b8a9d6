"""Keeps how far deliveries have come, exactly: what is saved, and behind it what the log tells.

At a start everything that was delivered behind the saved progress is read from the log, so that a ``kill -9`` makes the
broker deliver nothing twice, however often it comes. It is saved every 5 s to keep that walk short, and only once the
log is durable up to there: a power cut that takes the copies takes nothing that says they are there.

Progress that is ahead of the log all the same (somebody put an older log in its place, or a disk has lost what it
called durable) is not believed: all that was delivered is read from the whole log then. The part of it that is gone
had no copies that matter, since a copy is behind its origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from raptormq.broker.delay.progress import DelayProgress
from raptormq.broker.delivered.copies import Copies, read_copies
from raptormq.broker.in_thread import run_to_completion
from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.protocol.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from raptormq.storage.store import MessageStore
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_SAVE_S = 5.0
_FIRST_LOOK_S = 0.05
_SCAN_BYTES = 64 << 20
"""So much of the log without a delivery is read again at a start rather than saved about."""


class DeliveryService(Protocol):
    """Who delivers messages and has to know what was delivered already."""

    @property
    def needs_copies(self) -> bool:
        """True while what :meth:`load_copies` brought is still needed: a crash has to find it once more."""

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """What was delivered behind the saved progress; before the start of all services. ``forgotten`` says that the
        saved progress itself is not to be believed.
        """


class CheckpointedDelivery(DeliveryService, Protocol):
    """Those who have a file of their own."""

    @property
    def is_known(self) -> bool:
        """Whether there was a file."""

    @property
    def is_saved(self) -> bool:
        """Whether the file has everything."""

    async def prepare(self) -> None:
        """Do what takes long before :meth:`snapshot`."""

    def snapshot(self) -> None:
        """Remember how far delivery is in this turn of the loop."""

    def save(self) -> None:
        """Write what was remembered, durably; waits for the disk.

        Raises:
            OSError: the old contents are still there.
        """


class DeliveryCheckpointer:
    """A background service: started before those who deliver, stopped after them."""

    def __init__(
        self,
        store: MessageStore,
        delays: DelayProgress,
        timers: CheckpointedDelivery,
        others: Sequence[DeliveryService],
    ) -> None:
        self._store = store
        self._delays = delays
        self._timers = timers
        self._others = (timers, *others)
        self._stopping = asyncio.Event()
        self._save_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    # --- the start ---

    async def derive(self) -> None:
        """Find out what was delivered behind the saved progress; before anything else uses the store.

        Raises:
            OSError: the log cannot be read.
        """
        start, end, forgotten = await self._recovery_offset(), self._store.end_offset, False
        if start is not None and start > end:
            logger.warning(
                "the progress of deliveries was saved when the log ended at %d, and it ends at %d now: what was"
                " delivered is read from the whole log",
                start,
                end,
            )
            self._delays.forget()
            start, forgotten = 0, True
        elif start is not None:
            self._delays.log_offset = start  # until what is found is settled
        copies = Copies()
        if start is not None and start < end:
            first = max(start, self._store.stats().min_offset)
            copies = await run_to_completion(
                lambda: read_copies(self._store.scan_log(first).records_with_prepared_offset())
            )
        for each in self._others:
            each.load_copies(copies, forgotten=forgotten)
        if start is None:  # from here on the log tells
            try:
                await run_to_completion(lambda: self._delays.save(self._delays.to_dict(end)))
            except OSError as error:
                logger.error("cannot save the progress of deliveries: %s", error)

    async def _recovery_offset(self) -> int | None:
        """Return from where on the log has to tell what was delivered, None where it cannot."""
        starts = [self._delays.log_offset] if self._delays.log_offset is not None else []
        for topic, is_known in ((SCHEDULE_TOPIC, self._delays.is_known), (TIMER_TOPIC, self._timers.is_known)):
            if not is_known:
                starts += await self._first_log_offsets(topic)
        return min(starts, default=None)

    async def _first_log_offsets(self, topic: str) -> list[int]:
        """Return where in the log the first message of each queue is: before it there is no copy of any."""
        places: list[int] = []
        for queue_id in self._store.queue_ids(topic):
            low, _ = await self._store.queue_bounds(topic, queue_id)
            places += [place for place, _, _ in await self._store.queue_items(topic, queue_id, low, 1)]
        return places

    # --- while running ---

    def start(self) -> None:
        """Save from now on."""
        self._stopping.clear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Save for the last time."""
        if self._task is None:
            return
        self._stopping.set()  # a save under way is finished: another one beside it would write the same files
        await self._task
        self._task = None
        await self._save_logged(always_position=True)

    async def _run(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SAVE_S):
                await self._wait_recovered()
        await self._save_logged(always_position=True)  # else kills that come often make the walk longer and longer
        while not self._stopping.is_set():
            await wait_event(self._stopping, _SAVE_S)
            if not self._stopping.is_set():
                await self._save_logged()

    async def _wait_recovered(self) -> None:
        while not self._stopping.is_set() and any(each.needs_copies for each in self._others):
            await wait_event(self._stopping, _FIRST_LOOK_S)

    async def _save_logged(self, *, always_position: bool = False) -> None:
        try:
            await self.save(always_position=always_position)
        except (OSError, StorageError) as error:  # the next start has more of the log to read
            logger.error("cannot save the progress of deliveries: %s", error)

    async def save(self, *, always_position: bool = False) -> None:
        """Save what has changed; with ``always_position`` also where nothing has but the end of the log.

        Raises:
            OSError: a file could not be written.
            StorageError: the log could not be flushed.
        """
        async with self._save_lock:
            await self._save(always_position=always_position)

    async def _save(self, *, always_position: bool) -> None:
        await self._timers.prepare()
        end = self._store.end_offset
        saved = self._delays.log_offset
        is_held = saved is not None and any(each.needs_copies for each in self._others)
        position = saved if saved is not None and is_held else end
        is_far = saved is None or position - saved >= (1 if always_position else _SCAN_BYTES)
        if self._delays.is_saved and self._timers.is_saved and not is_far:
            return
        self._timers.snapshot()
        contents = self._delays.to_dict(position)
        await self._store.wait_flushed(end)  # no copy that this counts may be lost by a power cut
        await asyncio.to_thread(self._timers.save)
        await asyncio.to_thread(self._delays.save, contents)  # last: its position speaks for both
