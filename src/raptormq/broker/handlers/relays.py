"""Requests of administrators that the broker forwards to consumers: progress (223), running info (307), consumption of
one message (309) (``AdminBrokerProcessor.callConsumer``, ``Broker2Client``).

The broker forwards a request over the connection of the client and returns its response. The response code is 1 if the
client is not connected, and 207 if it does not respond within the time limit.
"""

from __future__ import annotations

import asyncio
from functools import partial

from raptormq.broker.clients import ClientRegistry, Member
from raptormq.broker.config import Identity
from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.required_permissions import to_consume
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.errors import BodyError, MessageError, RequestTimeout, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.queue_offsets import decode_progress, encode_group_progress
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.relay import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerRunningInfoRequestHeader,
    ConsumerStatusRequestHeader,
)
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import parse_offset_id
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

logger = get_logger(__name__)

MAX_RELAYS = 1_000
"""Maximum number of forwarded requests in progress. Further requests are refused."""
_CLIENT_S = 10.0
_PROGRESS_S = 5.0
_SIGNATURE = frozenset({"AccessKey", "SecurityToken", "Signature"})
"""Fields of the administrator's signature, which are not forwarded to clients."""


class RelayHandlers:
    """Forwards requests to clients. ``client_seconds`` is the time limit of a response."""

    def __init__(
        self,
        records: AuthorizedRecords,
        topics: TopicTable,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        identity: Identity,
        client_seconds: float = _CLIENT_S,
    ) -> None:
        self._records = records
        self._topics = topics
        self._groups = groups
        self._registry = registry
        self._broker_name = identity.broker_name
        self._client_seconds = client_seconds
        self._under_way = 0

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader, self.progress)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader, self.running_info)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, self.consume_directly)

    async def progress(
        self, _: Connection, command: RemotingCommand, header: ConsumerStatusRequestHeader
    ) -> RemotingCommand:
        """223: return the offsets of each member in its queues, without members that do not respond."""
        group = self._registry.consumers.get(header.group)
        members = list(group.members.values()) if group is not None else []
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        if header.client_addr:
            members = [member for member in members if member.client_id == header.client_addr]
        answers = await asyncio.gather(*(self._progress_of(member, header) for member in members))
        known = {
            member.client_id: answer for member, answer in zip(members, answers, strict=True) if answer is not None
        }
        return response_to(command, body=encode_group_progress(known))

    async def _progress_of(
        self, member: Member[Connection], header: ConsumerStatusRequestHeader
    ) -> dict[MessageQueue, int] | None:
        question = request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusRequestHeader(header.topic, header.group)
        )
        try:
            answer = await self._ask(member, question, min(_PROGRESS_S, self._client_seconds))
            return decode_progress(answer.body) if answer.code == ResponseCode.SUCCESS and answer.body else None
        except (TransportError, BodyError) as error:
            logger.info("client %s did not report its progress: %s", member.client_id, error)
            return None

    async def running_info(
        self, _: Connection, command: RemotingCommand, header: ConsumerRunningInfoRequestHeader
    ) -> RemotingCommand:
        """307: return the running info of one member."""
        return await self._relay(command, header.consumer_group, header.client_id, {}, command.body)

    async def consume_directly(
        self, connection: Connection, command: RemotingCommand, header: ConsumeMessageDirectlyRequestHeader
    ) -> RemotingCommand:
        """309: let one member consume the message with an offset id, even if it was consumed before."""
        fields = {"brokerName": self._broker_name}
        topic = self._topics.get(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.others.get("groupSysFlag", 0))
        record = await self._record(connection, command, header)
        return await self._relay(command, header.consumer_group, header.client_id or "", fields, record)

    async def _record(
        self, connection: Connection, command: RemotingCommand, header: ConsumeMessageDirectlyRequestHeader
    ) -> bytes:
        message_id, needs = header.msg_id or "", partial(to_consume, header.consumer_group)
        try:
            offset = parse_offset_id(message_id).physical_offset
        except MessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = await self._records.message_at(connection, command, needs, offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id:.80} does not exist")
        return bytes(record)

    async def _relay(
        self, command: RemotingCommand, group: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> RemotingCommand:
        consumers = self._registry.consumers.get(group)
        member = consumers.members.get(client_id) if consumers is not None else None
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        asked = {name: value for name, value in command.ext_fields.items() if name not in _SIGNATURE}
        question = RemotingCommand(command.code, asked | fields, body)
        try:
            answer = await self._ask(member, question, self._client_seconds)
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except TransportError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        response = response_to(command, answer.code, answer.remark, body=answer.body)
        response.ext_fields = answer.ext_fields
        return response

    async def _ask(self, member: Member[Connection], question: RemotingCommand, seconds: float) -> RemotingCommand:
        if self._under_way >= MAX_RELAYS:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MAX_RELAYS} requests to clients are in progress")
        self._under_way += 1
        try:
            return await member.connection.request(question, seconds)
        finally:
            self._under_way -= 1
