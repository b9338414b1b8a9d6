"""Strategies of queue allocation: equal to those of the official client, with their guarantees for any group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    ConsumerConfig,
    MachineRoomNearby,
    MessageQueue,
)
from raptormq.client.allocation import room_before_at
from raptormq.errors import ConfigError

GOLDEN = Path(__file__).parents[1] / "golden" / "allocations.json"
allocate_averagely = Averagely().allocate

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
    # The formula of the reference with its special cases, compared with a simpler form.
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
    beyond_the_basic_plane, private_use = "\U0001f600", "\uf000"  # in UTF-16 the first one is less
    assert allocate_averagely(some_queues(2), [private_use, beyond_the_basic_plane], private_use) == some_queues(2)[1:]


def test_a_client_that_is_no_member_reads_nothing() -> None:
    assert allocate_averagely(some_queues(4), ["a"], "b") == []


def strategy_of(case: dict[str, Any], ordered: list[MessageQueue]) -> AllocateStrategy:
    match case["strategy"]:
        case "AVG":
            return Averagely()
        case "AVG_BY_CIRCLE":
            return AveragelyByCircle()
        case "CONSISTENT_HASH":
            return ConsistentHash(case["nodes"])
        case "MACHINE_ROOM":
            return ByMachineRoom(case["rooms"])
        case "NEARBY_AVG":
            return MachineRoomNearby(room_before_at)
        case "NEARBY_CIRCLE":
            return MachineRoomNearby(room_before_at, within=AveragelyByCircle())
        case _:
            return ByConfig([ordered[index] for index in case["configured"]])


def test_shares_are_those_of_the_official_client() -> None:
    cases: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(cases) == 140
    for case in cases:
        ordered = [MessageQueue(*queue) for queue in case["queues"]]
        strategy = strategy_of(case, ordered)
        for member, share in zip(case["members"], case["shares"], strict=True):
            ours = strategy.allocate(reversed(ordered), [*reversed(case["members"]), member], member)
            assert ours == [ordered[index] for index in share], (case["strategy"], member)


EVERYWHERE = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    ConsistentHash(1),
    MachineRoomNearby(lambda member: member[0], broker_room=lambda queue: queue.broker_name),
]


@pytest.mark.parametrize("strategy", EVERYWHERE, ids=lambda strategy: type(strategy).__name__)
@given(queues, members)
def test_every_strategy_gives_each_queue_to_one_member(
    strategy: AllocateStrategy, all_queues: set[MessageQueue], group: set[str]
) -> None:
    shares = [strategy.allocate(all_queues, group, member) for member in group]
    assert sorted(queue for share in shares for queue in share) == sorted(all_queues)


@given(queues, st.sets(st.text("ab", min_size=1, max_size=4), min_size=2, max_size=9))
def test_few_queues_move_on_a_ring(all_queues: set[MessageQueue], group: set[str]) -> None:
    strategy, leaving = ConsistentHash(), min(group)
    for member in group - {leaving}:
        before = set(strategy.allocate(all_queues, group, member))
        assert before <= set(strategy.allocate(all_queues, group - {leaving}, member))


def test_a_configured_member_shares_the_retries() -> None:
    retries = [MessageQueue("%RETRY%g", "b", 0)]
    strategy = ByConfig([MessageQueue("t", "b", 3)])
    assert strategy.allocate(retries, ["a", "b"], "a") == retries
    assert strategy.allocate([MessageQueue("t", "b", number) for number in range(4)], ["a", "b"], "b") == [
        MessageQueue("t", "b", 3)
    ]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ConsistentHash(0), "virtual_nodes must be a whole number above 0, at most 1000"),
        (lambda: ConsistentHash(1001), "at most 1000"),
        (lambda: ByMachineRoom([]), "non-empty collection"),
        (lambda: ByMachineRoom("east"), "must be a non-empty collection of names"),
        (lambda: ByMachineRoom([1]), "a room must be text"),  # type: ignore[list-item]
        (lambda: MachineRoomNearby("east"), "consumer_room must be a function"),  # type: ignore[arg-type]
        (lambda: ByConfig(["t"]), "a queue of ByConfig must be MessageQueue"),  # type: ignore[list-item]
        (lambda: ConsumerConfig(allocate_strategy=cast("Any", "AVG")), "allocate_strategy must be AllocateStrategy"),
    ],
)
def test_wrong_settings(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_a_room_has_a_name() -> None:
    with pytest.raises(ConfigError, match="the machine room of member b must be non-empty text, not ''"):
        MachineRoomNearby(lambda _: "").allocate(some_queues(1), ["b"], "b")
