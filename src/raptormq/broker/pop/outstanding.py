"""Tracks unacknowledged checkpoints in memory (``PopBufferMergeService``, ``PopReviveService``).

Each checkpoint has a position in the revive log (queue and offset). A restart reads each revive queue from the oldest
position that is still needed.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable

from raptormq.protocol.bodies.pop import CheckPoint

Key = tuple[str, str, int, int, int]
"""Topic, group, queue id, first offset and pop time of a checkpoint."""
Position = tuple[int, int]
"""Queue of the revive log and offset."""


class _Open:
    __slots__ = ("being_acknowledged", "checkpoint", "end_offset", "is_reviving", "left", "position")

    def __init__(self, checkpoint: CheckPoint, position: Position) -> None:
        self.checkpoint = checkpoint
        self.position = position
        self.left = (1 << len(checkpoint.offsets)) - 1
        """Bit mask of the unacknowledged offsets of the checkpoint."""
        self.being_acknowledged = 0
        """Bit mask of the offsets in :attr:`left` whose acknowledgement is appended and not confirmed yet."""
        self.end_offset = 0
        """Log offset at which the last of these acknowledgements ends."""
        self.is_reviving = False
        """True while the revived copies are not confirmed yet. Acknowledgements have no effect during this time."""

    def mask(self, offsets: Iterable[int]) -> int:
        """Return the bit mask of ``offsets``, without offsets that do not belong to the checkpoint."""
        own, found = self.checkpoint.offsets, 0
        for offset in offsets:
            index = bisect_left(own, offset)
            if index < len(own) and own[index] == offset:
                found |= 1 << index
        return found

    def offsets(self) -> list[int]:
        return [offset for index, offset in enumerate(self.checkpoint.offsets) if self.left >> index & 1]


class Outstanding:
    """Checkpoints with unacknowledged messages, by revive time.

    ``limit`` is the maximum number of checkpoints (1 KB each, 2 KB with 32 messages). When it is reached, the broker
    refuses pops. Checkpoints that are read from the revive log after a start are added without limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, dict[Key, _Open]] = {}
        """Open checkpoints by topic and key."""
        self._count = 0
        self._by_time: list[tuple[int, int, Key]] = []
        self._sequence = itertools.count()
        self._needed: dict[int, dict[int, None]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True if the limit of checkpoints is reached."""
        return self._count >= self._limit

    def add(self, checkpoint: CheckPoint, position: Position) -> None:
        """Track the acknowledgements of a checkpoint."""
        entry = self._entry(checkpoint.key)
        if entry is not None or not checkpoint.offsets:
            if entry is None or entry.position != position:
                self.release(position)
            return
        self._open.setdefault(checkpoint.topic, {})[checkpoint.key] = _Open(checkpoint, position)
        self._count += 1
        heapq.heappush(self._by_time, (checkpoint.revive_time, next(self._sequence), checkpoint.key))
        self.hold(position)

    def hold(self, position: Position) -> None:
        """Mark a position of the revive log as needed. Callers mark the positions of a queue in ascending order."""
        self._needed.setdefault(position[0], {})[position[1]] = None

    def release(self, position: Position) -> None:
        """Mark a position of the revive log as no longer needed."""
        self._needed.get(position[0], {}).pop(position[1], None)

    def is_pending(self, key: Key, offsets: Iterable[int]) -> bool:
        """Return whether one of ``offsets`` is unacknowledged."""
        entry = self._entry(key)
        return entry is not None and not entry.is_reviving and bool(entry.left & entry.mask(offsets))

    def begin_acknowledgement(self, key: Key, offsets: Iterable[int], end_offset: int) -> None:
        """Record that the acknowledgement of messages is appended to the log and ends at ``end_offset``. They stay
        pending until it is confirmed (:meth:`acknowledge`) or lost (:meth:`lose_acknowledgement`).
        """
        if (entry := self._entry(key)) is not None:
            entry.being_acknowledged |= entry.left & entry.mask(offsets)
            entry.end_offset = max(entry.end_offset, end_offset)

    def lose_acknowledgement(self, key: Key, offsets: Iterable[int]) -> None:
        """Record that an acknowledgement cannot be confirmed any more: the messages stay pending."""
        if (entry := self._entry(key)) is not None:
            entry.being_acknowledged &= ~entry.mask(offsets)

    def is_being_acknowledged(self, key: Key, offsets: Iterable[int]) -> bool:
        """Return whether an acknowledgement of one of ``offsets`` is appended and not confirmed yet."""
        entry = self._entry(key)
        return entry is not None and bool(entry.being_acknowledged & entry.mask(offsets))

    def unconfirmed_end(self, checkpoint: CheckPoint) -> int | None:
        """Return the log offset at which the unconfirmed acknowledgements of a checkpoint end, or None without any."""
        entry = self._entry(checkpoint.key)
        return entry.end_offset if entry is not None and entry.being_acknowledged else None

    def acknowledge(self, key: Key, offsets: Iterable[int]) -> bool:
        """Acknowledge messages. Return False if none of them was pending."""
        entry = self._entry(key)
        if entry is None or entry.is_reviving:
            return False
        before = entry.left
        entry.left &= ~entry.mask(offsets)
        entry.being_acknowledged &= entry.left
        if not entry.left:
            self._forget(entry)
        return entry.left != before

    def pending_offsets(self, checkpoint: CheckPoint) -> tuple[int, list[int]] | None:
        """Return the revive queue and the unacknowledged offsets of a checkpoint, or None if it is not tracked."""
        entry = self._entry(checkpoint.key)
        return None if entry is None else (entry.position[0], entry.offsets())

    def due(self, now_ms: int, limit: int) -> list[tuple[CheckPoint, list[int]]]:
        """Return up to ``limit`` checkpoints whose revive time has passed, with their unacknowledged offsets.

        A returned checkpoint remains tracked until :meth:`remove`, and is not returned again before
        :meth:`reschedule`.
        """
        found: list[tuple[CheckPoint, list[int]]] = []
        while self._by_time and self._by_time[0][0] <= now_ms and len(found) < limit:
            entry = self._entry(heapq.heappop(self._by_time)[2])
            if entry is not None:
                found.append((entry.checkpoint, entry.offsets()))
        if len(self._by_time) > 2 * self._count + 1000:  # most entries are acknowledged
            self._by_time = [item for item in self._by_time if self._entry(item[2]) is not None]
            heapq.heapify(self._by_time)
        return found

    def mark_reviving(self, checkpoint: CheckPoint) -> None:
        """Ignore acknowledgements of a checkpoint until :meth:`remove` or :meth:`reschedule` is called."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = True

    def reschedule(self, checkpoint: CheckPoint, at_ms: int) -> None:
        """Set the revive time of a checkpoint that could not be revived to ``at_ms``."""
        if (entry := self._entry(checkpoint.key)) is not None:
            entry.is_reviving = False
            heapq.heappush(self._by_time, (at_ms, next(self._sequence), checkpoint.key))

    def remove(self, checkpoint: CheckPoint) -> None:
        """Stop tracking a checkpoint after its messages were revived."""
        entry = self._entry(checkpoint.key)
        if entry is not None:
            self._forget(entry)

    def forget_topic(self, topic: str) -> None:
        """Stop tracking the checkpoints of a deleted topic: they do not apply to a new topic of the same name."""
        for entry in list(self._open.get(topic, {}).values()):
            self._forget(entry)

    def clear(self) -> None:
        """Discard all state, because another member of the Dledger group tracks the checkpoints from now on."""
        self._open.clear()
        self._by_time.clear()
        self._needed.clear()
        self._count = 0

    def oldest_needed(self, queue_id: int) -> int | None:
        """Return the lowest needed offset of a revive queue, or None if there is none."""
        return next(iter(self._needed.get(queue_id, ())), None)

    def _entry(self, key: Key) -> _Open | None:
        checkpoints = self._open.get(key[0])
        return checkpoints.get(key) if checkpoints is not None else None

    def _forget(self, entry: _Open) -> None:
        checkpoints = self._open[entry.checkpoint.topic]
        del checkpoints[entry.checkpoint.key]
        if not checkpoints:
            del self._open[entry.checkpoint.topic]
        self._count -= 1
        self.release(entry.position)
