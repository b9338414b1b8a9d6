"""The schedule of a scrub: which part of the log is checked or repaired next, and when. No clock, no I/O.

A pass checks every closed segment once, from the oldest one to the newest one. The first pass after a start begins in
the middle, at a random segment, and continues at the oldest one. Otherwise a broker that is restarted often would never
check its newer segments. A pass ends when it has also checked the segments that were closed meanwhile::

    | oldest ........ origin ........ newest closed | closed during the pass | open
                      |------ first ----------------->|
      |--- second --->|
                                                      |------- third -------->|

Checks are paced by bytes: each is followed by a pause of its size divided by the rate. Known damage stays known until
it is repaired, until a later check finds valid records in its place, or until retention deletes it. Damage that only a
comparison with other copies shows is not seen by a check, and stays known until it is repaired or deleted.
"""

from __future__ import annotations

from random import Random

from raptormq.storage.records import DamagedRange

PIECE_BYTES = 256 << 10
"""Size of one check in bytes. A thread needs a few milliseconds for it."""
RETRY_MS = 60_000
"""Time in ms between two attempts to repair the same range."""


class ScrubSchedule:
    """The schedule of one broker. Times are monotonic, in ms; offsets are those of the log."""

    def __init__(self, rng: Random, segment_size: int) -> None:
        self._rng = rng
        self._segment_size = segment_size
        self._parts: list[tuple[int, int]] = []
        """The ranges that the pass in progress has not checked yet, in their order; empty between passes."""
        self._end = 0
        self._begun_ms: int | None = None
        self._due_ms = 0
        self._repair_due: dict[DamagedRange, int] = {}
        self._without_copy: set[DamagedRange] = set()
        self._contradicted: set[DamagedRange] = set()
        """The known damage that no check finds, because only other copies contradict it."""
        self.passes = 0
        """Number of completed passes."""

    @property
    def damaged(self) -> list[DamagedRange]:
        """The known damage, by offset."""
        return sorted(self._repair_due)

    @property
    def without_copy(self) -> list[DamagedRange]:
        """The known damage for which no copy of the log has valid records, by offset."""
        return sorted(self._without_copy.intersection(self._repair_due))

    def next_check(
        self, now_ms: int, start: int, end: int, bytes_per_second: int, pass_interval_ms: int
    ) -> tuple[int, int] | None:
        """Return the range that is to be checked now, or None.

        Args:
            now_ms: the current time.
            start: offset of the first byte of the log.
            end: end of the closed segments.
            bytes_per_second: maximum rate; 0 checks nothing.
            pass_interval_ms: minimum time from the beginning of a pass to that of the next one.
        """
        self._forget_before(start)
        if not bytes_per_second or start >= end or now_ms < self._due_ms:
            return None
        if self._parts:
            self._extend_pass(start, end)
        if not self._parts:
            if self._begun_ms is not None and now_ms < self._begun_ms + pass_interval_ms:
                return None
            self._begin_pass(now_ms, start, end)
        begin, limit = self._parts[0]
        return begin, min(limit, begin + PIECE_BYTES)

    def _begin_pass(self, now_ms: int, start: int, end: int) -> None:
        origin = start
        if self._begun_ms is None:
            origin += self._rng.randrange((end - start) // self._segment_size) * self._segment_size
        self._begun_ms, self._end = now_ms, end
        self._parts = _not_empty([(origin, end), (start, origin)])

    def _extend_pass(self, start: int, end: int) -> None:
        """Add the segments that were closed since the last call, and remove those that were deleted."""
        self._parts.append((self._end, end))
        self._end = end
        self._parts = _not_empty([(max(begin, start), limit) for begin, limit in self._parts])
        self.passes += not self._parts

    def _forget_before(self, start: int) -> None:
        for each in [each for each in self._repair_due if each.offset < start]:
            self.repaired(each)

    def checked(
        self, now_ms: int, begin: int, reached: int, damaged: list[DamagedRange], bytes_per_second: int
    ) -> list[DamagedRange]:
        """Note the result of the check that was due, of ``[begin, reached)``, and return the damage that was not known
        before.
        """
        self._parts = _not_empty([(reached if begin <= low < reached else low, high) for low, high in self._parts])
        if not self._parts:
            self.passes += 1
        self._due_ms = now_ms + (reached - begin) * 1000 // max(1, bytes_per_second)
        return self.found(now_ms, begin, reached, damaged)

    def found(self, now_ms: int, begin: int, reached: int, damaged: list[DamagedRange]) -> list[DamagedRange]:
        """Note all damage in ``[begin, reached)``, and return that which was not known before."""
        known = {each for each in self._repair_due if begin <= each.offset < reached} - self._contradicted
        for each in known.difference(damaged):
            self.repaired(each)
        for each in damaged:
            self._repair_due.setdefault(each, now_ms)
        return [each for each in damaged if each not in known]

    def contradicted(self, now_ms: int, damaged: list[DamagedRange]) -> list[DamagedRange]:
        """Note damage that a comparison with other copies has found, and return that which was not known before."""
        new = [each for each in damaged if each not in self._repair_due]
        self._repair_due |= dict.fromkeys(new, now_ms)
        self._contradicted.update(new)
        return new

    def is_contradicted(self, damage: DamagedRange) -> bool:
        """Return whether only a comparison with other copies has found the damage."""
        return damage in self._contradicted

    def next_repair(self, now_ms: int) -> DamagedRange | None:
        """Return the damage whose repair is due now, or None. Another attempt is due after :data:`RETRY_MS`."""
        for each, due_ms in sorted(self._repair_due.items()):
            if due_ms <= now_ms:
                self._repair_due[each] = now_ms + RETRY_MS
                return each
        return None

    def repaired(self, damage: DamagedRange) -> None:
        """Note that a range has valid records again."""
        self._repair_due.pop(damage, None)
        self._without_copy.discard(damage)
        self._contradicted.discard(damage)

    def not_repaired(self, damage: DamagedRange, *, has_copy: bool) -> None:
        """Note a failed repair. ``has_copy`` is false if no copy of the log has valid records of the range."""
        if has_copy:
            self._without_copy.discard(damage)
        else:
            self._without_copy.add(damage)

    def pause_ms(self, now_ms: int) -> int:
        """Return how long to wait after a check, in ms."""
        return max(0, self._due_ms - now_ms)


def _not_empty(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(begin, limit) for begin, limit in parts if begin < limit]
