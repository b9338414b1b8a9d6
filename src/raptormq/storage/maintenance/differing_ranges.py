"""The ranges of the log whose copies differ between members: when to compare them again, and what was found. No I/O.

A range stays known until a comparison finds its copies equal, or retention deletes it.
"""

from __future__ import annotations

from raptormq.storage.maintenance.copy_vote import Difference

AGAIN_MS = 10_000
"""Time in ms between two comparisons of the same range. Meanwhile a member may have been repaired, or have returned."""
_MAX_RANGES = 1_000


class DifferingRanges:
    """The ranges of one member. Times are monotonic, in ms; offsets are those of the log."""

    def __init__(self) -> None:
        self._due: dict[tuple[int, int], int] = {}
        """Time of the next comparison of each range, by its begin and end."""
        self._found: dict[tuple[int, int], list[Difference]] = {}

    @property
    def differences(self) -> list[Difference]:
        """The records whose copies differ, by offset."""
        return sorted(each for found in self._found.values() for each in found)

    def suspect(self, now_ms: int, begin: int, end: int) -> None:
        """Note that the copies of ``[begin, end)`` differ. The parts that are not known yet are compared at once."""
        parts = [(begin, end)]
        for known_begin, known_end in self._due:
            around = [((low, min(high, known_begin)), (max(low, known_end), high)) for low, high in parts]
            parts = [(low, high) for pair in around for low, high in pair if low < high]
        for part in parts[: max(0, _MAX_RANGES - len(self._due))]:
            self._due[part] = now_ms

    def next_due(self, now_ms: int, start: int) -> tuple[int, int] | None:
        """Return the range whose comparison is due now, or None. The log begins at ``start``. Another comparison of the
        same range is due after :data:`AGAIN_MS`.
        """
        for place in [place for place in self._due if place[0] < start]:
            self.compared(place, [])
        for place, due_ms in self._due.items():
            if due_ms <= now_ms:
                self._due[place] = now_ms + AGAIN_MS
                return place
        return None

    def compared(self, place: tuple[int, int], found: list[Difference]) -> list[Difference]:
        """Note the result of the comparison of a range, and return what was not known before."""
        known = self._found.pop(place, [])
        if found:
            self._found[place] = found
        else:
            self._due.pop(place, None)
        return [each for each in found if each not in known]
