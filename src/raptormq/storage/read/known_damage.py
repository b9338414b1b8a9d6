"""Damage of the log that another copy may repair. Reads of it fail, because the messages are not lost.

A broker without other copies, and a place that is damaged on all copies, have no such damage: reads skip the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from raptormq.errors import RecordsDamaged
from raptormq.storage.fs import Buffer
from raptormq.storage.records import DamagedRange


class KnownDamage:
    """The places of one log that are known to be damaged."""

    def __init__(self) -> None:
        self._ranges: tuple[DamagedRange, ...] = ()
        self.found: Callable[[int, int], bool] = lambda _offset, _size: False
        """Called with offset and size of a damaged record that a read has found. Returns whether another copy may
        repair it.
        """

    def set_ranges(self, ranges: Iterable[DamagedRange]) -> None:
        """Replace the known ranges."""
        self._ranges = tuple(ranges)

    @property
    def is_empty(self) -> bool:
        """Whether no range is known."""
        return not self._ranges

    def covers(self, offset: int, size: int) -> bool:
        """Return whether a range that is known to be damaged overlaps ``[offset, offset + size)``."""
        return any(each.offset < offset + size and offset < each.offset + each.size for each in self._ranges)

    def is_repairable(self, offset: int, size: int) -> bool:
        """Return whether the damaged record at ``offset`` may be repaired from another copy."""
        return self.covers(offset, size) or self.found(offset, size)

    def check(self, offset: int, size: int) -> None:
        """Raise RecordsDamaged if a known range overlaps the bytes."""
        if self._ranges and self.covers(offset, size):
            raise records_damaged(offset)

    def readable_count(self, places: Sequence[Sequence[int]], buffers: Sequence[Buffer | None]) -> int:
        """Return how many of the records at ``places`` (offset and size) a read may return: those before the first one
        that may be repaired. ``buffers`` has None for damaged records.

        Raises:
            RecordsDamaged: that is the first record.
        """
        for count, ((offset, size), buffer) in enumerate(zip(places, buffers, strict=True)):
            if self.covers(offset, size) or (buffer is None and self.found(offset, size)):
                if not count:
                    raise records_damaged(offset)
                return count
        return len(places)


def records_damaged(offset: int) -> RecordsDamaged:
    """Return the error of a read of the damaged record at ``offset``."""
    return RecordsDamaged(
        f"the record at offset {offset} of the commit log of this broker is damaged, and is being repaired from another"
        " copy: retry"
    )
