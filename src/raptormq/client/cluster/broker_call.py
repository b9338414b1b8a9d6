"""Requests to the broker of a queue: finding that broker, and querying its offsets.

`call_broker` looks up the broker of a queue in the route, and refreshes the route when the broker has moved. A broker
that restarts on Kubernetes often gets another address, which the name servers have within seconds. The former leader of
a Dledger group does not serve (code 14), and the name servers have the address of the next one. If a broker reports
that the topic does not exist, this is recorded for the route, because the topic may have been deleted.

`OffsetRequests` queries the bounds of a queue, the offset of a time, and the committed offset and the members of a
group. An offset is kept together with the id of its topic (`QueueOffset`), and later requests name the id: after a
topic was deleted and recreated, the same offset means another message (`raptormq.protocol.topic_ids`).

See also: `cluster.routes` knows addresses; `consumer.pull_consumer` and `consumer.queue_reader` call brokers;
`consumer.queue_reader` and `consumer.queue_bounds` query offsets; `consumer.offset_commits` commits them. Source:
RocketMQ `findBrokerAddressInSubscribe`; `MQClientAPIImpl`, codes 14, 15, 29, 30, 31 and 38.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from raptormq.client.cluster.metadata import require_success
from raptormq.client.cluster.routes import ROUTE_ERRORS, RouteTable
from raptormq.errors import ConnectError, ConnectionClosed, NoRoute, ServerError
from raptormq.protocol.bodies.heartbeat import decode_consumer_ids
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.schema import Header, decode_header
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.transport.pool import ConnectionPool

T = TypeVar("T")


async def call_broker(
    routes: RouteTable, queue: MessageQueue, call: Callable[[str], Awaitable[T]], broker_id: int = MASTER_ID
) -> T:
    """Return `await call(address)` for the broker of `queue`. The call is repeated once if the broker has moved.

    `broker_id` is the preferred replica of the broker; another replica is used if the route does not contain it.

    Raises:
        NoRoute: the topic does not exist, or no replica of the broker is up.
        TransportError: the broker, or every name server, does not respond.
    """
    try:
        return await _call_broker(routes, queue, call, broker_id)
    except ServerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            routes.note_missing(queue.topic, queue.broker_name)
        raise


async def _call_broker(
    routes: RouteTable, queue: MessageQueue, call: Callable[[str], Awaitable[T]], broker_id: int
) -> T:
    address = (await routes.find(queue.topic)).replica(queue.broker_name, broker_id)
    if address is not None:
        try:
            return await call(address)
        except (ConnectError, ConnectionClosed, ServerError) as error:
            if isinstance(error, ServerError) and error.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                raise
            moved = await _refreshed_address(routes, queue, broker_id)
            if moved is None or moved == address:
                raise
            return await call(moved)
    moved = await _refreshed_address(routes, queue, broker_id)
    if moved is None:
        raise NoRoute(f"no replica of broker {queue.broker_name} is up")
    return await call(moved)


async def _refreshed_address(routes: RouteTable, queue: MessageQueue, broker_id: int) -> str | None:
    try:
        found = await routes.refresh(queue.topic)
    except ROUTE_ERRORS:
        return None
    return found.replica(queue.broker_name, broker_id) if found is not None else None


class QueueOffset(NamedTuple):
    """An offset with the id of its topic."""

    offset: int
    topic_id: str | None
    """`None` when the broker has no ids."""


class OffsetRequests:
    """Offset requests to a broker address, which the caller has looked up in the route.

    `topic_id` is the expected id of the topic; by default the id is queried.

    Every method raises `TransportError` when the broker does not respond within `timeout` seconds, and `ServerError`
    when it responds with an error code, 31002 when the topic has another id.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout

    async def min_offset(self, address: str, queue: MessageQueue, topic_id: str = TOPIC_ID_QUERY) -> QueueOffset:
        """Return the offset of the first message that is still stored."""
        header = QueueRequestHeader(queue.topic, queue.queue_id, topic_id)
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header, topic_id)

    async def max_offset(self, address: str, queue: MessageQueue, topic_id: str = TOPIC_ID_QUERY) -> QueueOffset:
        """Return the end offset, which the next message will get; 0 for a queue that never had a message."""
        header = QueueRequestHeader(queue.topic, queue.queue_id, topic_id)
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header, topic_id)

    async def offset_by_time(
        self, address: str, queue: MessageQueue, timestamp_ms: int, topic_id: str = TOPIC_ID_QUERY
    ) -> QueueOffset:
        """Return the offset of the first message stored at or after `timestamp_ms`, or the maximum offset if all are
        older.
        """
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms, "LOWER", topic_id)
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, topic_id)

    async def committed(
        self, address: str, group: str, queue: MessageQueue, *, zero_on_young_topic: bool = False
    ) -> QueueOffset | None:
        """Return the committed offset of a group; None if it has not committed in this queue.

        With `zero_on_young_topic` the broker returns 0 for a new group while the first message of the queue is still
        stored; brokers before RocketMQ 5 always do.
        """
        zero = None if zero_on_young_topic else False
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, zero, TOPIC_ID_QUERY)
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        response = await self._pool.request(address, command, self._timeout)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _decode_offset(response, address, None)

    async def members(self, address: str, group: str) -> list[str]:
        """Return the client ids of the members of a group that are connected to a broker."""
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(group))
        response = await self._pool.request(address, command, self._timeout)
        if response.code == ResponseCode.SYSTEM_ERROR:  # the response for a group without members
            return []
        return decode_consumer_ids(require_success(response, address).body)

    async def commit(
        self, address: str, group: str, queue: MessageQueue, offset: int, topic_id: str | None = None
    ) -> None:
        """Commit `offset`, the next offset to consume, and wait for the response of the broker."""
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset, topic_id)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        require_success(await self._pool.request(address, command, self._timeout), address)

    async def _offset(self, address: str, code: RequestCode, header: Header, topic_id: str) -> QueueOffset:
        response = await self._pool.request(address, request(code, header), self._timeout)
        return _decode_offset(response, address, None if topic_id == TOPIC_ID_QUERY else topic_id)


def _decode_offset(response: RemotingCommand, address: str, meant: str | None) -> QueueOffset:
    header = decode_header(OffsetResponseHeader, require_success(response, address).ext_fields)
    return QueueOffset(header.offset, header.topic_id or meant)
