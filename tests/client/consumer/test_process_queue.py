"""Progress of one queue: no unfinished message is committed, whatever the order of completion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raptormq.client.consumer.process_queue import FlowLimits, ProcessQueue

PLENTY = FlowLimits(max_messages=1000, max_bytes=1 << 30, max_span=2000)


@given(st.integers(0, 1 << 40), st.permutations(list(range(12))))
def test_the_commit_offset_is_always_the_smallest_unfinished_one(start: int, order: list[int]) -> None:
    progress = ProcessQueue(start)
    for offset in range(12):
        assert progress.add(start + offset, 10)
    unfinished = set(range(12))
    for offset in order:
        assert progress.commit_offset == start + min(unfinished)
        progress.complete(start + offset)
        unfinished.remove(offset)
        assert progress.unfinished_messages == len(unfinished)
        assert progress.unfinished_bytes == 10 * len(unfinished)
    assert progress.commit_offset == progress.next_offset == start + 12


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=200))
def test_the_commit_offset_never_moves_backwards(steps: list[tuple[bool, int]]) -> None:
    progress = ProcessQueue(0)
    before = 0
    for fetch, number in steps:
        if fetch:
            progress.add(progress.next_offset + number % 3, 1)
        else:
            progress.complete(progress.commit_offset + number)
        assert before <= progress.commit_offset <= progress.next_offset
        before = progress.commit_offset


def test_offsets_seen_before_are_not_admitted_again() -> None:
    progress = ProcessQueue(5)
    assert not progress.add(4, 1)
    assert progress.add(5, 1)
    assert not progress.add(5, 1)
    assert progress.unfinished_messages == 1


def test_filtered_messages_advance_what_is_committed() -> None:
    progress = ProcessQueue(0)
    progress.advance(32)
    assert progress.commit_offset == progress.next_offset == 32
    progress.advance(31)
    assert progress.next_offset == 32


def test_filtered_messages_do_not_hide_an_unfinished_one() -> None:
    progress = ProcessQueue(0)
    progress.add(3, 1)
    progress.advance(40)
    assert progress.commit_offset == 3
    progress.complete(3)
    assert progress.commit_offset == 40


def test_completing_twice_counts_once() -> None:
    progress = ProcessQueue(0)
    progress.add(0, 7)
    progress.add(1, 7)
    progress.complete(0)
    progress.complete(0)
    assert progress.unfinished_bytes == 7


def test_fetching_pauses_at_each_limit() -> None:
    progress = ProcessQueue(0)
    assert not progress.is_full(PLENTY)
    progress.add(0, 100)
    assert progress.is_full(FlowLimits(1, 1 << 30, 2000))
    assert progress.is_full(FlowLimits(1000, 100, 2000))
    assert not progress.is_full(FlowLimits(2, 101, 2))
    progress.add(9, 1)
    assert progress.is_full(FlowLimits(1000, 1 << 30, 10))
    progress.complete(0)
    assert not progress.is_full(FlowLimits(1000, 1 << 30, 10))


def test_a_run_is_admitted_and_finished_as_one() -> None:
    progress = ProcessQueue(10)
    assert progress.add(12, 300, 3, 16)
    assert not progress.add(16, 1)
    assert progress.add(17, 5)
    assert (progress.next_offset, progress.unfinished_messages, progress.unfinished_bytes) == (18, 4, 305)
    progress.complete(13)
    progress.complete(17)
    assert (progress.commit_offset, progress.unfinished_messages) == (12, 3)
    progress.complete(12)
    assert (progress.commit_offset, progress.unfinished_messages, progress.unfinished_bytes) == (18, 0, 0)
