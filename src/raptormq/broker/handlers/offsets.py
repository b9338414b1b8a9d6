"""Offsets of groups (14, 15) and bounds of queues (29, 30, 31, 32) (``ConsumerManageProcessor``,
``AdminBrokerProcessor``).

A request that names a topic id (:mod:`raptormq.protocol.topic_ids`) neither reads nor sets offsets of another topic of
the same name.
"""

from __future__ import annotations

from raptormq.broker.config import Policies
from raptormq.broker.metrics import first_stored_at, is_young
from raptormq.broker.pull import OffsetResets
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import require_group, require_read_queue, require_same_topic
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from raptormq.storage.read import Boundary
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_NOT_FOUND = (
    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    "Not found, do not set to zero, maybe this group boot first",
)
"""RocketMQ's remarks for a group without an offset; the second one when the request excludes 0 as the default."""


class OffsetHandlers:
    """Answers queries about offsets; none blocks the event loop on the disk."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, groups: GroupTable, resets: OffsetResets, policies: Policies
    ) -> None:
        self._store = store
        self._resets = resets
        self._topics = topics
        self._groups = groups
        self._policies = policies

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, self.query)
        router.add(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, self.update)
        router.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, self.search)
        router.add(RequestCode.GET_MAX_OFFSET, QueueRequestHeader, self.maximum)
        router.add(RequestCode.GET_MIN_OFFSET, QueueRequestHeader, self.minimum)
        router.add(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader, self.earliest)

    async def query(
        self, _: Connection, command: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        """14: the committed offset of a group.

        A new group starts at 0 on a young topic, whose first message could be in memory, whatever its consumer asks
        for, as in RocketMQ. On an old topic the answer is 22 and the consumer decides.
        """
        topic, queue_id = header.topic, header.queue_id
        told = require_same_topic(self._topics, topic, header.topic_id)
        offset = self._store.consumer_offsets.get(topic, header.consumer_group, queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False or not await is_young(self._store, topic, queue_id):
                raise Refused(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND[header.set_zero_if_not_found is False])
            offset = 0
        return response_to(command, header=OffsetResponseHeader(offset, told))

    def update(
        self, connection: Connection, command: RemotingCommand, header: UpdateConsumerOffsetRequestHeader
    ) -> RemotingCommand | None:
        """15: commit the offset of the next message to consume.

        Consumers commit every queue every 5 s, one-way, and mostly without a change.
        """
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.commit_offset
        require_same_topic(self._topics, topic, header.topic_id)
        if self._store.consumer_offsets.get(topic, group, queue_id) != offset:
            self._commit(connection, topic, group, queue_id, offset)
        return None if command.is_oneway else response_to(command)

    def _commit(self, connection: Connection, topic: str, group: str, queue_id: int, offset: int) -> None:
        require_group(self._groups, group, auto_create=self._policies.auto_create_group)
        if topic not in self._topics.configs:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        require_read_queue(self._topics, topic, queue_id, connection)
        if offset < 0:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"offset {offset} is negative")
        self._resets.commit(topic, group, queue_id, offset)

    async def search(
        self, _: Connection, command: RemotingCommand, header: SearchOffsetRequestHeader
    ) -> RemotingCommand:
        """29: the offset of the first message at or after a time (LOWER), or the last one at or before it (UPPER)."""
        told = require_same_topic(self._topics, header.topic, header.topic_id)
        boundary = Boundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else Boundary.LOWER
        offset = await self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        require_same_topic(self._topics, header.topic, told or header.topic_id)
        return response_to(command, header=OffsetResponseHeader(offset, told))

    def maximum(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """30: the offset that the next message will get; 0 for an empty queue."""
        told = require_same_topic(self._topics, header.topic, header.topic_id)
        end = self._store.queue_end(header.topic, header.queue_id)
        return response_to(command, header=OffsetResponseHeader(end, told))

    async def minimum(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """31: the offset of the oldest message of a queue."""
        told = require_same_topic(self._topics, header.topic, header.topic_id)
        low, _high = await self._store.queue_bounds(header.topic, header.queue_id)
        require_same_topic(self._topics, header.topic, told or header.topic_id)
        return response_to(command, header=OffsetResponseHeader(low, told))

    async def earliest(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """32: the store time of the oldest message, -1 when the queue is empty."""
        timestamp = await first_stored_at(self._store, header.topic, header.queue_id)
        return response_to(command, header=TimestampResponseHeader(timestamp))
