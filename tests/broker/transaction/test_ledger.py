"""Which halves are open, and from where a restart has to read, whatever the order of events."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.transaction.ledger import Ledger, OpenHalf


def kept(ledger: Ledger) -> tuple[int, int]:
    """The progress, once everything is forgotten that a restart need not read."""
    for _ in ledger.forget_ops():
        pass
    return ledger.progress


def test_a_half_is_open_until_an_op_names_it() -> None:
    ledger = Ledger(5, 2)
    assert kept(ledger) == (5, 2)
    ledger.half_seen(5, 100)
    ledger.half_seen(6, 200)
    assert ledger.open == {5: OpenHalf(100), 6: OpenHalf(200)}
    ledger.op_seen(2, [6])
    assert ledger.open == {5: OpenHalf(100)}
    assert kept(ledger) == (5, 2)  # the op names a half behind the first open one
    ledger.op_seen(3, [5])
    assert kept(ledger) == (7, 4)


def test_a_decision_may_come_before_its_half_is_seen_and_counts_once() -> None:
    ledger = Ledger(0, 0)
    assert ledger.is_open(0)
    ledger.settle(0)
    assert not ledger.is_open(0)
    ledger.half_seen(0, 1)
    assert not ledger.open
    assert not ledger.is_open(0)


def test_while_a_decision_is_written_no_other_counts_and_a_restart_would_ask() -> None:
    """Its record may be lost with the power; the kept progress must not be behind the half by then."""
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 1)
    ledger.half_seen(1, 1)
    ledger.decide(0)
    ledger.op_seen(0, [1])
    assert not ledger.is_open(0)
    assert ledger.known(0) is None
    assert kept(ledger) == (0, 0)
    ledger.reopen(0, 2)
    assert ledger.known(0) == OpenHalf(2)
    assert kept(ledger) == (0, 0)  # with the op of the half behind it: it is settled after a restart, too
    ledger.decide(0)
    ledger.op_seen(1, [0])
    assert kept(ledger) == (2, 2)


def test_a_half_may_be_seen_while_a_decision_about_it_is_written() -> None:
    ledger = Ledger(0, 0)
    ledger.decide(0)
    ledger.half_seen(0, 1)
    assert not ledger.is_open(0)
    ledger.op_seen(0, [0])
    assert not ledger.open
    assert not ledger.is_open(0)


def test_a_decision_that_was_not_written_opens_the_half_again() -> None:
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 1)
    ledger.decide(0)
    ledger.reopen(0, 2)
    assert ledger.open == {0: OpenHalf(2)}
    ledger.decide(1)
    ledger.reopen(1, 2)
    assert ledger.is_open(1)


def moved(ledger: Ledger, to: int, *, told: bool = True) -> None:
    """Write the half that was at 0 first anew, as a question does."""
    now = ledger.place(0)
    places = ledger.places(now)
    ledger.op_seen(to, [now])
    ledger.moved(places, to, 1000 + to, told=told)


def test_a_half_that_was_written_anew_is_found_from_each_place_until_it_is_decided() -> None:
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 1)
    moved(ledger, 3)
    moved(ledger, 7)
    assert [ledger.place(each) for each in (0, 3, 7, 5)] == [7, 7, 7, 5]
    assert [ledger.copy(each) for each in (0, 3, 7)] == [None, None, 1007]
    ledger.op_seen(8, [7])
    assert ledger.copy(7) is None
    assert [ledger.place(each) for each in (0, 3, 7)] == [0, 3, 7]
    assert not any(ledger.is_open(each) for each in (0, 3, 7))


def test_a_decision_that_was_not_written_leaves_the_half_to_be_found_from_each_place() -> None:
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 1)
    moved(ledger, 3)
    ledger.half_seen(3, 2)
    ledger.decide(3)
    ledger.reopen(3, 4)
    assert ledger.is_open(ledger.place(0))


def test_only_places_that_somebody_was_told_of_are_remembered() -> None:
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 1)
    for to in range(1, 400):
        moved(ledger, to, told=to == 200)
    assert ledger.places(399) == (0, 200)
    assert [ledger.place(each) for each in (0, 100, 200)] == [399, 100, 399]


@given(st.lists(st.tuples(st.sampled_from(["half", "op"]), st.integers(0, 9)), max_size=60), st.integers(0, 60))
def test_restoring_from_the_kept_progress_gives_the_same_open_halves(events: list[tuple[str, int]], cut: int) -> None:
    ledger = Ledger(0, 0)
    ops: list[list[int]] = []
    halves, kept = 0, (0, 0)
    forgetting: Iterator[int] = iter(())
    for number, (kind, value) in enumerate(events):
        if kind == "half":
            ledger.half_seen(halves, number)
            halves += 1
        else:
            named = [half for half in {value, value * 2} if half < halves]
            ledger.op_seen(len(ops), named)
            ops.append(named)
        if next(forgetting, None) is None:  # between two of them anything may come
            forgetting = ledger.forget_ops()
        if number == cut:
            kept = ledger.progress
    restored = Ledger(*kept)
    for half in range(kept[0], halves):
        restored.half_seen(half, 0)
    for offset in range(kept[1], len(ops)):
        restored.op_seen(offset, ops[offset])
    assert set(restored.open) == set(ledger.open)


def test_nothing_is_kept_of_a_half_that_is_gone() -> None:
    ledger = Ledger(0, 0)
    ledger.half_seen(0, 0)
    earlier = ledger.places(0)
    ledger.op_seen(0, [0])
    ledger.half_seen(1, 0)
    ledger.moved(earlier, 1, 1001, told=False)
    assert ledger.place(0) == 1
    ledger.gone(1)
    assert ledger.place(0) == 0
    assert ledger.places(1) == (1,)
    assert not ledger.open
