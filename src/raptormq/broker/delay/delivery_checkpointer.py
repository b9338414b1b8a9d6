"""Saves the delivery progress, and recovers deliveries after the last save at a start.

A start scans the log behind the saved log offset for delivered copies. A ``kill -9`` therefore causes no duplicate
deliveries. Progress is saved every 5 s to keep the scan short. Before each save the log is flushed up to the saved
offset. Otherwise a power failure could lose copies that the saved progress counts as delivered.

If the saved progress is ahead of the log (an older log was restored, or the disk lost flushed data), it is discarded
and the whole log is scanned. The lost part of the log contained no relevant copies, because a copy follows its origin.

A member of a group that leads for the first time has saved no progress. It scans the log behind the first record that
an earlier leader may have copied without saving this progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
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
"""The log offset is saved after the log has grown by this number of bytes without a delivery."""


class DeliveryService(Protocol):
    """A service that delivers messages and must not deliver them twice after a crash."""

    @property
    def needs_copies(self) -> bool:
        """True while the copies of :meth:`load_copies` are still needed to detect delivered messages."""

    def load_copies(self, copies: Copies, *, forgotten: bool) -> None:
        """Receive the ``copies`` that were written after the saved progress. Called before any service starts.

        ``forgotten`` is true if the saved progress was discarded.
        """


class CheckpointedDelivery(DeliveryService, Protocol):
    """A delivery service with a progress file of its own."""

    @property
    def is_known(self) -> bool:
        """Whether the file existed at the start."""

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""

    def reload(self) -> None:
        """Read the file again. Blocking.

        Raises:
            StoreDamaged: the file cannot be read.
        """

    async def prepare(self) -> None:
        """Do the slow part of a snapshot in advance."""

    def snapshot(self) -> None:
        """Take a snapshot of the progress."""

    def save(self) -> None:
        """Write the snapshot and sync it. Blocking.

        Raises:
            OSError: the write failed. The file has its old or its new content.
        """


class DeliveryCheckpointer:
    """Background service. Start it before the delivery services and stop it after them."""

    def __init__(
        self,
        store: MessageStore,
        delays: DelayProgress,
        timers: CheckpointedDelivery,
        others: Sequence[DeliveryService],
        groups: Mapping[str, str],
    ) -> None:
        """Create the service.

        Args:
            store: the store.
            delays: the progress of delayed messages.
            timers: delivers timer messages.
            others: the other delivery services.
            groups: topic -> consumer group whose offsets are the progress in this topic. The members of a Dledger group
                share these offsets.
        """
        self._groups = groups
        self._store = store
        self._delays = delays
        self._timers = timers
        self._others = (timers, *others)
        self._stopping = asyncio.Event()
        self._save_lock = asyncio.Lock()
        self._has_ceased = False
        self._task: asyncio.Task[None] | None = None

    # --- the start ---

    async def derive(self) -> None:
        """Recover the deliveries after the saved progress. Call before any service uses the store.

        Raises:
            OSError: the log cannot be read.
            StorageError: the log or a file cannot be read.
        """
        self._delays.reload()
        await run_to_completion(self._timers.reload)
        start, end, forgotten = await self._recovery_offset(), self._store.end_offset, False
        if start is not None and start > end:
            logger.warning(
                "the saved delivery progress is ahead of the log (saved at log offset %d, log ends at %d):"
                " scanning the whole log for deliveries",
                start,
                end,
            )
            self._delays.forget()
            start, forgotten = 0, True
        elif start is not None:
            self._delays.log_offset = start  # saved unchanged until no service needs copies
        copies = Copies()
        if start is not None and start < end:
            first = max(start, self._store.stats().min_offset)
            copies = await run_to_completion(
                lambda: read_copies(self._store.scan_log(first).records_with_prepared_offset())
            )
        for each in self._others:
            each.load_copies(copies, forgotten=forgotten)
        if start is None:  # save the offset: a later start scans the log behind it
            try:
                await run_to_completion(lambda: self._delays.save(self._delays.to_dict(end)))
            except OSError as error:
                logger.error("cannot save the delivery progress: %s", error)

    async def _recovery_offset(self) -> int | None:
        """Return the log offset at which the scan starts, or None if no scan is needed."""
        starts: list[int] = []
        if self._delays.log_offset is not None:
            starts = [self._delays.log_offset]
        else:
            for topic, group in self._groups.items():
                starts += await self._first_log_offsets(topic, group)
        for topic, is_known in ((SCHEDULE_TOPIC, self._delays.is_known), (TIMER_TOPIC, self._timers.is_known)):
            if not is_known:
                starts += await self._first_log_offsets(topic)
        return min(starts, default=None)

    async def _first_log_offsets(self, topic: str, group: str = "") -> list[int]:
        """Return the log offset of the first message of each queue of ``topic``, or of the first one that ``group`` has
        not consumed. Copies follow these offsets in the log.
        """
        places: list[int] = []
        for queue_id in self._store.queue_ids(topic):
            low, _ = await self._store.queue_bounds(topic, queue_id)
            low = max(low, self._store.consumer_offsets.get(topic, group, queue_id) or 0)
            places += [place for place, _, _ in await self._store.queue_items(topic, queue_id, low, 1)]
        return places

    # --- while running ---

    def start(self) -> None:
        """Start saving periodically."""
        self._stopping.clear()
        self._has_ceased = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def role_changed(self, *, leads: bool) -> None:
        """Stop saving if this member has ceased to lead. The progress in memory counts its unconfirmed copies, which
        may be truncated.
        """
        if not leads and self._task is not None:
            self._has_ceased = True
            self._task.cancel()

    async def stop(self) -> None:
        """Save once more and stop."""
        if self._task is None:
            return
        self._stopping.set()
        await asyncio.wait([self._task])  # wait for a save in progress, which writes the same files
        self._task = None
        if not self._has_ceased:
            await self._save_logged(always_position=True)

    async def _run(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SAVE_S):
                await self._wait_recovered()
        await self._save_logged(always_position=True)  # frequent kills must not make the scan longer each time
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
        """Save changed progress. With ``always_position``, also save a log offset that is the only change.

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
        await self._store.wait_confirmed(end)  # neither another leader
        await self._store.wait_flushed(end)  # nor a power failure must lose copies that the progress counts
        await run_to_completion(self._timers.save)
        await run_to_completion(
            partial(self._delays.save, contents)
        )  # last, because its log offset applies to both files
