"""Filters of a batch query that the source takes over from Spark. Pure.

| column | filters | what becomes of them |
|---|---|---|
| topic, brokerName, queueId | `=`, `IN` | only these queues are read |
| queueOffset | `=`, `<`, `<=`, `>`, `>=` | only these offsets |
| tags | `=`, `IN` | brokers filter, as with option `subExpression` |
| storeTimestamp | `=`, `<`, `<=`, `>`, `>=` | the broker's index by time bounds the offsets; Spark looks at each row |

Spark hands filters over only where `spark.sql.python.filterPushdown.enabled` is true, and fails every query of a source
that asks for them where it is not: `pushdown_is_on` tells.
Neighbour: `reader` plans with the result.
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
    """Whether this process was started by Spark to hand filters over: only with the setting it has that module."""
    return _WORKER_MODULE in sys.modules


@dataclass(frozen=True)
class Pushed:
    """What the filters of a query leave to be read."""

    topics: frozenset[str] | None = None
    """`None` is any, here and below."""
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = _MAX_OFFSET
    """Exclusive."""
    first_ms: int | None = None
    """Nothing that was stored before."""
    end_ms: int | None = None
    """Nothing that was stored then or later."""
    tags: frozenset[str] | None = None

    def takes(self, queue: MessageQueue) -> bool:
        """Whether a queue is to be read."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def clip(self, wanted: QueueRange) -> QueueRange | None:
        """Return what is left of a range, as far as queue and offsets say it."""
        start, end = max(wanted.start, self.first_offset), min(wanted.end, self.end_offset)
        if not self.takes(wanted.queue) or start >= end or self.tags == frozenset():
            return None
        return QueueRange(wanted.queue, start, end)


def push(filters: Iterable[Filter], *, tags: frozenset[str] | None) -> tuple[Pushed, list[Filter]]:
    """Return what the filters leave, and those that Spark has to apply itself.

    Args:
        filters: all of which have to be true.
        tags: that option `subExpression` names, empty for all; `None` where it is no expression of tags.
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
    """Whether a tag means itself in an expression of tags."""
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
    """Bounds in whole milliseconds, a little too wide: Spark looks again."""
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
    """Return first and end of what a comparison leaves, the end exclusive and by `step` behind the last value."""
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
