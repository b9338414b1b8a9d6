"""Headers of offset requests: 14, 15 (offsets of a group), 29, 30, 31, 32 (bounds of a queue), 33 (a record by offset).
For ``topic_id`` see :mod:`~raptormq.protocol.topic_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class QueryConsumerOffsetRequestHeader(Header):
    """14: get the committed offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    topic_id: str | None = None


@dataclass(slots=True)
class UpdateConsumerOffsetRequestHeader(Header):
    """15: commit the next offset that a group will consume."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    topic_id: str | None = None


@dataclass(slots=True)
class SearchOffsetRequestHeader(Header):
    """29: find an offset by time. ``boundary_type`` LOWER is the first message at or after ``timestamp`` (ms), UPPER
    the last one at or before it.
    """

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None
    topic_id: str | None = None


@dataclass(slots=True)
class QueueRequestHeader(Header):
    """30, 31, 32: a queue."""

    topic: str
    queue_id: int
    topic_id: str | None = None


@dataclass(slots=True)
class OffsetResponseHeader(Header):
    """14, 29, 30, 31: one offset."""

    offset: int
    topic_id: str | None = None


@dataclass(slots=True)
class TimestampResponseHeader(Header):
    """32: a store time in ms, -1 if the queue is empty."""

    timestamp: int


@dataclass(slots=True)
class ViewMessageRequestHeader(Header):
    """33: a physical offset."""

    offset: int
    topic: str | None = None
