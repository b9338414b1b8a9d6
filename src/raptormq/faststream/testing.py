"""`TestRaptorBroker`: a broker without servers for the tests of handlers.

    async with TestRaptorBroker(broker) as test:
        await test.publish(Order(id=17), "orders")
        bill.mock.assert_called_once()

A published message goes to one subscriber of each group at once, in the calling task, and errors of handlers are raised
there. Tags filter as on brokers; a filter by properties passes every message. There is no redelivery: the decision of a
handler about its message is in ``committed`` of the message. :class:`raptormq.testing.EmbeddedCluster` tests with a
real broker.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, overload
from unittest.mock import AsyncMock

from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from raptormq.client import Message, MessageExt, MessageQueue, SendResult, SendStatus, Sql
from raptormq.faststream.broker import RaptorBroker
from raptormq.faststream.message import OrderedBatch, OrderedMessage
from raptormq.faststream.producer import RaptorProducer, as_message
from raptormq.faststream.publisher import RaptorPublisher
from raptormq.faststream.response import RaptorPublishCommand
from raptormq.faststream.subscriber import RaptorSubscriber
from raptormq.protocol.properties import SHARDING_KEY
from raptormq.protocol.tags import parse_expression

_numbers = count()


class TestRaptorBroker(TestBroker[RaptorBroker, EnterType], broker=RaptorBroker):
    """Runs a broker, or several that publish to each other, without servers.

    Args:
        broker: the broker, or several.
        with_real: use servers, and only add the mocks of handlers and publishers.
        connect_only: do not start the subscribers.
    """

    __test__ = False

    @overload
    def __init__(
        self: TestRaptorBroker[RaptorBroker],
        broker: RaptorBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: TestRaptorBroker[tuple[RaptorBroker, ...]],
        *brokers: RaptorBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(self, *brokers: RaptorBroker, with_real: bool = False, connect_only: bool | None = None) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: RaptorBroker, publisher: RaptorPublisher
    ) -> tuple[RaptorSubscriber, bool]:
        """Return a subscriber of the publisher's topic, and whether the application has declared the subscriber."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        name = f"test-of-publisher-{next(_numbers)}"
        return broker.subscriber(publisher.topic, group=name, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RaptorBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, InMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(  # type: ignore[override] # the base is declared to connect to nothing
        self, broker: RaptorBroker, *args: Any, **kwargs: Any
    ) -> AsyncMock:
        return AsyncMock()


class InMemoryProducer(RaptorProducer):
    """Passes messages to the subscribers of its test."""

    def __init__(self, broker: RaptorBroker, brokers: tuple[RaptorBroker, ...]) -> None:
        config = broker.config.broker_config
        super().__init__(config.broker_parser, config.broker_decoder)
        self.codec = config.broker_codec or self.codec
        self._serializer = config.fd_config._serializer
        self._brokers = brokers

    async def publish(self, cmd: RaptorPublishCommand) -> SendResult:
        """Call the handlers of the message."""
        message = await as_message(cmd, self.codec, self._serializer)
        received = _received(message, cmd.key)
        for subscriber in self._receivers(message):
            await subscriber.process_message(_delivered(received, subscriber))
        return SendResult(
            SendStatus.SEND_OK, received.message_id, received.offset_message_id, received.queue, received.queue_offset
        )

    async def request(self, cmd: RaptorPublishCommand) -> MessageExt:
        """Call the first handler of the message, and return its result.

        Raises:
            SubscriberNotFound: no handler receives the message.
        """
        message = await as_message(cmd, self.codec, self._serializer)
        for subscriber in self._receivers(message):
            response = await subscriber.process_message(_delivered(_received(message, cmd.key), subscriber))
            reply = RaptorPublishCommand.from_cmd(response.as_publish_command())
            return _received(await as_message(reply, self.codec, self._serializer), None)
        raise SubscriberNotFound(f"no subscriber receives a message of topic {message.topic} with tag {message.tags}")

    def _receivers(self, message: Message) -> list[RaptorSubscriber]:
        found: dict[str, RaptorSubscriber] = {}
        for subscriber in _subscribers(self._brokers):
            if subscriber.topic == message.topic and _passes(subscriber.expression, message.tags):
                found.setdefault(subscriber.group, subscriber)
        return list(found.values())


def _subscribers(brokers: tuple[RaptorBroker, ...]) -> Iterator[RaptorSubscriber]:
    for broker in brokers:
        yield from (each for each in broker.subscribers if isinstance(each, RaptorSubscriber))


def _delivered(message: MessageExt, subscriber: RaptorSubscriber) -> OrderedMessage | OrderedBatch:
    """Return the message in the form that the subscriber takes; a batch contains only this message."""
    return OrderedBatch([message]) if subscriber.takes_batches else OrderedMessage.of(message)


def _passes(expression: str | Sql, tag: str | None) -> bool:
    if isinstance(expression, Sql):
        return True
    tags = parse_expression(expression)
    return not tags or tag in tags


def _received(message: Message, key: str | None) -> MessageExt:
    offset, now_ms = next(_numbers), time.time_ns() // 1_000_000
    properties = message.all_properties() | ({} if key is None else {SHARDING_KEY: key})
    queue = MessageQueue(message.topic, "test", 0)
    return MessageExt(message.topic, message.body, properties, queue, offset, offset, f"test-{offset}",
                      f"test-{offset}", now_ms, now_ms)  # fmt: skip
