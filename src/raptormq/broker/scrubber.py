"""Scrub of the log: checks closed segments in the background and repairs damage from other copies.

A disk may return other bytes than were written, without an error. This is not detected until a consumer reads the
message, and then no intact replica may be left. :class:`~raptormq.storage.maintenance.ScrubSchedule` determines the
next range to check, and a thread reads the bytes::

    schedule --next check--> thread: ClosedSegments.check --damage--> log, metrics, status
             --next repair-> fetch (other copies) -> thread: ClosedSegments.repair

The other copies are those of the members of a Dledger group, or of the master and the slaves of the same name. A broker
without replication only reports damage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import SystemRandom

from raptormq.broker.config import StorageSettings
from raptormq.broker.in_thread import run_to_completion
from raptormq.broker.service import cancel_and_wait
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import MAX_DAMAGED, Damage, ReplicationState
from raptormq.storage.maintenance import ScrubSchedule
from raptormq.storage.records import DamagedRange
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

_MS_PER_HOUR = 3_600_000
_IDLE_MS = 1_000
_FAILED_MS = 60_000

Fetch = Callable[[int, int], Awaitable[bytes]]
"""Returns valid records of another copy that begin at an offset and end at or before a limit. Raises
:class:`RaptorMQError` if no other copy has them.
"""


class Scrubber:
    """The scrub of one broker."""

    def __init__(
        self,
        store: MessageStore,
        settings: StorageSettings,
        fetch: Fetch | None,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """``fetch`` is None if there is no other copy for repairs. ``clock`` returns monotonic ms."""
        self._store = store
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._schedule = ScrubSchedule(SystemRandom(), store.config.segment_size)
        self._task: asyncio.Task[None] | None = None
        self._checked_bytes = 0
        self._found = 0
        self._repaired = 0

    def start(self) -> None:
        """Start in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop, after the check or repair in progress."""
        if self._task is not None:
            task, self._task = self._task, None
            await cancel_and_wait(task)

    @property
    def damaged(self) -> list[DamagedRange]:
        """The unrepaired damage by offset."""
        return self._schedule.damaged

    def report(self, state: ReplicationState) -> ReplicationState:
        """Return the status of this broker with the unrepaired damage."""
        found = self.damaged[:MAX_DAMAGED]
        if not found:
            return state
        return replace(
            state, damaged=tuple(Damage(state.member, each.offset, each.size, each.reason) for each in found)
        )

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the gauges for Prometheus as name -> (help text, value)."""
        return {
            "scrub_checked_bytes_total": (
                "Bytes of closed segments of the log that were checked",
                float(self._checked_bytes),
            ),
            "scrub_passes_total": ("Checks of the whole log that were completed", float(self._schedule.passes)),
            "scrub_damage_found_total": ("Damaged ranges that checks of the log have found", float(self._found)),
            "scrub_damage_repaired_total": (
                "Damaged ranges that were repaired from other copies of the log",
                float(self._repaired),
            ),
            "scrub_damaged_bytes": (
                "Size of the known damage of the log that is not repaired",
                float(sum(each.size for each in self.damaged)),
            ),
        }

    async def _run(self) -> None:
        while True:
            try:
                has_checked = await self.step()
                pause_ms = self._schedule.pause_ms(self._clock()) if has_checked else _IDLE_MS
            except Exception:
                logger.exception("the scrub of the log failed")
                pause_ms = _FAILED_MS
            await asyncio.sleep(pause_ms / 1000)

    async def step(self) -> bool:
        """Execute the due check and the due repair. Return whether a check was due."""
        settings = self._settings
        segments = self._store.closed_segments()
        due = self._schedule.next_check(
            self._clock(), segments.start, segments.end, settings.scrub_rate, settings.scrub_hours * _MS_PER_HOUR
        )
        if due is not None:
            begin, limit = due
            result = await run_to_completion(lambda: segments.check(begin, limit))
            self._checked_bytes += result.reached - begin
            new = self._schedule.checked(self._clock(), begin, result.reached, result.damaged, settings.scrub_rate)
            self._found += len(new)
            for each in new:
                logger.error(
                    "the commit log is damaged: %d bytes at offset %d: %s%s",
                    each.size, each.offset, each.reason, "" if self._fetch else "; this broker has no other copy",
                )  # fmt: skip
        if self._fetch is not None and (damage := self._schedule.next_repair(self._clock())) is not None:
            await self._repair(damage, self._fetch)
        return due is not None

    async def _repair(self, damage: DamagedRange, fetch: Fetch) -> None:
        at, end = damage.offset, damage.offset + damage.size
        try:
            while at < end:
                at = await self._repair_piece(at, end, await fetch(at, end))
        except RaptorMQError as error:
            logger.error("%d bytes of the commit log at offset %d are not repaired: %s", end - at, at, error)
            return
        self._schedule.repaired(damage)
        self._repaired += 1
        logger.warning(
            "%d bytes of the commit log at offset %d are repaired from another copy", damage.size, damage.offset
        )

    async def _repair_piece(self, begin: int, limit: int, data: bytes) -> int:
        segments = self._store.closed_segments()
        return await run_to_completion(lambda: segments.repair(begin, limit, data))
