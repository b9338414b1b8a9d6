"""`PopConsumer`: consumes messages without assigned queues. The broker delivers each message to one member at a time.

    async with PopConsumer("billing", "orders", name_servers="127.0.0.1:9876") as consumer:
        for message in await consumer.receive(max_messages=16):
            ...
            await message.ack()

A popped message is invisible to other members for some time (`invisible_time`). If it is not acknowledged by then, it
is delivered again. There is no rebalance and no offset to commit. Any number of members share one queue, and an
unresponsive member delays only its own messages. Order is not kept. Brokers must be RaptorMQ's, or Apache RocketMQ 5.0
or later.

`receive` waits for a notification (200054), which delivers no messages, and then pops (200050) the messages that it
returns immediately. A message that is popped after its caller has been cancelled would be invisible to all members.
Each delivery has a handle (property POP_CK, see `raptormq.protocol.pop_handle`), and a change of the invisible time
replaces it.

See also: `consumer.pull_consumer` reads queues by offset. Source: RocketMQ 5 `SimpleConsumer` for the calls;
`MQClientAPIImpl.popMessageAsync`, `processPopResponse`, `ackMessageAsync`, `changeInvisibleTimeAsync` for the requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from raptormq.client.cluster import ClientInstance, require_success
from raptormq.client.config import ClientConfig, ConsumeFromWhere
from raptormq.client.consumer.subscription import Sql, subscription_to
from raptormq.client.lifecycle import Shutdown, Startable, require_loop
from raptormq.client.message import decode_messages, values_of
from raptormq.client.settings import Limits, SecondsOrZero, check_setting
from raptormq.errors import (
    ClientClosed,
    ConfigError,
    KeyMissing,
    NoRoute,
    RaptorMQError,
    RecordError,
    ServerError,
    TransportError,
)
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
from raptormq.protocol.record import iter_records
from raptormq.protocol.schema import decode_header
from raptormq.protocol.topic_names import check_group, check_topic

log = get_logger(__name__)

MAX_POPPED = 32
"""Most messages that brokers return for one pop."""
MAX_INVISIBLE_S = 300.0
"""Longest invisible time of a pop that brokers accept."""
_ANY_QUEUE = -1
_LONGEST_WAIT_S = 15.0
"""How long a notification waits at a broker."""
_LATE_S = 5.0
_RETRY_PAUSE_S = 1.0
_EMPTY = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT})
_INVISIBLE = Annotated[float, Limits(int(MAX_INVISIBLE_S))]


@dataclass(slots=True)
class PoppedMessage(MessageExt):
    """A popped message, which the application acknowledges before its invisible time ends."""

    _consumer: PopConsumer = field(kw_only=True, repr=False, compare=False)
    _handle: PopHandle = field(kw_only=True, repr=False, compare=False)
    _stored_topic: str = field(kw_only=True, repr=False, compare=False)

    @property
    def invisible_until_ms(self) -> int:
        """When the message becomes visible to other members, in ms since 1970 by the clock of the broker."""
        return self._handle.pop_time + self._handle.invisible_time

    async def ack(self) -> None:
        """Acknowledge the message: it is consumed and not delivered again. Returns when the broker has accepted it.

        Raises:
            ServerError: the broker refuses, for example because the queue no longer exists. NoRoute, TransportError:
            the broker did not respond; the message may be delivered again.
            ClientClosed: the consumer is closed.
        """
        header = AckMessageRequestHeader(
            self._consumer.group, self._stored_topic, self.queue.queue_id, self._text, self.queue_offset
        )
        await self._consumer.ask(self.queue, request(RequestCode.ACK_MESSAGE, header))

    async def change_invisible_time(self, seconds: float) -> None:
        """Set the time until the message becomes visible to other members: more for long processing, less for an early
        redelivery. May be called several times.

        Raises:
            ConfigError: `seconds` is not a number above 0, at most 300.
            ServerError, NoRoute, TransportError, ClientClosed: as for `ack`.
        """
        check_setting("seconds", seconds, _INVISIBLE)
        header = ChangeInvisibleTimeRequestHeader(
            self._consumer.group,
            self._stored_topic,
            self.queue.queue_id,
            self._text,
            self.queue_offset,
            max(round(seconds * 1000), 1),
        )
        response = await self._consumer.ask(self.queue, request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        changed = decode_header(ChangeInvisibleTimeResponseHeader, response.ext_fields)
        self._handle = PopHandle(
            self.queue_offset, changed.pop_time, changed.invisible_time, changed.revive_qid, self._handle.broker_name
        )

    @property
    def _text(self) -> str:
        return build_handle(self._handle, self._stored_topic, self.queue.queue_id, self.queue_offset)


class PopConsumer(Startable):
    """One of any number of members of a group that pop messages of a topic.

    Args:
        group: name of the group.
        topic: the topic.
        expression: `*`, tags as in `TagA || TagB`, or `Sql` for a filter by properties.
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        invisible_time: seconds for which received messages are invisible to other members, at most 300.
        consume_from: where a new group starts: `FIRST` or `LAST`.
        client_config: shared connections.

    Raises:
        MessageError: `group`, `topic` or `expression` is invalid.
        ConfigError: an address is not `host:port`, or another argument is invalid.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        expression: str | Sql = "*",
        *,
        name_servers: Sequence[str] | str | None = None,
        invisible_time: float = 60.0,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.FIRST,
        client_config: ClientConfig | None = None,
    ) -> None:
        check_group(group)
        check_topic(topic)
        check_setting("invisible_time", invisible_time, _INVISIBLE)
        check_setting("consume_from", consume_from, ConsumeFromWhere)
        if consume_from is ConsumeFromWhere.TIMESTAMP:
            raise ConfigError("a group that pops starts with the FIRST or the LAST message, not at a time")
        self.group = group
        """Name of the group."""
        self._topic = topic
        self._subscription: Subscription = subscription_to(topic, expression)
        self._invisible_ms = round(invisible_time * 1000)
        self._init_mode = 1 if consume_from is ConsumeFromWhere.LAST else 0
        self._client_config = ClientConfig.choose(client_config, name_servers)
        self._instance: ClientInstance | None = None
        self._shutdown = Shutdown(f"a pop consumer of {group}")
        self._closed = asyncio.Event()
        self._turn = 0
        """Number of receives, so that each begins at another broker."""

    async def start(self) -> None:
        """Start the consumer; does nothing when it is started."""
        await self._shutdown.wait()
        if self._instance is None:
            self._instance = ClientInstance.acquire(self._client_config)
            self._closed = asyncio.Event()

    async def close(self) -> None:
        """End all waiting; does nothing when it is closed. Messages that are not acknowledged are delivered again after
        their invisible time.

        Raises:
            ClientClosed: this is another event loop.
        """
        instance = self._instance
        if instance is None:
            await self._shutdown.wait()
        else:
            require_loop(instance.loop)
            self._instance = None
            self._closed.set()
            await self._shutdown.run(instance.release())

    async def receive(self, max_messages: int = MAX_POPPED, *, timeout: float = 15.0) -> list[PoppedMessage]:
        """Wait for messages and pop them; empty if none arrived within `timeout` seconds, or if the consumer was closed
        meanwhile. The messages of one call are from one broker.

        Args:
            max_messages: most messages, at most 32.
            timeout: seconds to wait for a message; 0 not to wait.

        Raises:
            ConfigError: an argument is out of range.
            NoRoute: the topic does not exist, or no broker of it is up.
            TransportError: no broker of the topic has responded.
            ServerError: a broker refuses; code 26 if it does not have the group and does not create groups.
            ClientClosed: not started, or closed.
        """
        check_setting("max_messages", max_messages, Annotated[int, Limits(MAX_POPPED)])
        check_setting("timeout", timeout, SecondsOrZero)
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            found, failure = await self._pop_anywhere(max_messages)
            left = deadline - clock()
            if found or self._instance is None:
                return found
            if left <= 0:
                if failure is not None:
                    raise failure
                return []
            await self._wait_for_messages(min(left, _LONGEST_WAIT_S if failure is None else _RETRY_PAUSE_S))
            if self._closed.is_set():
                return []

    def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        """Iterate over messages, one pop for each, until the consumer is closed."""
        return self._messages()

    async def _messages(self) -> AsyncIterator[PoppedMessage]:
        self._started_instance()
        while self._instance is not None:
            for message in await self.receive(1):
                yield message

    async def ask(self, queue: MessageQueue, command: RemotingCommand) -> RemotingCommand:
        """Send a request about a popped message to its broker; raises what `PoppedMessage.ack` raises."""
        instance = self._started_instance()
        address = (await instance.routes.find(self._topic)).master(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} has no master now")
        response = await instance.pool.request(address, command, instance.config.request_timeout)
        return require_success(response, address)

    async def _pop_anywhere(self, count: int) -> tuple[list[PoppedMessage], RaptorMQError | None]:
        """Pop from the brokers in turn until one has messages. Return an error only if all have failed."""
        instance = self._started_instance()
        found = await instance.routes.find(self._topic)
        brokers = sorted({queue.broker_name for queue in found.read_queues})
        self._turn += 1
        failure: RaptorMQError | None = None
        failures = 0
        for number in range(len(brokers)):
            broker = brokers[(self._turn + number) % len(brokers)]
            try:
                if messages := await self._pop(instance, broker, found.master(broker), count):
                    return messages, None
            except ServerError:
                raise
            except (TransportError, NoRoute) as error:
                log.info(
                    "group %s cannot pop messages of %s from %s, and tries again: %s",
                    self.group,
                    self._topic,
                    broker,
                    error,
                )
                failure, failures = error, failures + 1
        return [], failure if failures == len(brokers) else None

    async def _pop(self, instance: ClientInstance, broker: str, address: str | None, count: int) -> list[PoppedMessage]:
        if address is None:
            raise NoRoute(f"broker {broker} has no master now")
        header = PopMessageRequestHeader(
            self.group,
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
        response = await instance.pool.request(address, command, instance.config.request_timeout)
        if response.code in _EMPTY:
            return []
        require_success(response, address)
        popped = decode_header(PopMessageResponseHeader, response.ext_fields)
        return self._popped(memoryview(response.body), popped, broker, instance)

    def _popped(
        self, body: memoryview, popped: PopMessageResponseHeader, broker: str, instance: ClientInstance
    ) -> list[PoppedMessage]:
        """Decode the messages of a pop, which are from several queues and from the retry topic of the group."""
        starts = _starts_of(popped.start_offset_info)
        messages: list[PoppedMessage] = []
        position = 0
        for record in iter_records(body):
            part, position = body[position : position + record.total_size], position + record.total_size
            queue = MessageQueue(self._topic, broker, record.queue_id)
            try:
                decoded = decode_messages(part, queue, record.queue_offset, instance.config.keys)
            except (RecordError, KeyMissing) as error:
                log.error(
                    "group %s cannot read the message at offset %d of %s, which is delivered again after %g s: %s",
                    *(self.group, record.queue_offset, queue, self._invisible_ms / 1000, error),
                )
                continue
            for message in decoded:
                if self._subscription.tags and message.tags not in self._subscription.tags:
                    continue  # the broker compares hashes of tags, which may collide
                handle = self._handle_of(message, popped, starts, broker)
                stored = real_topic(self._topic, self.group, _kind_of(message))
                messages.append(
                    PoppedMessage(*values_of(message), _consumer=self, _handle=handle, _stored_topic=stored)
                )
        return messages

    @staticmethod
    def _handle_of(
        message: MessageExt, popped: PopMessageResponseHeader, starts: dict[int, int], broker: str
    ) -> PopHandle:
        text = message.properties.get(names.POP_CHECKPOINT)
        if text is not None:  # of a message from the retry topic
            return parse_handle(text)
        start = starts.get(message.queue.queue_id, message.queue_offset)
        return PopHandle(start, popped.pop_time, popped.invisible_time, popped.revive_qid, broker)

    async def _wait_for_messages(self, seconds: float) -> None:
        """Wait until a broker has messages, the consumer is closed, or the time is over."""
        instance = self._started_instance()
        found = await instance.routes.find(self._topic)
        waiting: set[asyncio.Future[bool]] = {asyncio.ensure_future(_is_set(self._closed))}
        for broker in {queue.broker_name for queue in found.read_queues}:
            address = found.master(broker)
            if address is not None:
                waiting.add(asyncio.ensure_future(self._has_messages(instance, address, seconds)))
        try:
            deadline = asyncio.get_running_loop().time() + seconds
            while waiting:
                left = max(deadline - asyncio.get_running_loop().time(), 0.0)
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done or any(each.result() for each in done):
                    return
        finally:
            for each in waiting:
                each.cancel()

    async def _has_messages(self, instance: ClientInstance, address: str, seconds: float) -> bool:
        """Wait for a message at one broker. Return False if none arrived, or if the broker does not know."""
        header = NotificationRequestHeader(
            self.group,
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
            timeout = seconds + _LATE_S + instance.config.request_timeout
            response = await instance.pool.request(address, request(RequestCode.NOTIFICATION, header), timeout)
            return decode_header(NotificationResponseHeader, require_success(response, address).ext_fields).has_msg
        except RaptorMQError as error:
            log.info("group %s gets no notifications of messages from broker %s: %s", self.group, address, error)
            return False

    def _started_instance(self) -> ClientInstance:
        if self._instance is None:
            raise ClientClosed("the consumer is not started, or closed")
        require_loop(self._instance.loop)
        return self._instance


async def _is_set(event: asyncio.Event) -> bool:
    await event.wait()
    return True


def _starts_of(info: str | None) -> dict[int, int]:
    """Parse the start offsets of a pop: `kind queue start` per queue, separated by `;`."""
    starts: dict[int, int] = {}
    for entry in (info or "").split(";"):
        kind, _, rest = entry.partition(" ")
        queue, _, start = rest.partition(" ")
        if kind == "0":
            starts[int(queue)] = int(start)
    return starts


def _kind_of(message: MessageExt) -> str:
    """Return whether a message is from the topic itself (0) or from a form of the retry topic (1, 2)."""
    parts = message.properties.get(names.POP_CHECKPOINT, "").split(" ")
    return parts[4] if len(parts) > 4 else "0"
