"""Figures beside their promises."""

from __future__ import annotations

import pytest

from bench.figure import Figure, table


@pytest.mark.parametrize(("value", "at_least", "kept"), [(1.0, False, True), (3.0, False, False), (3.0, True, True)])
def test_a_promise_is_an_upper_bound_unless_it_says_at_least(value: float, at_least: bool, kept: bool) -> None:
    assert Figure("something", value, "s", 2, at_least=at_least).kept is kept


def test_the_table_shows_what_was_not_kept() -> None:
    assert "| ready | 3.00 s | under 2 s | **no** |" in table([Figure("ready", 3.0, "s", 2)])
