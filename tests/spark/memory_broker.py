"""A name server and broker in memory, on a thread of the test, for faults that cannot be caused at a real broker.

It serves the request codes of readers, and can lose the beginning or the end of a queue, assign new offsets in a
topic, and refuse requests. Tests of ordinary reads use `raptormq dev`.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import uvloop

from raptormq.protocol.bodies.heartbeat import encode_consumer_ids
from raptormq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from raptormq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from raptormq.protocol.headers.route import RouteRequestHeader
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.protocol.tags import parse_expression, tag_hash
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router
from raptormq.transport.server import Server
from raptormq.transport.tls.contexts import ServerTls

BROKER = "broker-a"


@dataclass
class MemoryQueue:
    """A queue whose messages have consecutive offsets from `first` on."""

    first: int = 0
    messages: list[StoredMessage] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.messages)


class MemoryBroker:
    """Serves name server and broker requests on one port of 127.0.0.1.

    Args:
        pull_count: maximum number of messages in a response, as for real brokers.
    """

    def __init__(self, pull_count: int = 32, tls: ServerTls | None = None) -> None:
        self.pull_count = pull_count
        self.topics: dict[str, list[MemoryQueue]] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, list[str]] = {}
        """Client ids of the members by consumer group."""
        self.requests: dict[int, int] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.closed_connections = 0
        self._server = Server(self._router(), "127.0.0.1", 0, tls=tls)

    @property
    def address(self) -> str:
        """`host:port` of the name server and of the broker."""
        return f"127.0.0.1:{self._server.port}"

    @property
    def open_connections(self) -> int:
        """Connections of all clients."""
        return self._server.connection_count

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create(self, topic: str, queues: int, first: int = 0) -> list[MemoryQueue]:
        """Create a topic, or recreate it without messages. Its queues begin at offset `first`."""
        self.topics[topic] = [MemoryQueue(first) for _ in range(queues)]
        return self.topics[topic]

    def send(self, topic: str, queue_id: int, body: bytes, properties: str = "", store_ms: int = 0) -> None:
        """Append one message."""
        queue = self.topics[topic][queue_id]
        stored = StoredMessage(topic, queue_id, body, properties, queue_offset=queue.end, store_timestamp=store_ms)
        queue.messages.append(stored)

    def _router(self) -> Router:
        router = Router()
        router.on_closed(self._closed)
        router.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequestHeader, self._route)
        router.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, self._topic_list)
        router.add(RequestCode.GET_BROKER_CLUSTER_INFO, None, self._cluster_info)
        router.add(RequestCode.GET_MIN_OFFSET, QueueRequestHeader, self._min_offset)
        router.add(RequestCode.GET_MAX_OFFSET, QueueRequestHeader, self._max_offset)
        router.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, self._offset_by_time)
        router.add(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self._commit)
        router.add(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self._committed)
        router.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader, self._group_members)
        router.add(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, self._pull)
        return router

    def _closed(self, _: Connection) -> None:
        self.closed_connections += 1

    def _queue(self, topic: str, queue_id: int) -> MemoryQueue:
        if topic not in self.topics or queue_id >= len(self.topics[topic]):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"no queue {queue_id} of {topic}")
        return self.topics[topic][queue_id]

    def _count(self, request: RemotingCommand) -> None:
        self.requests[request.code] = self.requests.get(request.code, 0) + 1

    def _route(self, _: Connection, request: RemotingCommand, header: RouteRequestHeader) -> RemotingCommand:
        self._count(request)
        if header.topic not in self.topics:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"no topic {header.topic}")
        count = len(self.topics[header.topic])
        broker = BrokerData("DefaultCluster", BROKER, {0: self.address})
        route = TopicRoute(queues=[QueueData(BROKER, count, count, 6)], brokers=[broker])
        return response_to(request, body=route.to_json())

    def _cluster_info(self, _: Connection, request: RemotingCommand, __: None) -> RemotingCommand:
        self._count(request)
        broker = BrokerData("DefaultCluster", BROKER, {0: self.address})
        return response_to(request, body=ClusterInfo({BROKER: broker}, {"DefaultCluster": [BROKER]}).to_json())

    def _topic_list(self, _: Connection, request: RemotingCommand, __: None) -> RemotingCommand:
        self._count(request)
        return response_to(request, body=TopicList(list(self.topics)).to_json())

    def _min_offset(self, _: Connection, request: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        self._count(request)
        return response_to(request, header=OffsetResponseHeader(self._queue(header.topic, header.queue_id).first))

    def _max_offset(self, _: Connection, request: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        self._count(request)
        return response_to(request, header=OffsetResponseHeader(self._queue(header.topic, header.queue_id).end))

    def _offset_by_time(
        self, _: Connection, request: RemotingCommand, header: SearchOffsetRequestHeader
    ) -> RemotingCommand:
        queue = self._queue(header.topic, header.queue_id)
        later = [message.queue_offset for message in queue.messages if message.store_timestamp >= header.timestamp]
        return response_to(request, header=OffsetResponseHeader(later[0] if later else queue.end))

    def _commit(
        self, _: Connection, request: RemotingCommand, header: UpdateConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        self.committed[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return response_to(request)

    def _committed(
        self, _: Connection, request: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        offset = self.committed.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "the group has no offset")
        return response_to(request, header=OffsetResponseHeader(offset))

    def _group_members(
        self, _: Connection, request: RemotingCommand, header: ConsumerGroupRequestHeader
    ) -> RemotingCommand:
        if header.consumer_group not in self.members:
            raise Refused(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return response_to(request, body=encode_consumer_ids(self.members[header.consumer_group]))

    def _pull(self, _: Connection, request: RemotingCommand, header: PullMessageRequestHeader) -> RemotingCommand:
        self._count(request)
        queue = self._queue(header.topic, header.queue_id)
        offset = header.queue_offset
        if not queue.first <= offset <= queue.end:
            following = queue.first if offset < queue.first else queue.end
            return self._answer(request, ResponseCode.PULL_OFFSET_MOVED, queue, following)
        if offset == queue.end:
            return self._answer(request, ResponseCode.PULL_NOT_FOUND, queue, offset)
        count = min(header.max_msg_nums, self.pull_count)
        scanned = queue.messages[offset - queue.first :][:count]
        codes = {tag_hash(tag) for tag in parse_expression(header.subscription or "*")}
        found = [each for each in scanned if not codes or _code(each) in codes]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._answer(request, code, queue, offset + len(scanned), b"".join(map(encode_record, found)))

    def _answer(
        self, request: RemotingCommand, code: int, queue: MemoryQueue, following: int, body: bytes = b""
    ) -> RemotingCommand:
        header = PullMessageResponseHeader(0, following, queue.first, queue.end)
        return response_to(request, code, "", header, body)


def _code(message: StoredMessage) -> int:
    return tag_hash(decode_properties(message.properties).get("TAGS"))
