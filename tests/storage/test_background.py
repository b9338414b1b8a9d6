"""Cooperative work yields after a time, not after a number of items."""

from __future__ import annotations

import pytest

from raptormq.storage import background
from raptormq.storage.background import cooperatively
from tests.turns import counted_turns


@pytest.mark.parametrize(("slice_s", "given"), [(-1.0, 10), (3_600.0, 0)])
async def test_others_have_their_turn_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, slice_s: float, given: int
) -> None:
    monkeypatch.setattr(background, "_SLICE_S", slice_s)
    with counted_turns() as turns:
        items = [item async for item in cooperatively(range(10))]
        assert (items, turns()) == (list(range(10)), given)
