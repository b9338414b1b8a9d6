"""Compression and encryption of batches: as a whole for topics whose broker stores them whole (queue type BatchCQ),
message by message for other topics.

Code 320 contains plain records, which the broker counts. A batch that the broker cannot read is sent in its stored
form: as one message (310) that is an inner batch, described in `raptormq.protocol.inner_batch`. Apache RocketMQ accepts
it on topics that store batches whole, and rejects it on others. The batch is then sent as plain records, so it is not
lost if the type of the topic has changed.

Code 320 has one sysFlag for all messages, so either all or none are compressed: each must be large enough and shrink.
AutoBatch groups messages accordingly. See also: `producer.broker_features` tracks how topics store batches,
`producer.sender` sends. Source: RocketMQ `HookUtils.checkInnerBatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from raptormq.client.config import ProducerConfig
from raptormq.client.message import SendRequest, check_encrypted_size, compressed
from raptormq.client.producer.sender import MessageSender
from raptormq.client.results import SendResult, stored_as_one
from raptormq.errors import RaptorMQError, SendAttempt, ServerError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, decode_batch, encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.inner_ids import pack_ids
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.properties import encode_properties


class EncodingSender:
    """Sends batches of one producer group like `MessageSender`, compressed or encrypted as a whole where possible."""

    def __init__(self, sender: MessageSender, config: ProducerConfig) -> None:
        self._sender = sender
        self._batch_support = sender.batch_support
        self._config = config

    async def send(
        self,
        outgoing: SendRequest,
        queue: MessageQueue | None,
        key: str | None,
        timeout: float,
        is_awaited: Callable[[], bool] | None,
    ) -> SendResult:
        """Send; arguments and errors are those of `MessageSender.send`."""
        encoded = self._as_inner_batch(outgoing, queue) or self._compress_each(outgoing, queue)
        if encoded is None:
            return await self._sender.send(outgoing, queue, key, timeout, is_awaited)
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        earlier: tuple[SendAttempt, ...] = ()
        try:
            result = await self._sender.send(encoded, queue, key, timeout, is_awaited)
            if not (encoded.code == RequestCode.SEND_BATCH_MESSAGE and stored_as_one(result, outgoing.count)):
                return result
            # The topic has been converted to whole batches. Consumers skip this batch, because they expect a compressed
            # body.
        except ServerError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL or (is_awaited is not None and not is_awaited()):
                raise
            earlier = error.attempts
        try:
            return await self._sender.send(outgoing, queue, key, max(deadline - clock(), 0.0), is_awaited)
        except RaptorMQError as error:
            raise error.after(earlier) from error.__cause__

    def encode(self, outgoing: SendRequest, queue: MessageQueue) -> SendRequest:
        """Encode a batch or message as a part of a larger request.

        Raises:
            ConfigError: there is no key to encrypt with.
            MessageError: the encrypted batch is larger than brokers accept.
        """
        return self._as_inner_batch(outgoing, queue) or self._sender.encrypt(outgoing)

    def _compress_each(self, outgoing: SendRequest, queue: MessageQueue | None) -> SendRequest | None:
        """Compress each message of a list, if all are large enough, all shrink, and the topic permits it."""
        if (
            outgoing.merged or outgoing.count < 2
        ):  # with one message, the response does not show whether it was stored as a batch
            return None
        if self._sender.encryptor is not None or self._batch_support.stores_whole(outgoing.topic, queue) is not False:
            return None
        over = self._config.compress_over_bytes
        if not 0 < over * outgoing.count < len(outgoing.body):  # most lists have short messages
            return None
        plain = decode_batch(outgoing.body)
        if any(len(record.body) < over for record in plain):
            return None
        records, sys_flag = [], 0
        for flag, body, properties in plain:
            encoded, sys_flag = compressed(body, self._config)
            if not sys_flag:
                return None
            records.append((flag, encoded, properties))
        return replace(outgoing, body=encode_batch(records), sys_flag=sys_flag)

    def _as_inner_batch(self, outgoing: SendRequest, queue: MessageQueue | None) -> SendRequest | None:
        """Encode a batch as an inner batch, if that is smaller and the topic permits it."""
        if not 0 < outgoing.count <= MAX_BATCH_RECORDS or not self._batch_support.accepts_inner_batches(
            outgoing.topic, queue
        ):
            return None
        if (
            outgoing.sys_flag
        ):  # its messages are compressed individually, but the flag of an inner batch refers to the whole batch
            return None
        if self._sender.encryptor is not None:
            outgoing, sys_flag = check_encrypted_size(self._sender.encryptor.encrypt_whole(outgoing), self._config), 0
        else:
            body, sys_flag = compressed(outgoing.body, self._config)
            if not sys_flag:
                return None
            outgoing = replace(outgoing, body=body)
        inside = {names.INNER_NUM: str(outgoing.count)}
        if ids := pack_ids(outgoing.inner_ids):
            inside[names.INNER_IDS] = ids
        return replace(
            outgoing,
            code=RequestCode.SEND_MESSAGE_V2,
            sys_flag=sys_flag | INNER_BATCH,
            properties=outgoing.properties + encode_properties(inside),
        )
