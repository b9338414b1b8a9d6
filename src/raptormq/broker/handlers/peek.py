"""PEEK_MESSAGE (200052): the messages that a group would pop next, which stay visible (``PeekMessageProcessor``)."""

from __future__ import annotations

import asyncio

from raptormq.broker.config import Policies
from raptormq.broker.pop.pop_service import PopService
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import no_read_queue, require_group, require_topic
from raptormq.protocol.bodies.pop import MAX_POPPED
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading
from raptormq.transport.router import Refused, Router


def check_place(
    topics: TopicTable,
    groups: GroupTable,
    policies: Policies,
    topic: str,
    queue_id: int,
    group: str,
    connection: Connection,
) -> None:
    """Refuse with 16, 17, 26 or 29 when the group may not pop. Queue -1 stands for any queue."""
    if not policies.permission & Perm.READ:
        raise Refused(ResponseCode.NO_PERMISSION, "this broker serves no messages (brokerPermission)")
    config = require_topic(topics, topic)
    if not config.perm & Perm.READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"topic {topic} is not readable")
    if queue_id >= config.read_queue_nums:
        raise Refused(ResponseCode.INVALID_PARAMETER, no_read_queue(config, queue_id, connection))
    if not require_group(groups, group, auto_create=policies.auto_create_group).consume_enable:
        raise Refused(ResponseCode.NO_PERMISSION, f"group {group} may not consume")


class PeekHandlers:
    """Answers peeks."""

    def __init__(
        self, pop_service: PopService, ready: asyncio.Event, topics: TopicTable, groups: GroupTable, policies: Policies
    ) -> None:
        self._pop_service = pop_service
        self._ready = ready
        self._topics = topics
        self._groups = groups
        self._policies = policies

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader, self.peek)

    async def peek(
        self, connection: Connection, command: RemotingCommand, header: PeekMessageRequestHeader
    ) -> RemotingCommand | None:
        """200052: messages in their stored form; 19 when there are none."""
        place = header.topic, header.queue_id, header.consumer_group
        check_place(self._topics, self._groups, self._policies, *place, connection)
        await self._ready.wait()
        await connection.drained()
        most = min(max(header.max_msg_nums, 1), MAX_POPPED)
        with Reading(connection.answers, connection) as reading:
            group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
            records, rest = await self._pop_service.peek(group, topic, queue_id, most, reading)
            answer = PopMessageResponseHeader(0, 0, 0, rest)
            if not records:
                return response_to(command, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", answer)
            if not command.is_oneway:
                connection.send(response_to(command, ResponseCode.SUCCESS, "FOUND", answer), *records)
        return None
