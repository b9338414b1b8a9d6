"""The index of open half messages, and the offset from which a restart must read, for any order of events."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.transaction.half_message_index import HalfMessageIndex, OpenHalf


def kept(ledger: HalfMessageIndex) -> tuple[int, int]:
    """Return the progress after everything was removed that a restart need not read."""
    for _ in ledger.discard_ops():
        pass
    return ledger.progress


def test_a_half_is_open_until_an_op_names_it() -> None:
    ledger = HalfMessageIndex(5, 2)
    assert kept(ledger) == (5, 2)
    ledger.add_half(5, 100)
    ledger.add_half(6, 200)
    assert ledger.open == {5: OpenHalf(100), 6: OpenHalf(200)}
    ledger.add_op(2, [6])
    assert ledger.open == {5: OpenHalf(100)}
    assert kept(ledger) == (5, 2)  # the op record names a half message after the first open one
    ledger.add_op(3, [5])
    assert kept(ledger) == (7, 4)


def test_a_decision_may_come_before_its_half_is_seen_and_counts_once() -> None:
    ledger = HalfMessageIndex(0, 0)
    assert ledger.is_open(0)
    ledger.mark_decided(0)
    assert not ledger.is_open(0)
    ledger.add_half(0, 1)
    assert not ledger.open
    assert not ledger.is_open(0)


def test_while_a_decision_is_written_no_other_counts_and_a_restart_would_ask() -> None:
    """A power failure may remove its record. The saved progress must then not be after the half message."""
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 1)
    ledger.add_half(1, 1)
    ledger.begin_decision(0)
    ledger.add_op(0, [1])
    assert not ledger.is_open(0)
    assert ledger.undecided(0) is None
    assert kept(ledger) == (0, 0)
    ledger.cancel_decision(0, 2)
    assert ledger.undecided(0) == OpenHalf(2)
    assert kept(ledger) == (
        0,
        0,
    )  # with the op record of the next half message, so it is also complete after a restart
    ledger.begin_decision(0)
    ledger.add_op(1, [0])
    assert kept(ledger) == (2, 2)


def test_a_half_may_be_seen_while_a_decision_about_it_is_written() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.begin_decision(0)
    ledger.add_half(0, 1)
    assert not ledger.is_open(0)
    ledger.add_op(0, [0])
    assert not ledger.open
    assert not ledger.is_open(0)


def test_a_decision_that_was_not_written_opens_the_half_again() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 1)
    ledger.begin_decision(0)
    ledger.cancel_decision(0, 2)
    assert ledger.open == {0: OpenHalf(2)}
    ledger.begin_decision(1)
    ledger.cancel_decision(1, 2)
    assert ledger.is_open(1)


def moved(ledger: HalfMessageIndex, to: int, *, announced: bool = True) -> None:
    """Rewrite the half message that was first at 0, like a check."""
    now = ledger.current_offset(0)
    places = ledger.known_offsets(now)
    ledger.add_op(to, [now])
    ledger.move(places, to, 1000 + to, announced=announced)


def test_a_half_that_was_written_anew_is_found_from_each_place_until_it_is_decided() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 1)
    moved(ledger, 3)
    moved(ledger, 7)
    assert [ledger.current_offset(each) for each in (0, 3, 7, 5)] == [7, 7, 7, 5]
    assert [ledger.log_offset(each) for each in (0, 3, 7)] == [None, None, 1007]
    ledger.add_op(8, [7])
    assert ledger.log_offset(7) is None
    assert [ledger.current_offset(each) for each in (0, 3, 7)] == [0, 3, 7]
    assert not any(ledger.is_open(each) for each in (0, 3, 7))


def test_a_decision_that_was_not_written_leaves_the_half_to_be_found_from_each_place() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 1)
    moved(ledger, 3)
    ledger.add_half(3, 2)
    ledger.begin_decision(3)
    ledger.cancel_decision(3, 4)
    assert ledger.is_open(ledger.current_offset(0))


def test_only_places_that_somebody_was_told_of_are_remembered() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 1)
    for to in range(1, 400):
        moved(ledger, to, announced=to == 200)
    assert ledger.known_offsets(399) == (0, 200)
    assert [ledger.current_offset(each) for each in (0, 100, 200)] == [399, 100, 399]


@given(st.lists(st.tuples(st.sampled_from(["half", "op"]), st.integers(0, 9)), max_size=60), st.integers(0, 60))
def test_restoring_from_the_kept_progress_gives_the_same_open_halves(events: list[tuple[str, int]], cut: int) -> None:
    ledger = HalfMessageIndex(0, 0)
    ops: list[list[int]] = []
    halves, kept = 0, (0, 0)
    forgetting: Iterator[int] = iter(())
    for number, (kind, value) in enumerate(events):
        if kind == "half":
            ledger.add_half(halves, number)
            halves += 1
        else:
            named = [half for half in {value, value * 2} if half < halves]
            ledger.add_op(len(ops), named)
            ops.append(named)
        if next(forgetting, None) is None:  # any event can occur between two of them
            forgetting = ledger.discard_ops()
        if number == cut:
            kept = ledger.progress
    restored = HalfMessageIndex(*kept)
    for half in range(kept[0], halves):
        restored.add_half(half, 0)
    for offset in range(kept[1], len(ops)):
        restored.add_op(offset, ops[offset])
    assert set(restored.open) == set(ledger.open)


def test_nothing_is_kept_of_a_half_that_is_gone() -> None:
    ledger = HalfMessageIndex(0, 0)
    ledger.add_half(0, 0)
    earlier = ledger.known_offsets(0)
    ledger.add_op(0, [0])
    ledger.add_half(1, 0)
    ledger.move(earlier, 1, 1001, announced=False)
    assert ledger.current_offset(0) == 1
    ledger.remove(1)
    assert ledger.current_offset(0) == 0
    assert ledger.known_offsets(1) == (1,)
    assert not ledger.open
