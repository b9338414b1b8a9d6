"""Selection of the queue for a send."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client.producer.queue_selector import MANY_QUEUES, STICKY_S, BrokerHealth, RoundRobin, pick_by_key
from raptormq.protocol.message import MessageQueue

MANY = [MessageQueue("t", "a", number) for number in range(MANY_QUEUES)]
QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(4)]


def test_round_robin_uses_every_queue_equally() -> None:
    turns = RoundRobin(3)
    assert set(Counter(turns.pick(QUEUES) for _ in range(16)).values()) == {2}


def test_round_robin_avoids_failed_brokers() -> None:
    turns = RoundRobin()
    assert {turns.pick(QUEUES, frozenset({"a"})).broker_name for _ in range(8)} == {"b"}


def test_round_robin_uses_a_failed_broker_rather_than_none() -> None:
    turns = RoundRobin()
    assert {turns.pick(QUEUES, frozenset({"a", "b"})) for _ in range(8)} == set(QUEUES)


def test_batches_that_follow_each_other_stay_with_one_of_many_queues() -> None:
    turns, step = RoundRobin(3), STICKY_S / 3.5
    picked = [turns.pick_for_batch(MANY, now=100 + number * step).queue_id for number in range(12)]
    assert picked == [3] * 4 + [4] * 4 + [5] * 4


def test_batches_that_follow_slowly_take_every_queue_in_turn() -> None:
    turns = RoundRobin()
    assert [turns.pick_for_batch(MANY, now=number * 2 * STICKY_S).queue_id for number in range(70)] == [
        number % MANY_QUEUES for number in range(70)
    ]


def test_batches_take_few_queues_in_turn_however_fast() -> None:
    turns = RoundRobin()
    assert [turns.pick_for_batch(QUEUES, now=1.0) for _ in range(8)] == QUEUES


def test_messages_do_not_stay_and_do_not_move_the_batches_that_do() -> None:
    turns = RoundRobin()
    first = turns.pick_for_batch(MANY, now=1.0)
    assert len({turns.pick(MANY) for _ in range(MANY_QUEUES)}) == MANY_QUEUES
    assert turns.pick_for_batch(MANY, now=1.0) == first


def test_a_stay_ends_with_its_queue() -> None:
    turns = RoundRobin(MANY_QUEUES)
    turns.pick_for_batch([*MANY, *QUEUES], now=1.0)
    assert turns.pick_for_batch(MANY, now=1.0) in MANY


def test_no_queue_cannot_be_picked() -> None:
    with pytest.raises(IndexError):
        RoundRobin().pick([])
    with pytest.raises(IndexError):
        RoundRobin().pick_for_batch([], 0.0)
    with pytest.raises(IndexError):
        pick_by_key([], "k")


@given(st.text())
def test_a_key_keeps_its_queue(key: str) -> None:
    assert pick_by_key(QUEUES, key) == pick_by_key(list(QUEUES), key)


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [("order-1", -1207111310), ("", 0), ("a", 97), ("polygenelubricants", -(2**31))],
)
def test_a_key_has_the_queue_that_java_gives_it(key: str, hash_code: int) -> None:
    assert pick_by_key(QUEUES[:7], key) == QUEUES[abs(hash_code) % 7]


def test_keys_spread_over_the_queues() -> None:
    assert {pick_by_key(QUEUES, f"key-{number}") for number in range(200)} == set(QUEUES)


def test_a_failed_broker_is_avoided_for_the_set_time_or_until_it_answers() -> None:
    health = BrokerHealth(avoid_seconds=30)
    health.failed("a", now=100)
    health.failed("b", now=110)
    assert health.avoided(now=120) == {"a", "b"}
    assert health.avoided(now=130) == {"b"}
    health.succeeded("b")
    assert health.avoided(now=130) == frozenset()
