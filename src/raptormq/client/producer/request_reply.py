"""Request and reply: requests that wait for a reply message.

    request --send--> topic --listener--> reply (325) --> the broker that has the request --326--> this client

The broker finds the client by REPLY_TO_CLIENT among clients with a registered producer, so a heartbeat is sent first.
Replies are matched by CORRELATION_ID. A reply without a pending request is acknowledged and dropped. See also:
`producer.producer` sends; all producers of a `cluster.client_instance` share the table. Source: RocketMQ
`RequestFutureHolder`, `ClientRemotingProcessor.receiveReplyMessage`, `MessageUtil.createReplyMessage`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from raptormq.client.cluster import ClientInstance
from raptormq.client.message import SendRequest, decrypt
from raptormq.errors import KeyMissing, MessageError, RecordError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.compression import decompress
from raptormq.protocol.headers.reply import ReplyMessageRequestHeader
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.properties import decode_properties, encode_properties
from raptormq.protocol.topic_names import reply_topic
from raptormq.transport.connection import Connection

log = get_logger(__name__)


class PendingReplies:
    """Pending requests of one client."""

    def __init__(self, instance: ClientInstance) -> None:
        self._keys = instance.config.keys
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        instance.router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequestHeader, self._reply_received)

    @contextmanager
    def expect(
        self, outgoing: SendRequest, client_id: str, ttl_s: float, calls: set[asyncio.Future[MessageExt]]
    ) -> Iterator[asyncio.Future[MessageExt]]:
        """Context that converts a prepared message into a request and registers it as pending.

        Args:
            outgoing: the message.
            client_id: id of this client.
            ttl_s: seconds in which the reply is expected.
            calls: contains the future within the context; its exception ends the wait for the reply.
        """
        correlation_id = str(uuid.uuid4())
        outgoing.properties += encode_properties(
            {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: client_id,
                names.REPLY_TTL_MS: str(int(ttl_s * 1000)),
            }
        )
        reply: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        calls.add(reply)
        try:
            yield reply
        finally:
            del self._waiting[correlation_id]
            calls.discard(reply)
            if reply.done() and not reply.cancelled():
                reply.exception()  # asyncio warns about an exception that nobody retrieves, as after a failed send

    def _reply_received(
        self, _: Connection, command: RemotingCommand, header: ReplyMessageRequestHeader
    ) -> RemotingCommand:
        properties = decode_properties(header.properties or "")
        waiting = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            log.info(
                "a reply for group %s was dropped: its request has timed out or is answered", header.producer_group
            )
        else:
            try:
                waiting.set_result(self._message(command, header, properties))
            except (RecordError, KeyMissing) as error:
                waiting.set_exception(error)
        return response_to(command)

    def _message(
        self, command: RemotingCommand, header: ReplyMessageRequestHeader, properties: dict[str, str]
    ) -> MessageExt:
        body = decompress(command.body, header.sys_flag)
        if names.ENCRYPTION_KEY_ID in properties:
            body = decrypt(body, self._keys)
        return MessageExt(
            header.topic,
            body,
            properties,
            MessageQueue(header.topic, "", header.queue_id),
            queue_offset=-1,
            physical_offset=-1,
            message_id=properties.get(names.UNIQUE_KEY, ""),
            offset_message_id="",
            born_timestamp=header.born_timestamp,
            store_timestamp=header.store_timestamp,
            flag=header.flag,
            sys_flag=header.sys_flag,
        )


def reply_queue(request: MessageExt) -> MessageQueue:
    """Return the reply queue on the broker of the request, to which the requester is connected.

    Raises:
        MessageError: the message is not a request, or its broker has no cluster name.
    """
    if not isinstance(request, MessageExt):
        raise MessageError(f"a reply needs a MessageExt as its request, not {type(request).__name__}")
    for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT):
        if not request.properties.get(name):
            raise MessageError(f"message {request.message_id} cannot be replied to: it has no {name}")
    return MessageQueue(reply_topic(request.properties[names.CLUSTER]), request.queue.broker_name, 0)


def make_reply(outgoing: SendRequest, request: MessageExt) -> None:
    """Convert a prepared message into the reply to a request."""
    copied = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.REPLY_TTL_MS)
    found = {name: request.properties[name] for name in copied if request.properties.get(name)}
    outgoing.code = RequestCode.SEND_REPLY_MESSAGE_V2
    outgoing.properties += encode_properties(found | {names.MESSAGE_TYPE: "reply"})
