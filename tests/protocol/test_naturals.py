"""Natural numbers in text form."""

from __future__ import annotations

import pytest

from raptormq.protocol.naturals import parse_natural


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("99999", 99_999)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert parse_natural(text, 5) == number


@pytest.mark.parametrize("text", [None, "", "-1", "+1", " 1", "1_0", "1.0", "²", "٣", "100000", "9" * 5_000])
def test_anything_else_is_none(text: str | None) -> None:
    assert parse_natural(text, 5) is None
