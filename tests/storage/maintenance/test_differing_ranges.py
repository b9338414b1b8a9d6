"""A range whose copies differ is compared at once, and again until its copies are equal."""

from __future__ import annotations

from raptormq.storage.maintenance import Difference, DifferingRanges
from raptormq.storage.maintenance.differing_ranges import AGAIN_MS

FOUND = Difference(120, 50, ("n0", "n1"), is_decided=False, is_own=False)


def test_a_range_is_compared_again_until_its_copies_are_equal() -> None:
    ranges = DifferingRanges()
    assert ranges.next_due(0, 0) is None
    ranges.suspect(5, 100, 200)
    assert ranges.next_due(5, 0) == (100, 200)
    assert ranges.next_due(5, 0) is None
    assert ranges.compared((100, 200), [FOUND]) == [FOUND]
    assert ranges.differences == [FOUND]
    ranges.suspect(6, 150, 160)
    assert ranges.next_due(6, 0) is None, "a part of a known range is compared with it"
    assert ranges.next_due(5 + AGAIN_MS, 0) == (100, 200)
    assert ranges.compared((100, 200), [FOUND]) == []
    assert ranges.next_due(5 + 2 * AGAIN_MS, 0) == (100, 200)
    assert ranges.compared((100, 200), []) == []
    assert ranges.differences == []
    assert ranges.next_due(1 << 40, 0) is None


def test_parts_that_are_not_known_yet_are_compared_at_once() -> None:
    ranges = DifferingRanges()
    for begin, end in ((100, 200), (300, 400)):
        ranges.suspect(0, begin, end)
        assert ranges.next_due(0, 0) == (begin, end)
    ranges.suspect(1, 50, 450)
    due = {ranges.next_due(1, 0) for _ in range(4)}
    assert due == {(50, 100), (200, 300), (400, 450), None}


def test_a_range_that_retention_has_deleted_is_forgotten() -> None:
    ranges = DifferingRanges()
    ranges.suspect(0, 100, 200)
    ranges.compared((100, 200), [FOUND])
    assert ranges.next_due(1 << 40, 4096) is None
    assert ranges.differences == []
