"""The requests of one started `PopConsumer`: pop (200050), notification (200054), acknowledgement (200051), change of
the invisible time (200053).

Each delivery has a handle (see `raptormq.protocol.pop_handle`), and a change of the invisible time replaces it. For a
message of a retry topic the broker sets the property POP_CK. For other messages the handle follows from the header of
the response. A property POP_CK with another pop time than the response is not the broker's and is ignored.

See also: `consumer.pop_consumer` waits and pops, `consumer.popped_message` settles. Source: RocketMQ
`MQClientAPIImpl.popMessageAsync`, `processPopResponse`, `ackMessageAsync`, `changeInvisibleTimeAsync`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.message import decode_messages
from raptormq.errors import KeyMissing, MessageError, NoRoute, RaptorMQError, RecordError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.pop_handle import PopHandle, build_handle, parse_handle, real_topic
from raptormq.protocol.record import QUEUE_OFFSET_AT, decode_record, record_size
from raptormq.protocol.schema import decode_header

log = get_logger(__name__)

_ANY_QUEUE = -1
_LATE_S = 5.0
_EMPTY = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT})


class Popped(NamedTuple):
    """A popped message with the handle that identifies its delivery at the broker."""

    message: MessageExt
    handle: PopHandle
    stored_topic: str
    """The topic itself, or a retry topic of the group."""

    @property
    def text(self) -> str:
        """The encoded handle for requests to the broker."""
        return build_handle(self.handle, self.stored_topic, self.message.queue.queue_id, self.message.queue_offset)


class PopRequests:
    """Requests of one member of a group for one topic.

    Args:
        instance: connections and routes.
        group: the consumer group.
        subscription: the topic and which of its messages are wanted.
        invisible_ms: for how long popped messages are invisible to other members, in milliseconds.
        from_last: let a new group start with the last message, instead of the first one.
    """

    def __init__(
        self, instance: ClientInstance, group: str, subscription: Subscription, invisible_ms: int, *, from_last: bool
    ) -> None:
        self._instance = instance
        self._group = group
        self._topic = subscription.topic
        self._subscription = subscription
        self._invisible_ms = invisible_ms
        self._init_mode = 1 if from_last else 0

    async def pop(self, broker: str, address: str | None, count: int) -> list[Popped]:
        """Return up to `count` messages of a broker, without waiting for any.

        Raises:
            NoRoute: the broker has no master.
            TransportError, ServerError: no response, or a refusal.
        """
        if address is None:
            raise NoRoute(f"broker {broker} has no master now")
        header = PopMessageRequestHeader(
            self._group,
            self._topic,
            _ANY_QUEUE,
            count,
            self._invisible_ms,
            0,
            time.time_ns() // 1_000_000,
            self._init_mode,
            self._subscription.expression_type,
            self._subscription.expression,
            False,
        )
        command = request(RequestCode.POP_MESSAGE, header)
        response = await self._instance.pool.request(address, command, self._instance.config.request_timeout)
        if response.code in _EMPTY:
            return []
        require_success(response, address)
        return self._popped(
            memoryview(response.body), decode_header(PopMessageResponseHeader, response.ext_fields), broker
        )

    async def has_messages(self, address: str, seconds: float) -> bool:
        """Wait up to `seconds` for a message at one broker. Return False if none arrived, or if the request failed."""
        header = NotificationRequestHeader(
            self._group,
            self._topic,
            _ANY_QUEUE,
            max(round(seconds * 1000), 1),
            time.time_ns() // 1_000_000,
            False,
            None,
            self._subscription.expression_type,
            self._subscription.expression,
        )
        try:
            timeout = seconds + _LATE_S + self._instance.config.request_timeout
            response = await self._instance.pool.request(address, request(RequestCode.NOTIFICATION, header), timeout)
            return decode_header(NotificationResponseHeader, require_success(response, address).ext_fields).has_msg
        except RaptorMQError as error:
            log.info("group %s gets no notifications of messages from broker %s: %s", self._group, address, error)
            return False

    async def ack(self, popped: Popped) -> None:
        """Acknowledge a message. Returns when its broker has accepted it.

        Raises:
            NoRoute, TransportError, ServerError: as for `pop`.
        """
        queue = popped.message.queue
        header = AckMessageRequestHeader(
            self._group, popped.stored_topic, queue.queue_id, popped.text, popped.message.queue_offset
        )
        await self._ask(queue, request(RequestCode.ACK_MESSAGE, header))

    async def change_invisible_time(self, popped: Popped, seconds: float) -> Popped:
        """Let a message become visible again in `seconds`. Return it with its new handle.

        Raises:
            NoRoute, TransportError, ServerError: as for `pop`.
        """
        queue, offset = popped.message.queue, popped.message.queue_offset
        header = ChangeInvisibleTimeRequestHeader(
            self._group, popped.stored_topic, queue.queue_id, popped.text, offset, max(round(seconds * 1000), 1)
        )
        response = await self._ask(queue, request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        changed = decode_header(ChangeInvisibleTimeResponseHeader, response.ext_fields)
        broker = popped.handle.broker_name
        handle = PopHandle(offset, changed.pop_time, changed.invisible_time, changed.revive_qid, broker)
        return popped._replace(handle=handle)

    async def _ask(self, queue: MessageQueue, command: RemotingCommand) -> RemotingCommand:
        instance = self._instance
        address = (await instance.routes.find(self._topic)).master(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} has no master now")
        response = await instance.pool.request(address, command, instance.config.request_timeout)
        return require_success(response, address)

    def _popped(self, body: memoryview, header: PopMessageResponseHeader, broker: str) -> list[Popped]:
        """Decode the messages of a pop, which are from several queues and from the retry topic of the group. A message
        that cannot be read is logged and left out.
        """
        places = _Places(header, broker)
        messages: list[Popped] = []
        for part in self._records(body, broker):
            try:
                record = decode_record(part, check_crc=False)
                queue = MessageQueue(self._topic, broker, record.queue_id)
                decoded = decode_messages(part, queue, record.queue_offset, self._instance.config.keys)
            except (RecordError, KeyMissing) as error:
                log.error(
                    "group %s cannot read a message of topic %s at %s, which is delivered again after %g s: %s",
                    *(self._group, self._topic, _place_of(part, broker), self._invisible_ms / 1000, error),
                )
                continue
            for message in decoded:
                if self._subscription.tags and message.tags not in self._subscription.tags:
                    continue  # the broker compares hashes of tags, which may collide
                kind, handle = places.take(message)
                messages.append(Popped(message, handle, real_topic(self._topic, self._group, kind)))
        return messages

    def _records(self, body: memoryview, broker: str) -> Iterator[memoryview]:
        """Yield the records of a response. Those behind one with a wrong length cannot be found."""
        position = 0
        try:
            while position < len(body):
                size = record_size(body, position)
                yield body[position : position + size]
                position += size
        except RecordError as error:
            log.error(
                "group %s cannot read the rest of a response of broker %s, whose messages are delivered again"
                " after %g s: %s",
                *(self._group, broker, self._invisible_ms / 1000, error),
            )


class _Places:
    """Determines the topic and the handle of each message of one response."""

    def __init__(self, header: PopMessageResponseHeader, broker: str) -> None:
        self._header = header
        self._broker = broker
        self._starts = {place: offsets[0] for place, offsets in _numbers_of(header.start_offset_info)}
        self._offsets = {place: set(offsets) for place, offsets in _numbers_of(header.msg_offset_info)}

    def take(self, message: MessageExt) -> tuple[str, PopHandle]:
        """Return the kind of topic in which a message is stored (0, 1 or 2), and its handle."""
        text = message.properties.get(names.POP_CHECKPOINT, "")
        try:
            found = parse_handle(text)
        except MessageError:
            found = None
        if found is not None and found.pop_time == self._header.pop_time:
            return text.split(" ")[4], found
        queue, offset = message.queue.queue_id, message.queue_offset
        kind = next((kind for kind in "012" if offset in self._offsets.get((kind, queue), ())), "0")
        start = self._starts.get((kind, queue), offset)
        self._offsets.get((kind, queue), set()).discard(offset)
        header = self._header
        return kind, PopHandle(start, header.pop_time, header.invisible_time, header.revive_qid, self._broker)


def _numbers_of(info: str | None) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Yield kind of topic, queue id and numbers of each entry `kind queue number,number` that `;` separates."""
    for entry in (info or "").split(";"):
        kind, _, rest = entry.partition(" ")
        queue, _, numbers = rest.partition(" ")
        if queue and numbers:
            yield (kind, int(queue)), [int(number) for number in numbers.split(",")]


def _place_of(part: memoryview, broker: str) -> str:
    """Return queue and offset of a record that may be damaged."""
    queue_id, offset = (int.from_bytes(part[at:end], "big") for at, end in ((12, 16), (QUEUE_OFFSET_AT, 28)))
    return f"offset {offset} of queue {queue_id} of broker {broker}"
