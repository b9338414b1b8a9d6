"""Held pops: which are woken, in which order, and at what cost."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest

from raptormq.broker.pop.held_pops import HeldPop, HeldPops

RETRY = "%RETRY%g_t"


def armed(waiters: HeldPops, *queues: int, group: str = "g") -> list[HeldPop]:
    found = [HeldPop("t", group, queue) for queue in queues]
    for each in found:
        waiters.arm(each)
    return found


def woken_by(waiters: HeldPops, all_waiters: list[HeldPop], topic: str, queue_id: int) -> list[int]:
    """Let a message arrive. Return the numbers of the pops that it wakes."""
    before = [waiter.woken.is_set() for waiter in all_waiters]
    waiters.arrived([(topic, queue_id, 1, 0)])
    return [number for number, waiter in enumerate(all_waiters) if waiter.woken.is_set() != before[number]]


@pytest.mark.parametrize(
    ("topic", "queue_id", "order"),
    [("t", 0, [1, 2, 4]), ("t", 1, [0, 1, 4]), ("t", 7, [1, 4]), (RETRY, 0, [0, 1, 2, 3, 4]), ("u", 0, [])],
)
def test_the_one_that_waits_longest_is_woken_of_those_that_want_the_queue(
    topic: str, queue_id: int, order: list[int]
) -> None:
    waiters = HeldPops(10)
    found = armed(waiters, 1, -1, 0, 2, -1)
    assert [woken_by(waiters, found, topic, queue_id) for _ in range(5)] == [
        *([number] for number in order), *[[]] * (5 - len(order))
    ]  # fmt: skip


def test_whoever_waits_longest_for_any_queue_is_woken_by_what_may_be_in_any() -> None:
    waiters = HeldPops(10)
    found = armed(waiters, 3, -1, 2)
    for number in range(3):
        waiters.wake("t", "g", -1)
        assert [waiter.woken.is_set() for waiter in found] == [each <= number for each in range(3)]


def test_one_of_each_group_is_woken() -> None:
    waiters = HeldPops(10)
    found = armed(waiters, 0, 0) + armed(waiters, 0, -1, group="h")
    assert woken_by(waiters, found, "t", 0) == [0, 2]


def test_who_looks_again_keeps_its_place_unless_it_was_woken() -> None:
    waiters = HeldPops(10)
    found = armed(waiters, 0, 0, 0)
    waiters.arm(found[0])  # like an orderly pop from time to time
    assert woken_by(waiters, found, "t", 0) == [0]
    waiters.arm(found[0])
    assert [woken_by(waiters, found, "t", 0) for _ in range(3)] == [[1], [2], [0]]


def test_they_are_counted_by_their_queue_and_nothing_is_left_of_them() -> None:
    waiters = HeldPops(10)
    found = armed(waiters, 0, 1, 1, -1, -2)
    assert [waiters.count("t", "g", queue) for queue in (0, 1, 2, -1, -7)] == [1, 2, 0, 2, 2]
    assert (waiters.count("u", "g", 0), waiters.count("t", "h", 0)) == (0, 0)
    for each in found * 2:
        waiters.disarm(each)
    assert waiters._groups == {}


def calls_of_an_arrival(others: int) -> int:
    """Return the number of functions that an arrival calls while pops wait for another queue."""
    waiters = HeldPops(10_000)
    armed(waiters, *[1] * others, 0)
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # a garbage collection calls other functions, such as callbacks of hypothesis
    sys.setprofile(count)
    try:
        waiters.arrived([("t", 0, 1, 0)])
    finally:
        sys.setprofile(None)
        gc.enable()
    assert waiters.count("t", "g", 0) == 0
    return calls


def test_an_arrival_looks_at_nobody_who_waits_for_another_queue() -> None:
    assert calls_of_an_arrival(1_000) == calls_of_an_arrival(1)


@pytest.mark.parametrize("queue_id", [0, -1])
def test_who_waits_for_a_retry_topic_is_woken_by_it(queue_id: int) -> None:
    waiters = HeldPops(10)
    waiter = HeldPop(RETRY, "g", queue_id)
    waiters.arm(waiter)
    waiters.arrived([(RETRY, 0, 1, 0)])
    assert waiter.woken.is_set()
    waiters.arm(waiter)
    waiters.disarm(waiter)
    assert waiters.count(RETRY, "g", queue_id) == 0


def test_a_message_wakes_the_first_that_takes_its_tag() -> None:
    waiters = HeldPops(10)
    found = [HeldPop("t", "g", 0, frozenset({1})), HeldPop("t", "g", -1, frozenset({2})), HeldPop("t", "g", 0)]
    for each in found:
        waiters.arm(each)
    waiters.arrived([("t", 0, 1, 2)])
    assert [each.woken.is_set() for each in found] == [False, True, False]
    waiters.arrived([("t", 0, 1, 3)])
    assert [each.woken.is_set() for each in found] == [False, True, True]
    waiters.arrived([(RETRY, 0, 1, 3)])
    assert found[0].woken.is_set(), "a returning message matches every filter"
