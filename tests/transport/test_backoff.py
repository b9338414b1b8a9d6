"""Exponential backoff."""

from __future__ import annotations

import pytest

from raptormq.transport.timing import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.05, 1.0)
    assert [backoff.pause(earlier) for earlier in range(7)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_attempts_may_go_on_forever() -> None:
    assert Backoff(0.05, 1.0).pause(2**31 - 1) == 1.0
