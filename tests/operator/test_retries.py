"""Times of retries after failures."""

from __future__ import annotations

import pytest

from raptormq_operator.retries import Retries


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def retries(clock: Clock, vary: float = 0.5) -> Retries[str]:
    return Retries(2.0, 30.0, clock=clock, vary=lambda: vary)


def test_it_waits_longer_while_it_fails_alike_and_begins_anew_with_another_cause() -> None:
    clock = Clock()
    tried = retries(clock)
    waits = []
    for cause in ("a", "a", "a", "a", "a", "a", "b", "b"):
        waits.append(tried.failed("x", cause))
        clock.now += waits[-1]
    assert waits == pytest.approx([2, 4, 8, 16, 30, 30, 2, 4])
    tried.succeeded("x")
    assert tried.failed("x", "b") == pytest.approx(2)


def test_an_attempt_before_its_time_changes_nothing() -> None:
    clock = Clock()
    tried = retries(clock)
    tried.failed("x", "a")
    clock.now = 1.5
    assert tried.failed("x", "a") == pytest.approx(0.5)
    clock.now = 2.0
    assert tried.failed("x", "a") == pytest.approx(4)


def test_what_is_due() -> None:
    clock = Clock()
    tried = retries(clock)
    assert (tried.is_due("x"), tried.wait("x"), tried.due(), tried.next_wait()) == (True, 0.0, set(), None)
    tried.failed("x")
    clock.now = 1.0
    tried.failed("y")
    assert (tried.is_due("x"), tried.wait("x"), tried.next_wait()) == (False, 1.0, 1.0)
    clock.now = 2.0
    assert (tried.due(), tried.next_wait()) == ({"x"}, 0.0)


def test_waits_vary_by_a_fifth_either_way() -> None:
    assert [retries(Clock(), vary).failed("x") for vary in (0.0, 1.0)] == pytest.approx([1.6, 2.4])
