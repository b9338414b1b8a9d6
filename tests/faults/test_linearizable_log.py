"""The check of histories: known good and bad histories, and comparison with a search of all orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.linearizable_log import Append, End, Operation, Pull, violations

_GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "one after the other": [Append(1, 0, 1, 0), End(1, 2, 3), Pull(0, (1,), 4, 5), Append(2, 6, 7, 1)],
    "seen before it is acknowledged": [Append(1, 0, 9, 0), Pull(0, (1,), 2, 3), End(1, 4, 5)],
    "not yet seen while it is sent": [Append(1, 0, 9, 0), End(0, 2, 3), Pull(0, (), 4, 5), End(1, 6, 7)],
    "sent at once, in either order": [Append(1, 0, 9, 1), Append(2, 0, 9, 0)],
    "no answer, and stored": [Append(1, 0), Pull(0, (1,), 1, 2)],
    "no answer, and stored late": [Append(1, 0), End(0, 2, 3), Pull(0, (1,), 8, 9)],
    "no answer, and never stored": [Append(1, 0), Append(2, 5, 6, 0), End(1, 7, 8)],
    "no answer, and at an offset that nobody read": [Append(1, 0), Append(2, 5, 6, 1)],
}

_BAD: dict[str, list[Operation]] = {
    "acknowledged and lost": [Append(1, 0, 1, 0), End(0, 2, 3)],
    "a leader that was replaced answers a read": [Append(1, 0, 1, 0), Append(2, 2, 3, 1), End(1, 4, 5)],
    "a leader that was replaced has nothing new": [Append(1, 0, 1, 0), Append(2, 2, 3, 1), Pull(1, (), 4, 5)],
    "the end goes back between two reads": [Append(1, 0), End(1, 1, 2), End(0, 3, 4)],
    "seen and taken back": [Append(1, 0), Pull(0, (1,), 1, 2), Append(2, 3, 4, 0)],
    "two leaders gave one offset": [Append(1, 0, 9, 0), Append(2, 0, 9, 0)],
    "stored twice": [Append(1, 0, 9, 0), Pull(0, (1, 1), 10, 11)],
    "stored before what was acknowledged earlier": [Append(1, 0, 1, 1), Append(2, 2, 3, 0)],
    "seen before it was sent": [Pull(0, (1,), 0, 1), Append(1, 2, 3, 0)],
    "never sent": [Pull(0, (1,), 0, 1)],
    "an offset that nothing can fill": [Append(1, 0, 1, 1)],
    "an offset that was filled too late": [Append(1, 0, 1, 1), Append(2, 2)],
}


@pytest.mark.parametrize("name", _GOOD)
def test_good_histories_pass(name: str) -> None:
    assert violations(_GOOD[name]) == []


@pytest.mark.parametrize("name", _BAD)
def test_bad_histories_are_found(name: str) -> None:
    assert violations(_BAD[name]) != []


def test_a_violation_names_both_operations() -> None:
    [found] = violations([Append(1, 0, 1, 0), End(0, 2, 3)])
    assert "End(offset=0, invoked=2, returned=3) began after Append(body=1" in found


def _linearizable(waiting: list[Operation], log: tuple[int, ...] = ()) -> bool:
    """Search all orders that respect real time (Wing and Gong, 1993)."""
    if all(isinstance(each, Append) and each.offset is None for each in waiting):
        return True
    soonest = min(each.returned for each in waiting)
    for each in waiting:
        if each.invoked > soonest:
            continue
        rest = [other for other in waiting if other is not each]
        match each:
            case Append(body=body, offset=offset):
                if offset in (None, len(log)) and _linearizable(rest, (*log, body)):
                    return True
            case Pull(offset=first, bodies=()):
                if len(log) <= first and _linearizable(rest, log):
                    return True
            case Pull(offset=first, bodies=bodies):
                if log[first : first + len(bodies)] == bodies and _linearizable(rest, log):
                    return True
            case End(offset=end):
                if len(log) == end and _linearizable(rest, log):
                    return True
    return False


@st.composite
def _histories(draw: st.DrawFn) -> list[Operation]:
    """Few operations with much overlap, so that about half of the histories are good."""
    history: list[Operation] = []
    for body in range(draw(st.integers(1, 4))):
        invoked = draw(st.integers(0, 8))
        if draw(st.booleans()):
            history.append(Append(body, invoked))
        else:
            history.append(Append(body, invoked, invoked + draw(st.integers(0, 6)), draw(st.integers(0, 3))))
    for _ in range(draw(st.integers(0, 3))):
        invoked, offset = draw(st.integers(0, 8)), draw(st.integers(0, 3))
        returned = invoked + draw(st.integers(0, 6))
        bodies = tuple(draw(st.lists(st.integers(0, 3), max_size=3, unique=True)))
        reads: list[Operation] = [End(offset, invoked, returned), Pull(offset, bodies, invoked, returned)]
        history.append(draw(st.sampled_from(reads)))
    return history


@given(_histories())
def test_the_check_agrees_with_a_search_through_all_orders(history: list[Operation]) -> None:
    assert (violations(history) == []) == _linearizable(history)


@given(st.data())
def test_what_one_log_answered_passes(data: st.DataObject) -> None:
    """Random orders of real effects with late responses, which are always good."""
    log: list[int] = []
    history: list[Operation] = []
    for moment in range(data.draw(st.integers(1, 30))):
        invoked = moment - data.draw(st.integers(0, 5))
        returned = moment + data.draw(st.integers(0, 5))
        kind = data.draw(st.sampled_from(["append", "unknown", "pull", "end"]))
        if kind in ("append", "unknown"):
            history.append(Append(moment, invoked, returned, len(log)) if kind == "append" else Append(moment, invoked))
            log.append(moment)
        elif kind == "end":
            history.append(End(len(log), invoked, returned))
        else:
            first = data.draw(st.integers(0, len(log)))
            history.append(Pull(first, tuple(log[first : first + 4]), invoked, returned))
    assert violations(data.draw(st.permutations(history))) == []
