"""Offsets of groups (14, 15) and bounds of queues (29, 30, 31, 32) (``ConsumerManageProcessor``,
``AdminBrokerProcessor``).

A request is refused if it contains a topic id (:mod:`raptormq.protocol.topic_ids`) that does not match, for example the
id of a deleted topic of the same name.
"""

from __future__ import annotations

from collections.abc import Awaitable

from raptormq.broker.config import Policies
from raptormq.broker.metrics import first_stored_at, is_young
from raptormq.broker.pull import OffsetResets
from raptormq.broker.roles import ConfirmLeadership
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
from raptormq.transport.router import Answer, Refused, Router

_NOT_FOUND = (
    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    "Not found, do not set to zero, maybe this group boot first",
)
"""RocketMQ's remarks for a group without an offset. The second one is for requests with ``setZeroIfNotFound = false``.
"""


class OffsetHandlers:
    """Handles queries and commits of offsets. Disk reads run in threads."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        resets: OffsetResets,
        policies: Policies,
        confirm_leadership: ConfirmLeadership | None = None,
    ) -> None:
        """``confirm_leadership`` is None without a group."""
        self._confirm_leadership = confirm_leadership
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
        """14: return the committed offset of a group.

        Without a committed offset the response is 0 if the queue still has its first message and this message may be in
        memory, as in RocketMQ. Otherwise the response code is 22, and the consumer chooses its start.
        """
        topic, queue_id = header.topic, header.queue_id
        topic_id = require_same_topic(self._topics, topic, header.topic_id)
        offset = self._store.consumer_offsets.get(topic, header.consumer_group, queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False or not await is_young(self._store, topic, queue_id):
                raise Refused(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND[header.set_zero_if_not_found is False])
            offset = 0
        return response_to(command, header=OffsetResponseHeader(offset, topic_id))

    def update(
        self, connection: Connection, command: RemotingCommand, header: UpdateConsumerOffsetRequestHeader
    ) -> Answer | Awaitable[Answer]:
        """15: commit the offset of the next message to consume.

        Consumers commit every queue every 5 s, mostly without a change. An unchanged offset is not checked further.

        The leader of a Dledger group replicates offsets within a second. It responds after a majority has confirmed its
        leadership, because another member may have replaced it without its knowledge. Most clients want no response.
        """
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.commit_offset
        require_same_topic(self._topics, topic, header.topic_id)
        if self._store.consumer_offsets.get(topic, group, queue_id) != offset:
            self._commit(connection, topic, group, queue_id, offset)
        if command.is_oneway:
            return None
        return response_to(command) if self._confirm_leadership is None else self._answer_as_leader(command)

    async def _answer_as_leader(self, command: RemotingCommand) -> RemotingCommand:
        assert self._confirm_leadership is not None
        await self._confirm_leadership()
        return response_to(command)

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
        """29: return the offset of the first message at or after a time (LOWER), or the last one up to it (UPPER)."""
        topic_id = require_same_topic(self._topics, header.topic, header.topic_id)
        boundary = Boundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else Boundary.LOWER
        offset = await self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        require_same_topic(self._topics, header.topic, topic_id or header.topic_id)
        return response_to(command, header=OffsetResponseHeader(offset, topic_id))

    async def maximum(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """30: return the offset of the next message, 0 for an empty queue."""
        if self._confirm_leadership is not None:
            await self._confirm_leadership()
        topic_id = require_same_topic(self._topics, header.topic, header.topic_id)
        end = self._store.queue_end(header.topic, header.queue_id)
        return response_to(command, header=OffsetResponseHeader(end, topic_id))

    async def minimum(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """31: return the offset of the oldest message of a queue."""
        topic_id = require_same_topic(self._topics, header.topic, header.topic_id)
        low, _high = await self._store.queue_bounds(header.topic, header.queue_id)
        require_same_topic(self._topics, header.topic, topic_id or header.topic_id)
        return response_to(command, header=OffsetResponseHeader(low, topic_id))

    async def earliest(self, _: Connection, command: RemotingCommand, header: QueueRequestHeader) -> RemotingCommand:
        """32: return the store time of the oldest message in ms since 1970, or -1 if the queue is empty."""
        timestamp = await first_stored_at(self._store, header.topic, header.queue_id)
        return response_to(command, header=TimestampResponseHeader(timestamp))
