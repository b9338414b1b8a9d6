"""Headers of QUERY_MESSAGE (12) and QUERY_CONSUME_QUEUE (321)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class QueryMessageRequestHeader(Header):
    """12: find the newest ``max_num`` messages of ``topic`` with ``key`` that were stored between two times (ms). With
    ``unique_key_query`` the key is a unique key.
    """

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool = wire("_UNIQUE_KEY_QUERY", False)


@dataclass(slots=True)
class QueryMessageResponseHeader(Header):
    """12: store time and log offset of the newest message in the key index."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@dataclass(slots=True)
class QueryConsumeQueueRequestHeader(Header):
    """321: read ``count`` items of a queue from ``index`` on. With a group the response also contains the subscription
    of the group to the topic.
    """

    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None
