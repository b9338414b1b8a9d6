"""Checkpoints that still wait for acknowledgements (``PopBufferMergeService``, ``PopReviveService``).

Time is passed in, as everywhere. Each checkpoint has its place in the revive log (queue and offset); everything before
the oldest place is done with and need not be read again after a restart.
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
        """A bit for each of the checkpoint's offsets that is not acknowledged."""
        self.is_reviving = False
        """True while the copies of what is left wait for the disk: acknowledgements of it come too late."""

    def bits(self, offsets: Iterable[int]) -> int:
        """Return the bits of those offsets that are the checkpoint's."""
        known, found = self.checkpoint.offsets, 0
        for offset in offsets:
            index = bisect_left(known, offset)
            if index < len(known) and known[index] == offset:
                found |= 1 << index
        return found

    def offsets(self) -> list[int]:
        return [offset for index, offset in enumerate(self.checkpoint.offsets) if self.left >> index & 1]


class Outstanding:
    """What consumers have popped and not acknowledged, by the time at which it comes back.

    With ``most`` checkpoints (1 KB each, 2 KB with 32 messages) it is full; who pops has to wait until some are
    acknowledged or come back. What a crash has left is taken in whatever its number.
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
        """True while nothing more may be popped."""
        return self._count >= self._most

    def add(self, checkpoint: CheckPoint, place: Place) -> None:
        """Wait for the acknowledgements of a checkpoint."""
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
        """Count a place as needed; each is behind those of its queue that have been before."""
        self._places.setdefault(place[0], {})[place[1]] = None

    def release(self, place: Place) -> None:
        """Count a place no more that no checkpoint was added for."""
        self._places.get(place[0], {}).pop(place[1], None)

    def is_pending(self, key: Key, offsets: Iterable[int]) -> bool:
        """Return whether one of ``offsets`` is not acknowledged yet."""
        entry = self._entry(key)
        return entry is not None and not entry.is_reviving and bool(entry.left & entry.bits(offsets))

    def acknowledge(self, key: Key, offsets: Iterable[int]) -> bool:
        """Note that messages are done; False when they need not be any more, or never had to be."""
        entry = self._entry(key)
        if entry is None or entry.is_reviving:
            return False
        before = entry.left
        entry.left &= ~entry.bits(offsets)
        if not entry.left:
            self._forget(entry)
        return entry.left != before

    def pending_offsets(self, checkpoint: CheckPoint) -> tuple[int, list[int]] | None:
        """Return the queue of the revive log that a checkpoint is in, and which of its offsets nobody has acknowledged
        until now; None when it is forgotten.
        """
        entry = self._entry(checkpoint.key)
        return None if entry is None else (entry.place[0], entry.offsets())

    def due(self, now_ms: int, most: int) -> list[tuple[CheckPoint, list[int]]]:
        """Return up to ``most`` checkpoints whose time is up, with the offsets that nobody has acknowledged; they stay
        until :meth:`remove`.
        """
        found: list[tuple[CheckPoint, list[int]]] = []
        while self._by_time and self._by_time[0][0] <= now_ms and len(found) < most:
            entry = self._entry(heapq.heappop(self._by_time)[2])
            if entry is not None:
                found.append((entry.checkpoint, entry.offsets()))
        if len(self._by_time) > 2 * self._count + 1000:  # mostly acknowledged long ago
            self._by_time = [item for item in self._by_time if self._entry(item[2]) is not None]
            heapq.heapify(self._by_time)
        return found

    def mark_reviving(self, checkpoint: CheckPoint) -> None:
        """What is left of a checkpoint is not waited for any more: until :meth:`remove`, or :meth:`reschedule`."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = True

    def reschedule(self, checkpoint: CheckPoint, at_ms: int) -> None:
        """Let a checkpoint that could not be revived be due once more."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = False
            heapq.heappush(self._by_time, (at_ms, next(self._sequence), checkpoint.key))

    def remove(self, checkpoint: CheckPoint) -> None:
        """Forget a checkpoint whose messages are visible again."""
        entry = self._entry(checkpoint.key)
        if entry is not None:
            self._forget(entry)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: nothing of it comes back, and its handles say nothing of one that is made later."""
        for entry in list(self._open.get(topic, {}).values()):
            self._forget(entry)

    def oldest_needed(self, queue_id: int) -> int | None:
        """Return the first offset of a queue of the revive log that is still needed, None when none is."""
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
