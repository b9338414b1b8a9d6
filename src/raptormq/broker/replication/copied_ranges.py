"""The ranges of the log that a member has copied from the disk of another member.

A follower usually receives records when they are new. Its copy then says something about the copies of others. Records
that it receives later may have been damaged on the disk of the leader meanwhile, so they do not vote on damage
(:mod:`raptormq.storage.maintenance.copy_vote`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from raptormq.protocol.bodies.members import parse_integer

MAX_RANGES = 100
"""Maximum number of ranges. Beyond it, the two that are closest to each other become one with the bytes between."""


class CopiedRanges:
    """Ranges ``[begin, end)`` of the log in ascending order, with bytes between them. Immutable."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges = _merged(ranges)

    def with_range(self, begin: int, end: int) -> CopiedRanges:
        """Return these ranges and ``[begin, end)``."""
        return CopiedRanges([*self.ranges, (begin, end)])

    def within(self, begin: int, end: int) -> CopiedRanges:
        """Return the parts of the ranges that are in ``[begin, end)``."""
        return CopiedRanges((max(low, begin), min(high, end)) for low, high in self.ranges)

    def to_text(self) -> str:
        """Return the ranges as text, for example ``0-700,900-1200``."""
        return ",".join(f"{begin}-{end}" for begin, end in self.ranges)

    @classmethod
    def from_text(cls, text: str) -> CopiedRanges:
        """Decode :meth:`to_text`. Raises :class:`BodyError`."""
        ranges = []
        for each in filter(None, text.split(",")):
            begin, _, end = each.partition("-")
            ranges.append((parse_integer(begin), parse_integer(end)))
        return cls(ranges)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for begin, end in sorted((begin, end) for begin, end in ranges if begin < end):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    while len(found) > MAX_RANGES:
        gaps = [after[0] - before[1] for before, after in pairwise(found)]
        at = gaps.index(min(gaps))
        found[at : at + 2] = [(found[at][0], found[at + 1][1])]
    return tuple(found)
