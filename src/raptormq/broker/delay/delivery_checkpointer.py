"""Saves the progress of deliveries, and recovers at a start what was delivered after the last save.

A start scans the log after the saved position for copies, so that a ``kill -9`` makes the broker deliver nothing twice.
Progress is saved every 5 s to keep the scan short, and only after the log is durable up to the saved position: a power
cut that loses copies must not keep progress that counts them.

Saved progress that is ahead of the log (an older log was restored, or a disk lost flushed data) is discarded, and the
whole log is scanned. The lost part of the log held no copies that matter, because a copy follows its origin.
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
"""Growth of the log without a delivery after which the position is saved."""


class DeliveryService(Protocol):
    """A service that delivers messages and must know what was delivered already."""

    @property
    def needs_copies(self) -> bool:
        """True while the result of :meth:`load_copies` is not yet covered by saved progress."""

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Take the ``copies`` made after the saved progress; called before any service starts. ``forgotten`` says that
        the saved progress was discarded.
        """


class CheckpointedDelivery(DeliveryService, Protocol):
    """A delivery service with a progress file of its own."""

    @property
    def is_known(self) -> bool:
        """Whether the file existed at the start."""

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""

    async def prepare(self) -> None:
        """Do the slow part of a snapshot."""

    def snapshot(self) -> None:
        """Take a snapshot of the progress, without awaiting."""

    def save(self) -> None:
        """Write the snapshot durably. Blocks on the disk.

        Raises:
            OSError: the old contents are still there.
        """


class DeliveryCheckpointer:
    """Background service; started before the delivery services and stopped after them."""

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
        """Recover what was delivered after the saved progress; call before anything else uses the store.

        Raises:
            OSError: the log cannot be read.
        """
        start, end, forgotten = await self._recovery_offset(), self._store.end_offset, False
        if start is not None and start > end:
            logger.warning(
                "the saved delivery progress is ahead of the log (saved at log offset %d, the log ends at %d):"
                " what was delivered is read from the whole log",
                start,
                end,
            )
            self._delays.forget()
            start, forgotten = 0, True
        elif start is not None:
            self._delays.log_offset = start  # until needs_copies is False everywhere
        copies = Copies()
        if start is not None and start < end:
            first = max(start, self._store.stats().min_offset)
            copies = await run_to_completion(
                lambda: read_copies(self._store.scan_log(first).records_with_prepared_offset())
            )
        for each in self._others:
            each.load_copies(copies, forgotten=forgotten)
        if start is None:  # later deliveries are found in the log
            try:
                await run_to_completion(lambda: self._delays.save(self._delays.to_dict(end)))
            except OSError as error:
                logger.error("cannot save the delivery progress: %s", error)

    async def _recovery_offset(self) -> int | None:
        """Return the log offset from which to scan for deliveries, None when there is nothing to scan for."""
        starts = [self._delays.log_offset] if self._delays.log_offset is not None else []
        for topic, is_known in ((SCHEDULE_TOPIC, self._delays.is_known), (TIMER_TOPIC, self._timers.is_known)):
            if not is_known:
                starts += await self._first_log_offsets(topic)
        return min(starts, default=None)

    async def _first_log_offsets(self, topic: str) -> list[int]:
        """Return the log offset of the first message of each queue of ``topic``; no copy precedes it."""
        places: list[int] = []
        for queue_id in self._store.queue_ids(topic):
            low, _ = await self._store.queue_bounds(topic, queue_id)
            places += [place for place, _, _ in await self._store.queue_items(topic, queue_id, low, 1)]
        return places

    # --- while running ---

    def start(self) -> None:
        """Save periodically from now on."""
        self._stopping.clear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Save once more and stop."""
        if self._task is None:
            return
        self._stopping.set()  # a save in progress finishes first: both write the same files
        await self._task
        self._task = None
        await self._save_logged(always_position=True)

    async def _run(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SAVE_S):
                await self._wait_recovered()
        await self._save_logged(always_position=True)  # else frequent kills make the scan longer and longer
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
        except (OSError, StorageError) as error:  # the next start scans more of the log
            logger.error("cannot save the delivery progress: %s", error)

    async def save(self, *, always_position: bool = False) -> None:
        """Save changed progress; with ``always_position`` save the log position even if nothing else has changed.

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
        await self._store.wait_flushed(end)  # a power cut must not lose a counted copy
        await asyncio.to_thread(self._timers.save)
        await asyncio.to_thread(self._delays.save, contents)  # last: its position covers both files
