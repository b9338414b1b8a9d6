"""Requests about offsets: a queue's bounds, the offset of a time, a group's progress.

Who remembers an offset remembers the id of the topic with it, and names it in later requests: one of that name that was
made again has other messages there (`raptormq.protocol.topic_ids`).
Neighbours: `start_offset` and `queue_questions` ask, `commits` stores. Source: RocketMQ `MQClientAPIImpl`, codes 14,
15, 29, 30 and 31.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.client.answers import require_success
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.schema import Header, decode_header
from raptormq.protocol.topic_ids import ASK
from raptormq.transport.pool import ConnectionPool


class QueueOffset(NamedTuple):
    """An offset, and of which topic it is."""

    offset: int
    topic_id: str | None
    """`None` when the broker gives none."""


class OffsetRequests:
    """All of them go to the broker address that the caller found in the route. `topic_id` says which topic is meant;
    the default asks for its id.

    Every method raises `TransportError` when the broker does not answer within `timeout` seconds, and `ServerError`
    when it answers with an error code, 31002 when the topic has another id.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout

    async def min_offset(self, address: str, queue: MessageQueue, topic_id: str = ASK) -> QueueOffset:
        """Return the offset of the first message that is still there."""
        header = QueueRequestHeader(queue.topic, queue.queue_id, topic_id)
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header, topic_id)

    async def max_offset(self, address: str, queue: MessageQueue, topic_id: str = ASK) -> QueueOffset:
        """Return the offset that the next message will get; 0 for an empty queue."""
        header = QueueRequestHeader(queue.topic, queue.queue_id, topic_id)
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header, topic_id)

    async def offset_by_time(
        self, address: str, queue: MessageQueue, timestamp_ms: int, topic_id: str = ASK
    ) -> QueueOffset:
        """Return the offset of the first message stored at or after `timestamp_ms`, the maximum when all are older."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms, "LOWER", topic_id)
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, topic_id)

    async def committed(
        self, address: str, group: str, queue: MessageQueue, *, zero_on_young_topic: bool = False
    ) -> QueueOffset | None:
        """Return where the group stands, or `None` for a group that is new to the queue.

        With `zero_on_young_topic` the broker answers 0 for a new group while the first message of the queue is still
        there; brokers before RocketMQ 5 do so in any case.
        """
        zero = None if zero_on_young_topic else False
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, zero, ASK)
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._pool.request(address, command, self._timeout)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _told(answer, address, None)

    async def commit(
        self, address: str, group: str, queue: MessageQueue, offset: int, topic_id: str | None = None
    ) -> None:
        """Make `offset` the next one that the group consumes; returns when the broker has taken it."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset, topic_id)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        require_success(await self._pool.request(address, command, self._timeout), address)

    async def _offset(self, address: str, code: RequestCode, header: Header, topic_id: str) -> QueueOffset:
        answer = await self._pool.request(address, request(code, header), self._timeout)
        return _told(answer, address, None if topic_id == ASK else topic_id)


def _told(answer: RemotingCommand, address: str, meant: str | None) -> QueueOffset:
    header = decode_header(OffsetResponseHeader, require_success(answer, address).ext_fields)
    return QueueOffset(header.offset, header.topic_id or meant)
