"""Every closed segment is checked, at most at the given rate, and damage is reported until it is repaired."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from raptormq.storage.maintenance.scrub_schedule import PIECE_BYTES, RETRY_MS, ScrubSchedule
from raptormq.storage.records import DamagedRange

SEGMENT = 1 << 20
RATE = 1 << 20
HOUR_MS = 3_600_000


def schedule(seed: int = 0) -> ScrubSchedule:
    return ScrubSchedule(Random(seed), SEGMENT)


def whole_pass(found: ScrubSchedule, now_ms: int, start: int, end: int) -> tuple[int, set[int]]:
    """Check until a pass is complete. Return the time and the number of checked megabytes."""
    checked: set[int] = set()
    passes = found.passes
    while found.passes == passes:
        due = found.next_check(now_ms, start, end, RATE, HOUR_MS)
        assert due is not None
        checked.update(range(due[0] // PIECE_BYTES, due[1] // PIECE_BYTES))
        found.checked(now_ms, *due, [], RATE)
        now_ms += found.pause_ms(now_ms)
    return now_ms, checked


@given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 1000))
def test_a_pass_checks_every_closed_segment_and_the_next_one_waits_for_its_time(
    first: int, count: int, seed: int
) -> None:
    found = schedule(seed)
    start, end = first * SEGMENT, (first + count) * SEGMENT
    wanted = set(range(start // PIECE_BYTES, end // PIECE_BYTES))
    now_ms, checked = whole_pass(found, 0, start, end)
    assert checked == wanted
    assert now_ms == count * 1000  # one megabyte per second
    assert found.next_check(now_ms, start, end, RATE, HOUR_MS) is None
    assert found.next_check(HOUR_MS - 1, start, end, RATE, HOUR_MS) is None
    assert whole_pass(found, HOUR_MS, start, end)[1] == wanted


def test_the_first_pass_also_checks_the_segments_that_are_closed_while_it_runs() -> None:
    for seed in range(10):
        found, now_ms, end, checked = schedule(seed), 0, 2 * SEGMENT, set[int]()
        while not found.passes:
            due = found.next_check(now_ms, 0, end, RATE, HOUR_MS)
            assert due is not None
            checked.update(range(due[0] // PIECE_BYTES, due[1] // PIECE_BYTES))
            found.checked(now_ms, *due, [], RATE)
            now_ms += found.pause_ms(now_ms)
            end = min(5 * SEGMENT, end + SEGMENT)
        assert checked == set(range(5 * SEGMENT // PIECE_BYTES))
        assert now_ms == 5 * 1000, "each segment is checked once"
        assert found.next_check(now_ms, 0, 6 * SEGMENT, RATE, HOUR_MS) is None


def test_segments_that_retention_deletes_during_a_pass_are_not_waited_for() -> None:
    found = schedule(1)
    assert found.next_check(0, 0, 4 * SEGMENT, RATE, HOUR_MS) is not None
    assert found.next_check(0, 4 * SEGMENT, 5 * SEGMENT, RATE, HOUR_MS) == (4 * SEGMENT, 4 * SEGMENT + PIECE_BYTES)


def test_starts_begin_at_different_segments() -> None:
    begins = set()
    for seed in range(50):
        due = schedule(seed).next_check(0, 0, 4 * SEGMENT, RATE, HOUR_MS)
        assert due is not None
        begins.add(due[0])
    assert begins == {0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT}


def test_nothing_is_due_before_a_pause_is_over_without_a_rate_or_without_closed_segments() -> None:
    found = schedule()
    assert found.next_check(0, 0, SEGMENT, 0, HOUR_MS) is None
    assert found.next_check(0, 0, 0, RATE, HOUR_MS) is None
    assert found.next_check(0, 0, SEGMENT, RATE, HOUR_MS) == (0, PIECE_BYTES)
    found.checked(0, 0, PIECE_BYTES, [], RATE)
    pause = found.pause_ms(0)
    assert pause == PIECE_BYTES * 1000 // RATE
    assert found.next_check(pause - 1, 0, SEGMENT, RATE, HOUR_MS) is None
    assert found.next_check(pause, 0, SEGMENT, RATE, HOUR_MS) == (PIECE_BYTES, 2 * PIECE_BYTES)


def test_damage_is_new_once_and_known_until_it_is_repaired_checked_again_or_deleted() -> None:
    found = schedule()
    one, two = DamagedRange(100, 50, "crc"), DamagedRange(2 * SEGMENT, 10, "crc")
    assert found.checked(0, 0, PIECE_BYTES, [one], RATE) == [one]
    assert found.checked(0, 2 * SEGMENT, 3 * SEGMENT, [two], RATE) == [two]
    assert found.checked(0, 0, PIECE_BYTES, [one], RATE) == []
    assert found.damaged == [one, two]
    assert found.checked(0, 0, PIECE_BYTES, [], RATE) == []
    assert found.damaged == [two]
    found.next_check(0, 3 * SEGMENT, 4 * SEGMENT, RATE, HOUR_MS)
    assert found.damaged == []
    found.checked(0, 0, PIECE_BYTES, [one], RATE)
    found.repaired(one)
    assert found.damaged == []


def test_a_repair_is_due_at_once_and_then_after_a_while() -> None:
    found = schedule()
    one, two = DamagedRange(100, 50, "crc"), DamagedRange(300, 10, "crc")
    found.checked(5, 0, PIECE_BYTES, [two, one], RATE)
    assert [found.next_repair(5), found.next_repair(5), found.next_repair(5)] == [one, two, None]
    assert found.next_repair(5 + RETRY_MS - 1) is None
    found.repaired(one)
    assert found.next_repair(5 + RETRY_MS) == two


def test_damage_that_only_other_copies_show_is_known_until_it_is_repaired_or_deleted() -> None:
    found = schedule()
    first, second = DamagedRange(100, 20, "contradicted"), DamagedRange(300, 20, "contradicted")
    assert found.contradicted(0, [first, second]) == [first, second]
    assert found.contradicted(1, [first]) == []
    assert found.found(2, 0, 1000, []) == []
    assert found.damaged == [first, second], "a check sees valid records there"
    assert found.next_repair(2) == first
    assert found.is_contradicted(first)
    found.repaired(first)
    assert not found.is_contradicted(first)
    assert found.damaged == [second]
    found.next_check(3, 2 * SEGMENT, 3 * SEGMENT, RATE, HOUR_MS)
    assert found.damaged == []
