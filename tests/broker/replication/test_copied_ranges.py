"""The ranges that a member has copied are known exactly, or too large, but never too small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.replication.copied_ranges import MAX_RANGES, CopiedRanges
from raptormq.errors import BodyError

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=30)


def bytes_of(found: CopiedRanges) -> set[int]:
    return {at for low, high in found.ranges for at in range(low, high)}


@given(RANGES, st.integers(0, 60), st.integers(0, 10))
def test_exactly_the_added_bytes_are_copied(added: list[tuple[int, int]], begin: int, size: int) -> None:
    found = CopiedRanges()
    for low, high in added:
        found = found.with_range(low, high)
    wanted = {at for low, high in added for at in range(low, high)}
    assert bytes_of(found) == wanted
    assert CopiedRanges(found.ranges).ranges == CopiedRanges.from_text(found.to_text()).ranges == found.ranges
    assert bytes_of(found.within(begin, begin + size)) == wanted.intersection(range(begin, begin + size))


def test_beyond_the_limit_the_closest_ranges_become_one() -> None:
    ranges = [(100 * number, 100 * number + 10) for number in range(MAX_RANGES)]
    assert CopiedRanges(ranges).ranges == tuple(ranges)
    found = CopiedRanges(ranges).with_range(15, 20)
    assert found.ranges == ((0, 20), *ranges[1:])
    assert found.within(10, 15).ranges == ((10, 15),)


@pytest.mark.parametrize("text", ["1", "1-", "-1", "a-b", "1-2-3", "1-2,,x"])
def test_text_that_is_no_list_of_ranges_is_refused(text: str) -> None:
    with pytest.raises(BodyError):
        CopiedRanges.from_text(text)
