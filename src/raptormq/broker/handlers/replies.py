"""SEND_REPLY_MESSAGE (324, 325): forwards a reply to the client that sent the request (``ReplyMessageProcessor``).

The property REPLY_TO_CLIENT contains the client id of the requester. The broker forwards the reply (326) over the
connection of the requester's producer. The requester matches replies to requests by CORRELATION_ID. Its request expires
after TTL ms. With ``storeReplyMessageEnable`` the broker also stores the reply in the reply topic, even if the delivery
failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from raptormq.broker.addresses import peer_host
from raptormq.broker.clients import ClientRegistry
from raptormq.broker.config import Policies
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.send.admission import Admission
from raptormq.errors import StorageError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.reply import ReplyMessageRequestHeader
from raptormq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from raptormq.protocol.message_id import decode_host, offset_id
from raptormq.protocol.properties import decode_properties, reencode_properties, without_broker_only
from raptormq.protocol.record import SysFlag
from raptormq.storage.queue import PendingRecord
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

logger = get_logger(__name__)

MAX_PUSHES = 10_000
"""Maximum number of replies in progress. Further replies are refused."""
_CLIENT_S = 10.0
_TRANSACTION_BITS = int(SysFlag.TRANSACTION_ROLLBACK)
_ReplyHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2


class ReplyHandlers:
    """Forwards replies to the clients that have sent the requests."""

    def __init__(
        self,
        admission: Admission,
        writer: InternalWriter,
        registry: ClientRegistry[Connection],
        store_host: bytes,
        clock: Callable[[], int],
        policies: Policies,
        *,
        client_seconds: float = _CLIENT_S,
    ) -> None:
        self._admission = admission
        self._writer = writer
        self._registry = registry
        self._store_host = store_host
        self._clock = clock
        self._policies = policies
        self._client_seconds = client_seconds
        self._under_way = 0

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader, self.reply)
        router.add(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2, self.reply)

    async def reply(self, connection: Connection, command: RemotingCommand, header: _ReplyHeader) -> RemotingCommand:
        """324, 325: forward the reply. The response follows when the requester has accepted it or cannot be reached."""
        connection.read_promptly(for_good=True)  # requesters wait for replies, so latency matters
        is_first_version = command.code == RequestCode.SEND_REPLY_MESSAGE
        send_code = RequestCode.SEND_MESSAGE if is_first_version else RequestCode.SEND_MESSAGE_V2
        born_host = peer_host(*connection.peer)
        admitted = self._admission.admit(_ordinary(command, int(send_code)), born_host)
        record = admitted.pending
        if not isinstance(record, PendingRecord):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a reply is one message, not a batch")
        problem = await self._push(header, record)
        stored = SendMessageResponseHeader("0", admitted.queue_id, 0, admitted.unique_key)
        if self._policies.store_replies:
            try:
                result = await self._writer.write_confirmed([record])
            except StorageError as error:
                logger.warning("cannot store a reply message: %s", error)
            else:
                stored.msg_id = offset_id(self._store_host, result.physical_offsets[0])
                stored.queue_offset = result.queue_offsets[0]
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return response_to(command, code, problem, stored)

    async def _push(self, header: _ReplyHeader, record: PendingRecord) -> str | None:
        """Forward the reply. Return the reason if the requester did not accept it, or None on success."""
        found = decode_properties(without_broker_only(header.properties))
        client_id = found.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        requester = self._registry.producer_connection(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        if self._under_way >= MAX_PUSHES:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MAX_PUSHES} replies to clients are in progress")
        now = self._clock()
        stored = decode_properties(record.properties.decode())
        added = {name: stored[name] for name in (names.MSG_REGION, names.TRACE_SWITCH)}
        text = self._writer.properties.fit(header.topic, found, {}, added | {names.PUSH_REPLY_TIME: str(now)})
        pushed = ReplyMessageRequestHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            _text(record.born_host),
            _text(self._store_host),
            now,
            text,
            header.reconsume_times,
            header.unit_mode,
        )
        question = request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, bytes(record.body))
        self._under_way += 1
        try:
            answer = await requester.request(question, self._client_seconds)
            delivered = answer.code == ResponseCode.SUCCESS
        except TransportError as error:
            logger.info("client %s did not accept a reply: %s", client_id, error)
            delivered = False
        finally:
            self._under_way -= 1
        return None if delivered else f"push reply message to {client_id}fail."


def _ordinary(command: RemotingCommand, code: int) -> RemotingCommand:
    """Return the send request that stores a reply as an ordinary message.

    The transaction flag is removed, because no producer would ever commit the stored message. The forwarded reply keeps
    the flag.
    """
    properties, flags = ("properties", "sysFlag") if code == RequestCode.SEND_MESSAGE else ("i", "f")
    fields = command.ext_fields
    found = decode_properties(fields.get(properties, ""))
    if found.pop(names.TRANSACTION_PREPARED, None) is not None:
        flag = fields.get(flags, "0")
        plain = str(int(flag) & ~_TRANSACTION_BITS) if flag.isdecimal() else flag
        fields = fields | {properties: reencode_properties(found), flags: plain}
    return dataclasses.replace(command, code=code, ext_fields=fields)


def _text(host: bytes) -> str:
    address, port = decode_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
