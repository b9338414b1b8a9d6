"""Positions: the results of :class:`EpochLog` compared with the list of its units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.raft import ZERO, Configuration, Entry, EpochLog, Member, Position

Unit = tuple[str, int]
"""A byte or an entry, with its term."""


@st.composite
def logs(draw: st.DrawFn) -> tuple[EpochLog, list[Unit]]:
    log, units, term = EpochLog(0, 0, ()), [], 0
    for kind in draw(st.lists(st.sampled_from(["byte", "bytes", "start", "members"]), max_size=12)):
        if kind.startswith("byte"):
            count = 1 if kind == "byte" else 3
            log.append_bytes(log.end.offset + count)
            units += [("byte", term)] * count
        else:
            if kind == "start" or not term:
                term += draw(st.integers(1, 2))
            members = Configuration.of([Member("n0", len(units))]) if kind == "members" else None
            log.append_entry(Entry(term, log.end.offset, members))
            units.append(("entry", term))
    return log, units


def positions(units: list[Unit]) -> list[Position]:
    """Return all prefixes of a log."""
    found = [ZERO]
    for kind, _ in units:
        offset, entries = found[-1]
        found.append(Position(offset + (kind == "byte"), entries + (kind == "entry")))
    return found


@given(logs())
def test_terms_and_prefixes_are_those_of_the_units(made: tuple[EpochLog, list[Unit]]) -> None:
    log, units = made
    prefixes = positions(units)
    assert log.end == prefixes[-1]
    assert prefixes == sorted(set(prefixes))
    for length, position in enumerate(prefixes):
        term = units[length - 1][1] if length else 0
        assert log.term_at(position) == term
        assert log.contains(position, term)
        assert not log.contains(position, term + 1)
    for offset in range(log.end.offset + 2):
        for entries in range(log.end.entries + 2):
            position = Position(offset, entries)
            assert any(log.contains(position, term) for term in range(30)) == (position in prefixes)
            allowed = [prefix for prefix in prefixes if prefix.offset <= offset and prefix.entries <= entries]
            assert log.prefix(offset, entries) == max(allowed)
        if offset <= log.end.offset:
            assert log.at(offset) == max(prefix for prefix in prefixes if prefix.offset == offset)


@given(logs(), st.integers(0, 30))
def test_the_end_of_a_term(made: tuple[EpochLog, list[Unit]], term: int) -> None:
    log, units = made
    older = [unit for unit in units if unit[1] <= term]
    assert log.end_of(term) == (older[-1][1] if older else 0, positions(older)[-1])


@given(logs(), st.data())
def test_a_truncated_log_is_the_log_of_its_prefix(made: tuple[EpochLog, list[Unit]], data: st.DataObject) -> None:
    log, units = made
    length = data.draw(st.integers(0, len(units)))
    cut = positions(units)[length]
    kept = log.between(ZERO, cut)
    log.truncate(cut)
    again = EpochLog(0, cut.offset, kept)
    assert (log.end, log.entries, log.last_term) == (again.end, again.entries, again.last_term)
    assert (log.configuration, log.configuration_end) == (again.configuration, again.configuration_end)


def test_votes_compare_the_term_first_and_entries_too() -> None:
    log = EpochLog(0, 100, (Entry(1, 0), Entry(3, 40)))
    assert log.is_up_to_date(3, Position(100, 2))
    assert log.is_up_to_date(3, Position(100, 3))
    assert log.is_up_to_date(4, Position(10, 2))
    assert not log.is_up_to_date(3, Position(99, 2))
    assert not log.is_up_to_date(3, Position(100, 1))
    assert not log.is_up_to_date(2, Position(900, 2))


def test_entries_behind_the_last_byte_are_left_out() -> None:
    log = EpochLog(0, 50, (Entry(1, 0), Entry(2, 50), Entry(3, 51)))
    assert log.entries == (Entry(1, 0), Entry(2, 50))


@pytest.mark.parametrize(
    ("start", "end", "entries"),
    [(0, 90, (Entry(2, 0), Entry(1, 5))), (0, 90, (Entry(1, 6), Entry(2, 5))), (50, 40, ())],
    ids=["terms", "offsets", "end"],
)
def test_a_table_that_goes_back_is_refused(start: int, end: int, entries: tuple[Entry, ...]) -> None:
    with pytest.raises(ValueError, match=r"not in order|before its start"):
        EpochLog(start, end, entries)


def test_two_members_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        Configuration.of([Member("n0", 1), Member("n0", 2)])
