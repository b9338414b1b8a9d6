"""The pause between the pulls of a batch listener, and the hold time of pulls of idle queues."""

from __future__ import annotations

import pytest

from raptormq.client.consumer.queue_reader import (
    IDLE_PER_S,
    LONGEST_HOLDS,
    LONGEST_S,
    RARE_S,
    SHORTEST_S,
    WANTED_PER_S,
    PullPace,
)


def after(pace: PullPace, pulls_per_second: float, begin: float, seconds: float = 0.5) -> float:
    for number in range(int(pulls_per_second * seconds)):
        pace.pulled(begin + number / pulls_per_second)
    return pace.pause


def test_few_pulls_are_made_soon() -> None:
    pace = PullPace()
    assert pace.pause == SHORTEST_S
    assert after(pace, WANTED_PER_S / 2, 100.0) == SHORTEST_S


def test_pauses_grow_with_the_pulls_up_to_a_limit_and_shrink_with_them() -> None:
    pace = PullPace()
    assert SHORTEST_S < after(pace, WANTED_PER_S * 2, 100.0, 0.08) < LONGEST_S
    assert after(pace, WANTED_PER_S * 100, 101.0) == LONGEST_S
    assert after(pace, WANTED_PER_S / 10, 102.0) == SHORTEST_S


def test_sixteen_busy_queues_settle_where_their_pulls_are_as_many_as_wanted() -> None:
    pace, now, queues = PullPace(), 100.0, 16
    for _ in range(200):
        now += pace.pause
        for queue in range(queues):
            pace.pulled(now + queue * 1e-6)
    assert queues / pace.pause == pytest.approx(WANTED_PER_S, rel=0.15)


def test_a_queue_that_brings_something_now_and_then_is_asked_again_at_once() -> None:
    pace = PullPace()
    assert pace.pause_after(0.0) == pace.pause_after(LONGEST_S) == SHORTEST_S
    assert pace.pause_after(RARE_S) == 0.0


def test_pulls_of_thousands_of_queues_are_held_longer_within_bounds() -> None:
    pace = PullPace()
    assert pace.hold(15.0) == 15.0
    pace.waiting = int(15 * IDLE_PER_S)
    assert pace.hold(15.0) == 15.0
    pace.waiting = int(40 * IDLE_PER_S)
    assert (pace.hold(15.0), pace.hold(50.0)) == (40.0, 50.0)
    pace.waiting = 1_000_000
    assert pace.hold(15.0) == LONGEST_HOLDS * 15.0
