"""Ranges, their parts and the limit of a micro-batch: no message is lost or repeated, and no queue is starved."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.planner import QueueRange, limit_offsets, pack_ranges, ranges_between, split_ranges
from raptormq.protocol.message import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]
Q0, Q1, Q2 = QUEUES[:3]

RANGES = st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 5000)), max_size=8).map(
    lambda bounds: [
        QueueRange(queue, start, start + rows) for queue, (start, rows) in zip(QUEUES, bounds, strict=False)
    ]
)


def test_ranges_between_leaves_out_what_is_empty_or_known_to_one_side_only() -> None:
    assert ranges_between({Q0: 1, Q1: 5}, {Q0: 4, Q1: 5, Q2: 9}) == [QueueRange(Q0, 1, 4)]
    assert ranges_between({Q0: 4}, {Q0: 1}) == []


def test_a_range_says_what_it_is() -> None:
    assert str(QueueRange(Q0, 3, 7)) == "t@broker-a:0[3, 7)"


@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 3000))
def test_parts_cover_the_ranges_exactly(
    ranges: list[QueueRange], min_partitions: int | None, max_rows: int | None
) -> None:
    parts = split_ranges(ranges, min_partitions, max_rows)
    for whole in ranges:
        of_queue = [part for part in parts if part.queue == whole.queue]
        assert of_queue[0].start == whole.start
        assert of_queue[-1].end == whole.end
        assert all(low.end == high.start for low, high in itertools.pairwise(of_queue))
        lengths = {part.rows for part in of_queue}
        assert min(lengths) > 0
        assert max(lengths) - min(lengths) <= 1
    assert len(parts) >= min(min_partitions or 0, sum(each.rows for each in ranges))
    assert all(part.rows <= max_rows for part in parts if max_rows)


def test_parts_go_to_the_longest_queues() -> None:
    parts = split_ranges([QueueRange(Q0, 0, 900), QueueRange(Q1, 0, 100)], min_partitions=4)
    assert [str(part) for part in parts] == [
        "t@broker-a:0[0, 300)",
        "t@broker-a:0[300, 600)",
        "t@broker-a:0[600, 900)",
        "t@broker-a:1[0, 100)",
    ]


def test_without_wishes_a_queue_is_a_task() -> None:
    ranges = [QueueRange(Q0, 0, 900), QueueRange(Q1, 0, 1)]
    assert split_ranges(ranges) == ranges
    assert split_ranges(ranges, min_partitions=1) == ranges
    assert split_ranges([]) == []


@given(RANGES, st.none() | st.integers(1, 3000))
def test_ranges_that_share_a_task_are_small_and_keep_their_order(
    ranges: list[QueueRange], max_rows: int | None
) -> None:
    tasks = pack_ranges(ranges, None, max_rows)
    assert [each for task in tasks for each in task] == ranges
    assert all(sum(each.rows for each in task) <= min(1000, max_rows or 1000) for task in tasks if len(task) > 1)
    assert pack_ranges(ranges, 1, max_rows) == [[each] for each in ranges]


def test_small_ranges_share_a_task() -> None:
    ranges = [QueueRange(queue, 0, rows) for queue, rows in zip(QUEUES, (400, 600, 1, 1000, 2000, 5, 5), strict=False)]
    assert [[each.rows for each in task] for task in pack_ranges(ranges)] == [[400, 600], [1], [1000], [2000], [5, 5]]
    assert [len(task) for task in pack_ranges(ranges, max_rows=10)] == [1, 1, 1, 1, 1, 2]


BACKLOGS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 10_000)), min_size=1, max_size=8)


@given(BACKLOGS, st.integers(1, 20_000))
def test_the_limit_is_used_up_and_never_exceeded(backlogs: list[tuple[int, int]], limit: int) -> None:
    start = {queue: offset for queue, (offset, _) in zip(QUEUES, backlogs, strict=False)}
    latest = {queue: offset + rows for queue, (offset, rows) in zip(QUEUES, backlogs, strict=False)}
    end = limit_offsets(start, latest, limit)
    granted = {queue: end[queue] - start[queue] for queue in start}
    assert sum(granted.values()) == min(limit, sum(rows for _, rows in backlogs))
    assert all(0 <= granted[queue] <= latest[queue] - start[queue] for queue in start)
    waiting = [queue for queue in start if latest[queue] > start[queue]]
    if len(waiting) <= limit:
        assert all(granted[queue] >= 1 for queue in waiting)


def test_the_limit_is_shared_in_proportion() -> None:
    end = limit_offsets({Q0: 0, Q1: 0, Q2: 7}, {Q0: 9001, Q1: 1001, Q2: 7}, 1002)
    assert end == {Q0: 901, Q1: 101, Q2: 7}


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_no_queue_starves_when_there_are_more_queues_than_rows(limit: int) -> None:
    position = dict.fromkeys(QUEUES, 0)
    latest = {queue: 10_000 if queue == Q0 else 3 for queue in QUEUES}
    for _ in range(3 * len(QUEUES)):
        position = limit_offsets(position, latest, limit)
    assert all(position[queue] == 3 for queue in QUEUES if queue != Q0)


def test_an_end_is_never_before_its_start() -> None:
    assert limit_offsets({Q0: 10, Q1: 0}, {Q0: 4, Q1: 100}, 5) == {Q0: 10, Q1: 5}
    assert limit_offsets({Q0: 10}, {Q0: 4}, 5) == {Q0: 10}
