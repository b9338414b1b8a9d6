"""A pull request and its undecoded result (`PullResult`).

See also: `consumer.pull_consumer` and `consumer.queue_reader` decide what to pull; `message.decoding` decodes.
Source: RocketMQ `PullAPIWrapper`, code 11.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass

from raptormq.client.message import MessageBatch, decode_batches, decode_messages
from raptormq.client.security import EncryptionKeys
from raptormq.errors import ServerError
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.pull import PullFlag, PullMessageRequestHeader, PullMessageResponseHeader
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.schema import decode_header
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.transport.pool import ConnectionPool


class PullStatus(enum.Enum):
    """Result of a pull."""

    FOUND = ResponseCode.SUCCESS
    """The response contains messages."""
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    """The offset is the end of the queue; there are no messages."""
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    """No message with a wanted tag; continue immediately at `next_offset`."""
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The offset is outside the queue, or was reset by an administrator: continue at `next_offset`."""


UNHELD_PAUSE_S = 0.2
"""Pause after an empty pull that the broker did not hold. Without it an idle queue would be pulled thousands of times
per second.
"""
# Plain integers, because an operation on an IntFlag takes a microsecond per pull.
_SUSPEND, _SUBSCRIPTION, _COMMIT_OFFSET = map(int, (PullFlag.SUSPEND, PullFlag.SUBSCRIPTION, PullFlag.COMMIT_OFFSET))
_STATUSES = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of one pull. Offsets are queue offsets."""

    queue: MessageQueue
    status: PullStatus
    next_offset: int
    """Start offset of the next pull."""
    min_offset: int
    max_offset: int
    body: bytes
    """Stored records back to back, in the layout of `raptormq.protocol.record`; empty unless `FOUND`."""
    suggested_broker_id: int = 0
    """Id of the broker replica to pull from next; 0 is the master."""
    offset: int = 0
    """Start offset of this pull. If it is inside an inner batch, `body` contains the whole batch, and `messages`
    returns the remaining messages.
    """
    keys: EncryptionKeys | None = None
    """Keys for decrypting messages."""
    topic_id: str | None = None
    """Id of the topic, if the pull asked for it or named it and the broker supports ids."""

    def messages(self) -> list[MessageExt]:
        """Decode the records.

        Brokers compare only the hashes of tags, so the caller must compare the tags.

        Raises:
            RecordError: The records are damaged, or a body cannot be decompressed.
            KeyMissing: a message is encrypted with a key that the client does not have.
        """
        return decode_messages(self.body, self.queue, self.offset, self.keys)

    def batches(self) -> list[MessageBatch]:
        """Return the messages batch by batch, each decoded on access. The messages between two stored batches form one
        batch. Otherwise as `messages`.
        """
        return decode_batches(self.body, self.queue, self.offset, keys=self.keys)


LATE_RESPONSE_S = 5.0
"""Interval at which brokers check for held pulls that have expired."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The parameters of one pull."""

    group: str
    queue: MessageQueue
    offset: int
    max_count: int
    subscription: Subscription
    send_subscription: bool
    """False if the subscription is announced by heartbeats (push consumers)."""
    suspend_ms: int = 0
    """Milliseconds for which the broker may hold the request while the queue has no new message; 0 returns at once."""
    max_bytes: int | None = None
    """A hint; brokers have their own limits and always return at least one message."""
    commit_offset: int | None = None
    """Offset to commit with the pull."""
    keys: EncryptionKeys | None = None
    """Keys for decrypting the result."""
    topic_id: str | None = None
    """Id of the topic, or `TOPIC_ID_QUERY` to ask for it; see `raptormq.protocol.topic_ids`."""

    def command(self) -> RemotingCommand:
        """Return the encoded request."""
        flags = _SUSPEND if self.suspend_ms > 0 else 0
        if self.send_subscription:
            flags |= _SUBSCRIPTION
        if self.commit_offset is not None:
            flags |= _COMMIT_OFFSET
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.offset,
            max_msg_nums=self.max_count,
            sys_flag=flags,
            commit_offset=self.commit_offset or 0,
            suspend_timeout_millis=self.suspend_ms,
            sub_version=self.subscription.version,
            subscription=self.subscription.expression if self.send_subscription else None,
            expression_type=self.subscription.expression_type,
            max_msg_bytes=self.max_bytes,
            broker_name=self.queue.broker_name,
            topic_id=self.topic_id,
        )
        return request(RequestCode.PULL_MESSAGE, header)

    def result(self, response: RemotingCommand, address: str) -> PullResult:
        """Decode the response of the broker at `address`; raises ServerError and HeaderError as `pull` does."""
        status = _STATUSES.get(response.code)
        if status is None:
            raise ServerError(response.code, response.remark, address)
        header = decode_header(PullMessageResponseHeader, response.ext_fields)
        return PullResult(
            self.queue,
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            response.body,
            header.suggest_which_broker_id,
            self.offset,
            self.keys,
            header.topic_id or (None if self.topic_id == TOPIC_ID_QUERY else self.topic_id),
        )


async def pull(
    pool: ConnectionPool, address: str, pull_request: PullRequest, timeout: float, unheld_pause: float = 0.0
) -> PullResult:
    """Pull once from the broker at `address`.

    Args:
        pool: the connections.
        address: address of the broker.
        pull_request: the parameters of the pull.
        timeout: timeout in seconds. It must exceed the hold by `LATE_RESPONSE_S` plus the network latency.
        unheld_pause: pause in seconds if nothing was found and the broker did not hold the request.

    Raises:
        TransportError: no response in time, or the connection broke.
        ServerError: the broker refuses: no such topic, no permission, a subscription it does not know yet (24, 25), a
            topic that was recreated (31002).
        HeaderError: a response without offsets.
    """
    clock = asyncio.get_running_loop().time
    asked = clock()
    response = await pool.request(address, pull_request.command(), timeout)
    result = pull_request.result(response, address)
    leads_nowhere = result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset == pull_request.offset
    if leads_nowhere and clock() - asked < unheld_pause:
        await asyncio.sleep(unheld_pause)
    return result
