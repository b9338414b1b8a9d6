"""Filters that the source applies, without Spark."""

from __future__ import annotations

import datetime as dt

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.pushdown import Pushed, push
from raptormq.protocol.message import MessageQueue

ALL: frozenset[str] = frozenset()
Q0, Q1 = (MessageQueue("t", "broker-a", number) for number in range(2))


def pushed(*filters: Filter, tags: frozenset[str] | None = ALL) -> Pushed:
    """Return the rows that remain if the source applies all filters."""
    found, left = push(filters, tags=tags)
    assert left == []
    return found


def test_queues() -> None:
    assert pushed(EqualTo(("topic",), "t"), EqualTo(("queueId",), 1)).clip(QueueRange(Q0, 0, 9)) is None
    assert pushed(In(("queueId",), (1, 2)), In(("queueId",), (1, None))).takes(Q1)
    assert not pushed(In(("brokerName",), ("broker-b",))).takes(Q1)
    assert pushed(*(IsNotNull((name,)) for name in ("topic", "brokerName", "queueId", "queueOffset"))) == Pushed()


def test_offsets() -> None:
    whole = QueueRange(Q0, 10, 20)
    cases: list[tuple[Filter, tuple[int, int] | None]] = [
        (EqualTo(("queueOffset",), 12), (12, 13)),
        (GreaterThan(("queueOffset",), 12), (13, 20)),
        (GreaterThanOrEqual(("queueOffset",), 12), (12, 20)),
        (LessThan(("queueOffset",), 12), (10, 12)),
        (LessThanOrEqual(("queueOffset",), 12), (10, 13)),
        (GreaterThan(("queueOffset",), 19), None),
        (LessThan(("queueOffset",), 10), None),
    ]
    for condition, expected in cases:
        left = pushed(condition).clip(whole)
        assert (None if left is None else (left.start, left.end)) == expected
    both = pushed(GreaterThan(("queueOffset",), 12), LessThan(("queueOffset",), 15), LessThan(("queueOffset",), 18))
    assert both.clip(whole) == QueueRange(Q0, 13, 15)


def test_tags_narrow_those_that_are_subscribed() -> None:
    assert pushed(In(("tags",), ("a", "b"))).tags == frozenset({"a", "b"})
    assert pushed(In(("tags",), ("a", "b")), tags=frozenset({"b", "c"})).tags == frozenset({"b"})
    nothing = pushed(EqualTo(("tags",), "a"), EqualTo(("tags",), "b"))
    assert nothing.tags == ALL
    assert nothing.clip(QueueRange(Q0, 0, 9)) is None


def test_times_are_a_little_too_wide_and_looked_at_again() -> None:
    at = dt.datetime(1970, 1, 1, 0, 0, 1, 500_700, dt.UTC)
    cases: list[tuple[Filter, tuple[int | None, int | None]]] = [
        (EqualTo(("storeTimestamp",), at), (1500, 1502)),
        (GreaterThan(("storeTimestamp",), at), (1500, None)),
        (GreaterThanOrEqual(("storeTimestamp",), at), (1500, None)),
        (LessThan(("storeTimestamp",), at), (None, 1502)),
        (LessThanOrEqual(("storeTimestamp",), at), (None, 1502)),
    ]
    for condition, bounds in cases:
        found, left = push([condition], tags=ALL)
        assert (found.first_ms, found.end_ms) == bounds
        assert left == [condition]


def test_the_rest_is_left_to_spark() -> None:
    others: list[Filter] = [
        EqualTo(("key",), "k"),
        IsNotNull(("tags",)),
        Not(EqualTo(("queueId",), 1)),
        GreaterThan(("queueId",), 1),
        GreaterThan(("tags",), "a"),
        StringStartsWith(("tags",), "a"),
        EqualTo(("tags",), "a||b"),
        EqualTo(("tags",), " a"),
        EqualTo(("tags",), "*"),
        EqualTo(("tags",), ""),
        EqualTo(("properties", "x"), "a"),
        EqualTo(("queueOffset",), None),
        EqualTo(("storeTimestamp",), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - as of a column without a zone
    ]
    assert push(others, tags=ALL) == (Pushed(), others)
    by_tag: Filter = EqualTo(("tags",), "a")
    assert push([by_tag], tags=None) == (Pushed(), [by_tag])
