"""Scrub of the log: checks closed segments in the background and repairs damage from other copies.

A disk may return other bytes than were written, without an error. This is not detected until a consumer reads the
message, and then no intact replica may be left. :class:`~raptormq.storage.maintenance.ScrubSchedule` determines the
next range to check, and a thread reads the bytes::

    schedule --next check--> thread: ClosedSegments.check --damage--> log, metrics, status
             --next repair-> fetch (other copies) -> thread: ClosedSegments.repair

The other copies are those of the members of a Dledger group, or of the master and the slaves of the same name. A broker
without replication only reports damage.

In a Dledger group, the checked records are also compared with those of the other members, because their CRCs cover the
bodies alone (:mod:`raptormq.broker.replication.copy_comparison`)::

    checked range --digest--> another member --differs--> all copies --vote--> own copy: damage, repaired as above
                                                                    `-------> other copies, or no majority: reported

A place that somebody else has found damaged is checked at once, also in the open segment, and without regard to the
rate: a consumer that has read it, a member that requested it, or a follower that has refused it. Until damage is
repaired, reads of it fail (:class:`~raptormq.storage.read.KnownDamage`). They skip it when no copy is valid.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import SystemRandom
from typing import Protocol

from raptormq.broker.config import StorageSettings
from raptormq.broker.in_thread import run_to_completion
from raptormq.broker.service import cancel_and_wait
from raptormq.errors import NoValidCopy, RaptorMQError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import MAX_DAMAGED, Damage, ReplicationState
from raptormq.storage.maintenance import Difference, DifferingRanges, ScrubSchedule
from raptormq.storage.records import DamagedRange
from raptormq.storage.store import MessageStore
from raptormq.transport.timing import wait_event

logger = get_logger(__name__)

_MS_PER_HOUR = 3_600_000
_IDLE_MS = 1_000
_FAILED_MS = 60_000
_MAX_SUSPECTS = 1_000
_SOUND_MS = 600_000
_CONTRADICTED = "a majority of the group has another record, with other bytes outside of the body"
_SUSPECT_BYTES = 1 << 20
"""Maximum number of bytes that one report makes the scrub check at once, besides the first record."""

Fetch = Callable[[int, int], Awaitable[bytes]]
"""Returns valid records of another copy that begin at an offset and end at or before a limit. Raises
:class:`RaptorMQError` if no other copy has sent them, and :class:`NoValidCopy` if none has them.
"""
HandOver = Callable[[], Awaitable[None]]
"""Makes the broker lead whose copy was fetched last, if this broker leads."""


class Comparison(Protocol):
    """Compares the copies of the log of a group."""

    async def is_equal(self, begin: int, end: int, digest: str) -> bool | None:
        """Return whether the records of ``[begin, end)``, which have this digest, are equal on another member; None if
        no other member can compare them now.
        """

    async def differences(self, begin: int, end: int) -> list[Difference]:
        """Return the records of ``[begin, end)`` of which members have different copies. Raises
        :class:`RaptorMQError` if this member cannot compare them now.
        """

    async def agreed(self, begin: int, end: int) -> bytes:
        """Return the record ``[begin, end)`` that a majority of the group has. Raises :class:`RaptorMQError` if none
        has equal copies now.
        """


class Scrubber:
    """The scrub of one broker."""

    def __init__(
        self,
        store: MessageStore,
        settings: StorageSettings,
        fetch: Fetch | None,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        hand_over: HandOver | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        """Create the scrub.

        Args:
            store: the store of the broker.
            settings: rate and interval of the checks in the background.
            fetch: reads other copies; None if there is none for repairs.
            clock: returns monotonic ms.
            hand_over: called when damage cannot be repaired on this disk, although another copy is valid.
            comparison: compares the copies of a group; None for other brokers.
        """
        self._store = store
        self._settings = settings
        self._fetch = fetch
        self._hand_over = hand_over
        self._comparison = comparison
        self._differing = DifferingRanges()
        self._clock = clock
        self._suspects: deque[tuple[int, int]] = deque()
        """Offset and size of the places that must be checked at once."""
        self._sound: dict[int, int] = {}
        """Offsets of such places without damage, with the time of the check. A damaged queue item may name them."""
        self._woken = asyncio.Event()
        store.damage.found = self._read_failed
        self._schedule = ScrubSchedule(SystemRandom(), store.config.segment_size)
        self._task: asyncio.Task[None] | None = None
        self._checked_bytes = self._compared_bytes = 0
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

    def suspect(self, offset: int, size: int) -> None:
        """Check the records with bytes in ``[offset, offset + size)`` at once. A place that is outside of the log or
        known to be damaged is ignored.
        """
        place = offset, min(size, _SUSPECT_BYTES)
        is_in_log = self._store.start_offset <= offset < self._store.end_offset
        is_known = place in self._suspects or _contains(self.damaged, offset)
        if is_in_log and not is_known and len(self._suspects) < _MAX_SUSPECTS:
            self._suspects.append(place)
            self._woken.set()

    def copies_differ(self, begin: int, end: int) -> None:
        """Compare the copies of ``[begin, end)`` of the log at once, because another member has other records there."""
        self._differing.suspect(self._clock(), begin, end)
        self._woken.set()

    def _read_failed(self, offset: int, size: int) -> bool:
        """Check a record that a read has found damaged. Return whether another copy may repair it."""
        checked_ms = self._sound.get(offset)
        is_sound = checked_ms is not None and self._clock() - checked_ms < _SOUND_MS
        if is_sound or _contains(self._schedule.without_copy, offset):
            return False
        self.suspect(offset, size)
        return self._fetch is not None

    def report(self, state: ReplicationState) -> ReplicationState:
        """Return the status of this broker with the unrepaired damage, and with a remark on copies that differ."""
        found = self.damaged[:MAX_DAMAGED]
        damaged = tuple(Damage(state.member, each.offset, each.size, each.reason) for each in found)
        remark = "; ".join(filter(None, (state.remark, _remark(self._differing.differences))))
        return replace(state, damaged=damaged, remark=remark)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the gauges for Prometheus as name -> (help text, value)."""
        return {
            "scrub_checked_bytes_total": (
                "Bytes of closed segments of the log that were checked",
                float(self._checked_bytes),
            ),
            "scrub_compared_bytes_total": (
                "Bytes of closed segments of the log that were compared with the copy of another member",
                float(self._compared_bytes),
            ),
            "scrub_differing_bytes": (
                "Size of the records that differ between members of the group and are not repaired",
                float(sum(each.size for each in self._differing.differences)),
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
            "scrub_damaged_everywhere_bytes": (
                "Size of the known damage for which no other copy has valid records; consumers skip it",
                float(sum(each.size for each in self._schedule.without_copy)),
            ),
        }

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                has_checked = await self.step()
                pause_ms = self._schedule.pause_ms(self._clock()) if has_checked else _IDLE_MS
            except Exception:
                logger.exception("the scrub of the log failed")
                pause_ms = _FAILED_MS
            await wait_event(self._woken, 0 if self._suspects else pause_ms / 1000)

    async def step(self) -> bool:
        """Execute the due checks and the due repair. Return whether a check in the background was due."""
        if self._suspects:
            await self._check_suspect(*self._suspects.popleft())
        is_due = await self._check_next()
        if self._comparison is not None:
            place = self._differing.next_due(self._clock(), self._store.start_offset)
            if place is not None:
                await self._compare(*place, self._comparison)
        self._publish()
        if self._fetch is not None and (damage := self._schedule.next_repair(self._clock())) is not None:
            await self._repair(damage, self._fetch)
            self._publish()
        return is_due

    def _publish(self) -> None:
        """Tell the store which damage reads must not skip."""
        without_copy = set(self._schedule.without_copy)
        damaged = [] if self._fetch is None else self.damaged
        self._store.damage.set_ranges(each for each in damaged if each not in without_copy)

    async def _check_suspect(self, offset: int, size: int) -> None:
        segments = self._store.closed_segments()
        begin, result = await run_to_completion(lambda: segments.check_at(offset, size))
        self._log(self._schedule.found(self._clock(), begin, result.reached, result.damaged))
        if result.reached > offset and not result.damaged:
            if len(self._sound) >= _MAX_SUSPECTS:
                self._sound.clear()
            self._sound[offset] = self._clock()

    async def _check_next(self) -> bool:
        """Execute the due check in the background. Return whether one was due."""
        settings = self._settings
        segments = self._store.closed_segments()
        due = self._schedule.next_check(
            self._clock(), segments.start, segments.end, settings.scrub_rate, settings.scrub_hours * _MS_PER_HOUR
        )
        if due is not None:
            begin, limit = due
            result = await run_to_completion(lambda: segments.check(begin, limit))
            self._checked_bytes += result.reached - begin
            self._log(self._schedule.checked(self._clock(), begin, result.reached, result.damaged, settings.scrub_rate))
            if self._comparison is not None and result.digest:
                is_equal = await self._comparison.is_equal(begin, result.reached, result.digest)
                self._compared_bytes += 0 if is_equal is None else result.reached - begin
                if is_equal is False:
                    self.copies_differ(begin, result.reached)
        return due is not None

    async def _compare(self, begin: int, end: int, comparison: Comparison) -> None:
        """Vote on the records of a range whose copies differ."""
        try:
            found = await comparison.differences(begin, end)
        except RaptorMQError as error:
            logger.info("the copies of [%d, %d) of the commit log differ, and are not compared: %s", begin, end, error)
            return
        own = [DamagedRange(each.offset, each.size, _CONTRADICTED) for each in found if each.is_own]
        self._log(self._schedule.contradicted(self._clock(), own))
        for each in self._differing.compared((begin, end), [each for each in found if not each.is_own]):
            logger.error("%s", _text(each))

    def _log(self, new: list[DamagedRange]) -> None:
        self._found += len(new)
        for each in new:
            logger.error(
                "the commit log is damaged: %d bytes at offset %d: %s%s",
                each.size, each.offset, each.reason, "" if self._fetch else "; this broker has no other copy",
            )  # fmt: skip

    async def _repair(self, damage: DamagedRange, fetch: Fetch) -> None:
        at, end = damage.offset, damage.offset + damage.size
        if self._comparison is not None and self._schedule.is_contradicted(damage):
            fetch = self._comparison.agreed
        try:
            while at < end:
                data = await fetch(at, end)
                try:
                    at = await self._repair_piece(at, end, data)
                except StorageError:
                    if self._hand_over is not None and at >= self._store.start_offset:
                        await self._hand_over()
                    raise
        except RaptorMQError as error:
            self._schedule.not_repaired(damage, has_copy=not isinstance(error, NoValidCopy))
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


def _text(difference: Difference) -> str:
    place = f"the copies of {', '.join(difference.members)} of {difference.size} bytes of the commit log"
    if difference.is_decided:
        return f"{place} at offset {difference.offset} are damaged: a majority of the group has other records"
    return (
        f"{place} at offset {difference.offset} differ, and no majority of the group has equal originals: none is"
        " changed"
    )


def _remark(found: list[Difference]) -> str:
    if not found:
        return ""
    return _text(found[0]) if len(found) == 1 else f"{_text(found[0])} (records that differ: {len(found)})"


def _contains(ranges: list[DamagedRange], offset: int) -> bool:
    return any(each.offset <= offset < each.offset + each.size for each in ranges)
