"""INVOKE_BROKER_TO_RESET_OFFSET (222): resets the offsets of a group (``AdminBrokerProcessor.resetOffset``).

By default the broker resets the offsets itself (:mod:`raptormq.broker.pull.offset_resets`). With
``useServerSideResetOffset=false`` it sends RESET_CONSUMER_CLIENT_OFFSET (220) to the members of the group, which must
be connected.
"""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.config import BrokerConfig
from raptormq.broker.cooperative import written
from raptormq.broker.pull import OffsetResets, PullService
from raptormq.broker.tables import ChangeBarrier, GroupTable, TopicTable
from raptormq.broker.validation import require_topic
from raptormq.protocol.bodies.queue_offsets import encode_offset_list, encode_offsets
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.relay import ResetOffsetRequestHeader
from raptormq.protocol.language import Language
from raptormq.protocol.message import MessageQueue
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class ResetHandlers:
    """Resets the offsets of consumer groups."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        resets: OffsetResets,
        pulls: PullService,
        barrier: ChangeBarrier,
        config: BrokerConfig,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._registry = registry
        self._resets = resets
        self._pulls = pulls
        self._barrier = barrier
        self._broker_name = config.identity.broker_name
        self._policies = config.policies

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, self.reset)

    def topic_changed(self, topic: str) -> None:
        """Discard the resets of a deleted topic."""
        if self._resets and self._topics.get(topic) is None:
            self._resets.forget_topic(topic)

    async def reset(self, _: Connection, command: RemotingCommand, header: ResetOffsetRequestHeader) -> RemotingCommand:
        """222: set the offsets of a group in one queue or in all queues of a topic."""
        if not self._policies.server_side_reset:
            return await self._notify_members(command, header)
        change = self._barrier.begin()
        require_topic(self._topics, header.topic)
        if self._groups.get(header.group) is None:
            remark = f"Group {header.group} does not exist"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        targets = await self._targets(header)
        change.check()  # another leader may have later offsets
        for queue, offset in targets.items():
            self._resets.assign(header.topic, header.group, queue.queue_id, offset)
        self._pulls.reset(header.topic, header.group)
        await change.confirmed()
        return response_to(command, body=await written(lambda: encode_offsets(targets), len(targets)))

    async def _targets(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        count = require_topic(self._topics, header.topic).read_queue_nums
        if header.queue_id < 0:
            return {
                self._queue(header, queue_id): await self._by_time(header, queue_id)
                async for queue_id in cooperatively(range(count))
            }
        if header.queue_id >= count:
            remark = f"queue {header.queue_id} is not one of the {count} read queues of topic {header.topic}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        queue = self._queue(header, header.queue_id)
        if header.offset is None or header.offset == -1:
            return {queue: await self._by_time(header, header.queue_id)}
        low, high = await self._store.queue_bounds(header.topic, header.queue_id)
        if not low <= header.offset <= high + 1:
            remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return {queue: header.offset}

    def _queue(self, header: ResetOffsetRequestHeader, queue_id: int) -> MessageQueue:
        return MessageQueue(header.topic, self._broker_name, queue_id)

    async def _by_time(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        if header.timestamp < 0:
            return self._store.queue_end(header.topic, queue_id)
        return await self._store.offset_by_time(header.topic, queue_id, header.timestamp)

    async def _notify_members(self, command: RemotingCommand, header: ResetOffsetRequestHeader) -> RemotingCommand:
        offsets: dict[MessageQueue, int] = {}
        async for queue_id in cooperatively(range(require_topic(self._topics, header.topic).write_queue_nums)):
            consumed = self._store.consumer_offsets.get(header.topic, header.group, queue_id)
            if consumed is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"The consumer group <{header.group}> not exist")
            target = await self._by_time(header, queue_id)
            offsets[self._queue(header, queue_id)] = target if header.is_force else min(target, consumed)
        members = self._registry.connections(header.group)
        if not members:
            remark = f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic}"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"{remark} Timestamp: {header.timestamp}")
        encode = encode_offset_list if command.language == Language.CPP else encode_offsets
        notice_header = ResetOffsetRequestHeader(header.group, header.topic, header.timestamp, header.is_force)
        for connection in members:
            notice = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, notice_header, encode(offsets), oneway=True)
            connection.oneway(notice)
        return response_to(command, body=encode_offsets(offsets))
