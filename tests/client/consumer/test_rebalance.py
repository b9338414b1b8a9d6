"""Queue allocation: the arithmetic of RocketMQ's AVG strategy, and what it promises for any group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client.consumer.rebalance import allocate_averagely
from raptormq.protocol.message import MessageQueue

queues = st.sets(st.builds(MessageQueue, st.just("t"), st.sampled_from(["a", "b", "c"]), st.integers(0, 20)))
members = st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9)


def some_queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "broker-a", number) for number in range(count)]


@given(queues, members)
def test_every_queue_goes_to_exactly_one_member(all_queues: set[MessageQueue], group: set[str]) -> None:
    shares = [allocate_averagely(all_queues, group, member) for member in group]
    assert sorted(queue for share in shares for queue in share) == sorted(all_queues)


@given(queues, members)
def test_shares_differ_by_at_most_one(all_queues: set[MessageQueue], group: set[str]) -> None:
    sizes = [len(allocate_averagely(all_queues, group, member)) for member in group]
    assert max(sizes) - min(sizes) <= 1


@given(st.permutations(some_queues(7)), st.permutations(["x", "y", "z"]))
def test_the_order_of_the_inputs_does_not_matter(all_queues: list[MessageQueue], group: list[str]) -> None:
    assert allocate_averagely(all_queues, group, "y") == some_queues(7)[3:5]


@given(queues, members)
def test_agrees_with_the_formula_of_the_java_client(all_queues: set[MessageQueue], group: set[str]) -> None:
    # The formula as the reference states it, with its own special cases, against our simpler form of it.
    ordered = sorted(all_queues)
    ids = sorted(group, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
    for index, member in enumerate(ids):
        rest = len(ordered) % len(ids)
        gets_more = rest > 0 and index < rest
        size = 1 if len(ordered) <= len(ids) else len(ordered) // len(ids) + gets_more
        start = index * size if gets_more else index * size + rest
        expected = [ordered[start + i] for i in range(max(0, min(size, len(ordered) - start)))]
        assert allocate_averagely(all_queues, group, member) == expected


@pytest.mark.parametrize(
    ("count", "group", "expected"),
    [
        (8, ["a", "b", "c"], [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, ["a", "b"], [[0, 1], [2, 3]]),
        (2, ["a", "b", "c"], [[0], [1], []]),
        (1, ["a"], [[0]]),
    ],
)
def test_examples(count: int, group: list[str], expected: list[list[int]]) -> None:
    shares = [[queue.queue_id for queue in allocate_averagely(some_queues(count), group, member)] for member in group]
    assert shares == expected


def test_queue_numbers_are_ordered_as_numbers() -> None:
    assert allocate_averagely(some_queues(12), ["a", "b"], "a") == some_queues(6)


def test_members_are_ordered_by_utf16_units_as_in_java() -> None:
    beyond_the_basic_plane, private_use = "\U0001f600", "\uf000"  # as UTF-16 the first one comes first
    assert allocate_averagely(some_queues(2), [private_use, beyond_the_basic_plane], private_use) == some_queues(2)[1:]


def test_a_client_that_is_no_member_reads_nothing() -> None:
    assert allocate_averagely(some_queues(4), ["a"], "b") == []
