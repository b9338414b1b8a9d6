"""Held pulls: woken by a message, expired, or dropped with their connection."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.pull.held_pulls import BUCKET_MS, LONG_POLL_MS, HeldPull, HeldPulls


def pull(offset: int = 0, tags: set[int] | None = None, *, topic: str = "t", owner: str = "c") -> HeldPull[str]:
    return HeldPull(topic, 0, offset, None if tags is None else frozenset(tags), owner, f"{topic}:{offset}")


def test_an_arrival_wakes_the_pulls_of_its_queue_only() -> None:
    holds = HeldPulls[str](10)
    mine, other = pull(5), pull(5, topic="u")
    holds.hold(mine, 0, 1000)
    holds.hold(other, 0, 1000)
    assert holds.take_arrived([("t", 1, 6, 0), ("x", 0, 6, 0)]) == []
    assert holds.take_arrived([("t", 0, 6, 0)]) == [mine]
    assert len(holds) == 1


def test_a_pull_ahead_of_the_arrival_stays() -> None:
    holds = HeldPulls[str](10)
    waiting = pull(6)
    holds.hold(waiting, 0, 1000)
    assert holds.take_arrived([("t", 0, 6, 0)]) == []
    assert holds.take_arrived([("t", 0, 7, 0)]) == [waiting]


def test_a_tag_filter_wakes_on_its_tags_only_and_once() -> None:
    holds = HeldPulls[str](10)
    waiting = pull(0, {11, 12})
    holds.hold(waiting, 0, 1000)
    assert holds.take_arrived([("t", 0, 1, 10), ("t", 0, 2, 0)]) == []
    assert holds.take_arrived([("t", 0, 3, 12), ("t", 0, 4, 11)]) == [waiting]
    assert len(holds) == 0


def test_expiry_is_never_early_and_at_most_a_bucket_and_a_sweep_late() -> None:
    holds = HeldPulls[str](1000)
    rng = random.Random(7)
    deadlines: dict[HeldPull[str], int] = {}
    now = 10_000_000
    for _ in range(500):
        now += rng.randrange(40)
        timeout = rng.randrange(3_000)
        held = pull()
        assert holds.hold(held, now, timeout)
        deadlines[held] = now + timeout
        for expired in holds.take_expired(now, 1000):
            due = deadlines.pop(expired)
            assert due <= now <= due + 2 * BUCKET_MS + 40
    for expired in holds.take_expired(now + 5_000, 1000):
        del deadlines[expired]
    assert deadlines == {}
    assert len(holds) == 0


@given(st.integers(0, 10**13), st.integers(LONG_POLL_MS, 10**6))
def test_long_pulls_end_at_most_five_seconds_late(now: int, timeout: int) -> None:
    holds = HeldPulls[str](10)
    holds.hold(pull(), now, timeout)
    assert holds.take_expired(now + timeout - 1, 10) == []
    assert len(holds.take_expired(now + timeout + 5000 + BUCKET_MS, 10)) == 1


def test_long_pulls_end_together_every_five_seconds() -> None:
    holds = HeldPulls[str](100)
    for now in range(0, 15_000, 200):
        holds.hold(pull(now), now, LONG_POLL_MS)
    ends = [len(holds.take_expired(LONG_POLL_MS + now, 100)) for now in range(0, 20_200, BUCKET_MS)]
    assert len([count for count in ends if count]) == 3
    assert sum(ends) == 75


def test_a_woken_pull_does_not_expire() -> None:
    holds = HeldPulls[str](10)
    holds.hold(pull(), 0, 100)
    assert len(holds.take_arrived([("t", 0, 1, 0)])) == 1
    assert holds.take_expired(10_000, 10) == []


def test_a_closed_connection_takes_its_pulls_along() -> None:
    holds = HeldPulls[str](10)
    mine, other = pull(owner="a"), pull(owner="b")
    holds.hold(mine, 0, 100)
    holds.hold(other, 0, 100)
    holds.drop_owner("a")
    holds.drop_owner("nobody")
    assert holds.take_all() == [other]


def test_the_number_of_held_pulls_is_bounded() -> None:
    holds = HeldPulls[str](2)
    assert [holds.hold(pull(), 0, 100) for _ in range(3)] == [True, True, False]
    holds.take_arrived([("t", 0, 1, 0)])
    assert holds.hold(pull(), 0, 100)


def test_a_topic_gives_up_its_pulls() -> None:
    holds = HeldPulls[str](10)
    mine, other = pull(), pull(topic="u")
    holds.hold(mine, 0, 100)
    holds.hold(other, 0, 100)
    assert holds.take_topic("t") == [mine]
    assert len(holds) == 1


@given(st.lists(st.integers(0, 30_000), max_size=30), st.integers(1, 7))
def test_those_that_end_a_few_at_a_time_all_end(timeouts: list[int], at_most: int) -> None:
    holds = HeldPulls[str](100)
    for timeout in timeouts:
        holds.hold(pull(timeout), 0, timeout)
    expired: list[HeldPull[str]] = []
    while some := holds.take_expired(50_000, at_most):
        assert len(some) <= at_most
        expired += some
        assert holds.hold(pull(-1), 50_000, 100)  # as one of them pulls again
    assert sorted(each.offset for each in expired) == sorted(timeouts)
    assert len(holds) == len(holds.take_expired(50_000 + 100 + 2 * BUCKET_MS, 100))
