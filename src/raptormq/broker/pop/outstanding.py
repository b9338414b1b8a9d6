"""Tracks unacknowledged checkpoints in memory (``PopBufferMergeService``, ``PopReviveService``).

Time is passed in. Each checkpoint has a place in the revive log (queue and offset). Everything before the oldest needed
place is done and need not be read again after a restart.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable

from raptormq.protocol.bodies.pop import CheckPoint

Key = tuple[str, str, int, int, int]
Place = tuple[int, int]
"""Queue of the revive log and offset."""


class _Open:
    __slots__ = ("checkpoint", "is_reviving", "left", "place")

    def __init__(self, checkpoint: CheckPoint, place: Place) -> None:
        self.checkpoint = checkpoint
        self.place = place
        self.left = (1 << len(checkpoint.offsets)) - 1
        """Bit mask of the unacknowledged offsets of the checkpoint."""
        self.is_reviving = False
        """True while the revived copies wait to be confirmed; acknowledgements are too late then."""

    def bits(self, offsets: Iterable[int]) -> int:
        """Return the bit mask of ``offsets``; offsets of other checkpoints are ignored."""
        known, found = self.checkpoint.offsets, 0
        for offset in offsets:
            index = bisect_left(known, offset)
            if index < len(known) and known[index] == offset:
                found |= 1 << index
        return found

    def offsets(self) -> list[int]:
        return [offset for index, offset in enumerate(self.checkpoint.offsets) if self.left >> index & 1]


class Outstanding:
    """Popped and unacknowledged messages, by their revive time.

    ``most`` limits the checkpoints (1 KB each, 2 KB with 32 messages): further pops wait until some are acknowledged or
    revived. Checkpoints that a start reads from the revive log are added without limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, dict[Key, _Open]] = {}
        """By topic."""
        self._count = 0
        self._by_time: list[tuple[int, int, Key]] = []
        self._sequence = itertools.count()
        self._places: dict[int, dict[int, None]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True while no more messages may be popped."""
        return self._count >= self._most

    def add(self, checkpoint: CheckPoint, place: Place) -> None:
        """Track the acknowledgements of a checkpoint."""
        entry = self._entry(checkpoint.key)
        if entry is not None or not checkpoint.offsets:
            if entry is None or entry.place != place:
                self.release(place)
            return
        self._open.setdefault(checkpoint.topic, {})[checkpoint.key] = _Open(checkpoint, place)
        self._count += 1
        heapq.heappush(self._by_time, (checkpoint.revive_time, next(self._sequence), checkpoint.key))
        self.hold(place)

    def hold(self, place: Place) -> None:
        """Mark a place of the revive log as needed. The places of a queue are held in ascending order."""
        self._places.setdefault(place[0], {})[place[1]] = None

    def release(self, place: Place) -> None:
        """Release a place for which no checkpoint was added."""
        self._places.get(place[0], {}).pop(place[1], None)

    def is_pending(self, key: Key, offsets: Iterable[int]) -> bool:
        """Return whether one of ``offsets`` is unacknowledged."""
        entry = self._entry(key)
        return entry is not None and not entry.is_reviving and bool(entry.left & entry.bits(offsets))

    def acknowledge(self, key: Key, offsets: Iterable[int]) -> bool:
        """Acknowledge messages; return False when none of them was pending."""
        entry = self._entry(key)
        if entry is None or entry.is_reviving:
            return False
        before = entry.left
        entry.left &= ~entry.bits(offsets)
        if not entry.left:
            self._forget(entry)
        return entry.left != before

    def pending_offsets(self, checkpoint: CheckPoint) -> tuple[int, list[int]] | None:
        """Return the revive queue of a checkpoint and its unacknowledged offsets; None when it is no longer tracked."""
        entry = self._entry(checkpoint.key)
        return None if entry is None else (entry.place[0], entry.offsets())

    def due(self, now_ms: int, most: int) -> list[tuple[CheckPoint, list[int]]]:
        """Return up to ``most`` checkpoints whose revive time has passed, with their unacknowledged offsets. They stay
        tracked until :meth:`remove`.
        """
        found: list[tuple[CheckPoint, list[int]]] = []
        while self._by_time and self._by_time[0][0] <= now_ms and len(found) < most:
            entry = self._entry(heapq.heappop(self._by_time)[2])
            if entry is not None:
                found.append((entry.checkpoint, entry.offsets()))
        if len(self._by_time) > 2 * self._count + 1000:  # most entries are acknowledged
            self._by_time = [item for item in self._by_time if self._entry(item[2]) is not None]
            heapq.heapify(self._by_time)
        return found

    def mark_reviving(self, checkpoint: CheckPoint) -> None:
        """Ignore acknowledgements of a checkpoint until :meth:`remove` or :meth:`reschedule`."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = True

    def reschedule(self, checkpoint: CheckPoint, at_ms: int) -> None:
        """Make a checkpoint that could not be revived due again at ``at_ms``."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = False
            heapq.heappush(self._by_time, (at_ms, next(self._sequence), checkpoint.key))

    def remove(self, checkpoint: CheckPoint) -> None:
        """Stop tracking a checkpoint whose messages are revived."""
        entry = self._entry(checkpoint.key)
        if entry is not None:
            self._forget(entry)

    def forget_topic(self, topic: str) -> None:
        """Stop tracking the checkpoints of a deleted topic; its handles do not apply to a later topic."""
        for entry in list(self._open.get(topic, {}).values()):
            self._forget(entry)

    def oldest_needed(self, queue_id: int) -> int | None:
        """Return the lowest needed offset of a revive queue, None when there is none."""
        return next(iter(self._places.get(queue_id, ())), None)

    def _entry(self, key: Key) -> _Open | None:
        of_topic = self._open.get(key[0])
        return of_topic.get(key) if of_topic is not None else None

    def _forget(self, entry: _Open) -> None:
        of_topic = self._open[entry.checkpoint.topic]
        del of_topic[entry.checkpoint.key]
        if not of_topic:
            del self._open[entry.checkpoint.topic]
        self._count -= 1
        self.release(entry.place)
