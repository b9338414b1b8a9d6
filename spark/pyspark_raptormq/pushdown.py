"""Filter pushdown for batch queries. No I/O.

| column | filters | effect |
|---|---|---|
| topic, brokerName, queueId | `=`, `IN` | only these queues are read |
| queueOffset | `=`, `<`, `<=`, `>`, `>=` | only these offsets are read |
| tags | `=`, `IN` | brokers filter, as with option `subExpression` |
| storeTimestamp | `=`, `<`, `<=`, `>`, `>=` | the broker's time index limits the offsets; Spark filters again |

Spark pushes filters only if `spark.sql.python.filterPushdown.enabled` is true. If it is false, Spark fails every query
of a source that supports pushdown; `pushdown_is_on` detects the setting. Used by `reader`.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_raptormq.planner import QueueRange
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.tags import SUBSCRIBE_ALL, TAG_SEPARATOR

_WORKER_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
_MAX_OFFSET = 2**63 - 1
T = TypeVar("T")


def pushdown_is_on() -> bool:
    """Return whether Spark pushes filters: only then it has loaded its pushdown worker module into this process."""
    return _WORKER_MODULE in sys.modules


@dataclass(frozen=True)
class Pushed:
    """Restrictions from pushed filters. A field that is None restricts nothing."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = _MAX_OFFSET
    """End of the offsets to read, exclusive."""
    first_ms: int | None = None
    """Earliest store time in ms since 1970, inclusive."""
    end_ms: int | None = None
    """Latest store time in ms since 1970, exclusive."""
    tags: frozenset[str] | None = None

    def takes(self, queue: MessageQueue) -> bool:
        """Return whether the filters permit messages of a queue."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def clip(self, wanted: QueueRange) -> QueueRange | None:
        """Return the part of a range that queue and offset filters permit; None if it is empty."""
        start, end = max(wanted.start, self.first_offset), min(wanted.end, self.end_offset)
        if not self.takes(wanted.queue) or start >= end or self.tags == frozenset():
            return None
        return QueueRange(wanted.queue, start, end)


def push(filters: Iterable[Filter], *, tags: frozenset[str] | None) -> tuple[Pushed, list[Filter]]:
    """Return the restrictions, and the filters that Spark must still apply.

    Args:
        filters: filters combined with AND.
        tags: tags of option `subExpression`; empty for all; None if the option is an SQL92 expression.
    """
    pushed, left = Pushed(), []
    for each in filters:
        narrowed = _narrowed(pushed, each, tags)
        if narrowed is not None:
            pushed = narrowed
        if narrowed is None or _column(each) == "storeTimestamp":
            left.append(each)
    return pushed, left


def _narrowed(pushed: Pushed, each: Filter, tags: frozenset[str] | None) -> Pushed | None:
    column = _column(each)
    if isinstance(each, IsNotNull):
        return pushed if column in _NEVER_NULL else None
    if column == "queueOffset":
        return _by_offset(pushed, each)
    if column == "storeTimestamp":
        return _by_time(pushed, each)
    values = _values(each)
    if values is None:
        return None
    if column == "tags":
        return _by_tags(pushed, values, tags)
    if column == "topic":
        return replace(pushed, topics=_both(pushed.topics, values))
    if column == "brokerName":
        return replace(pushed, brokers=_both(pushed.brokers, values))
    if column == "queueId":
        return replace(pushed, queue_ids=_both(pushed.queue_ids, values))
    return None


def _column(each: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _both(known: frozenset[T] | None, values: frozenset[T]) -> frozenset[T]:
    return values if known is None else known & values


def _values(each: Filter) -> frozenset[Any] | None:
    if isinstance(each, EqualTo):
        return frozenset({each.value})
    return frozenset(each.value) - {None} if isinstance(each, In) else None


def _by_tags(pushed: Pushed, values: frozenset[Any], subscribed: frozenset[str] | None) -> Pushed | None:
    if subscribed is None or not all(isinstance(value, str) and _is_plain(value) for value in values):
        return None
    known = pushed.tags if pushed.tags is not None else (subscribed or values)
    return replace(pushed, tags=frozenset(values & known))


def _is_plain(tag: str) -> bool:
    """Return whether a tag can be used literally in a tag expression."""
    return bool(tag) and tag == tag.strip() and TAG_SEPARATOR not in tag and tag != SUBSCRIBE_ALL


def _by_offset(pushed: Pushed, each: Filter) -> Pushed | None:
    bounds = _bounds(each, lambda value: value if isinstance(value, int) else None, 1)
    if bounds is None:
        return None
    first, end = bounds
    return replace(
        pushed,
        first_offset=pushed.first_offset if first is None else max(pushed.first_offset, first),
        end_offset=pushed.end_offset if end is None else min(pushed.end_offset, end),
    )


def _by_time(pushed: Pushed, each: Filter) -> Pushed | None:
    """Restrict by time. The bounds are whole milliseconds and slightly too wide; Spark filters again."""
    bounds = _bounds(each, _milliseconds, 2)
    if bounds is None:
        return None
    first, end = bounds
    firsts = [value for value in (pushed.first_ms, first) if value is not None]
    ends = [value for value in (pushed.end_ms, end) if value is not None]
    return replace(pushed, first_ms=max(firsts, default=None), end_ms=min(ends, default=None))


def _milliseconds(value: object) -> int | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _bounds(each: Filter, number: Callable[[object], int | None], step: int) -> tuple[int | None, int | None] | None:
    """Return the range that a comparison permits, as first and exclusive end. A `step` of 2 widens the end by one, for
    values that were rounded down."""
    value = number(getattr(each, "value", None))
    if value is None:
        return None
    whole = step == 1
    match each:
        case EqualTo():
            return value, value + step
        case GreaterThan():
            return value + (1 if whole else 0), None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value if whole else value + step
        case LessThanOrEqual():
            return None, value + step
    return None
