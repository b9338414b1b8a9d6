"""Subscribers: one member of a consumer group each, which passes its messages to handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from raptormq.client import (
    Consumer,
    ConsumerConfig,
    ConsumeResult,
    MessageExt,
    Order,
    PushConsumer,
    ReceivedBatch,
    ReceivedMessage,
    Sql,
)
from raptormq.client.background import PROGRAM_ENDS, background, sleep_forever
from raptormq.client.settings import Count, CountOrZero, check_setting
from raptormq.errors import RaptorMQError
from raptormq.faststream.config import RaptorBrokerConfig
from raptormq.faststream.message import (
    REJECTED,
    OrderedBatch,
    OrderedMessage,
    StreamRaptorMessage,
    Unsettled,
    decode,
    decode_batch,
    may_be_accepted,
    note_decisions,
    parse_batch,
    parse_message,
)
from raptormq.faststream.publisher import ReplyPublisher
from raptormq.logs import get_logger
from raptormq.transport.timing import Backoff, wait_event

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream.message import StreamMessage

log = get_logger(__name__)

_SETTLE_BACKOFF = Backoff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class Batch:
    """How the messages of one handler call are collected."""

    max_records: Count = 32
    """Maximum number of messages of a call."""
    timeout_ms: CountOrZero = 200
    """Milliseconds to wait for a full batch after its first message. Batches in order do not wait."""

    def __post_init__(self) -> None:
        check_setting("max_records", self.max_records, Count)
        check_setting("batch_timeout_ms", self.timeout_ms, CountOrZero)


@dataclass(kw_only=True)
class RaptorSubscriberConfig(SubscriberUsecaseConfig):
    """Configuration of one subscriber."""

    topic: str
    group: str
    expression: str | Sql
    consuming: ConsumerConfig
    batch: Batch | None

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, else that of its broker; by default a failed message is delivered again."""
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        outer = self._outer_config.ack_policy
        return AckPolicy.NACK_ON_ERROR if outer is EMPTY else outer


@dataclass(kw_only=True)
class RaptorSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """AsyncAPI fields of a subscriber."""

    topic: str


class RaptorSubscriberSpecification(SubscriberSpecification[RaptorBrokerConfig, RaptorSubscriberSpecificationConfig]):
    """Describes a subscriber for AsyncAPI."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        """The display names of the channel."""
        return [self.topic]

    @property
    def name(self) -> str:
        """The key of the channel."""
        return self.config.title_ or f"{self.topic}:{self.call_name}"

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the AsyncAPI channel by its key."""
        message = MessageSpec(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        spec = SubscriberSpec(
            address=self.topic,
            description=self.description,
            operation=Operation(message=message, bindings=None),
            bindings=None,
        )
        return {self.name: spec}


class RaptorSubscriber(SubscriberUsecase[Any]):
    """Consumes one topic as a member of a group. Without an order, ``concurrency`` loops take messages; in order, the
    client calls a listener.
    """

    _outer_config: RaptorBrokerConfig

    def __init__(
        self,
        config: RaptorSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        config.parser = parse_message if config.batch is None else parse_batch
        config.decoder = decode if config.batch is None else decode_batch
        super().__init__(config, specification, calls)
        self._config = config
        self._consumer: Consumer | None = None
        self._ordered: PushConsumer | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._bystander: asyncio.Task[None] | None = None
        """Task that does nothing. `asyncio.run` cancels it at its end, like all tasks; a handler that cancels its own
        task does not.
        """
        self._stopping = asyncio.Event()

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._config.group

    @property
    def takes_batches(self) -> bool:
        """Whether handlers get lists."""
        return self._config.batch is not None

    @property
    def expression(self) -> str | Sql:
        """The filter of messages."""
        return self._config.expression

    async def start(self) -> None:
        """Join the group and call handlers from now on.

        Raises:
            NoRoute, TransportError, ServerError: the consumer cannot be started.
        """
        await super().start()
        self._post_start()
        if not self.calls:
            return
        if self._config.consuming.order is not Order.NONE:
            self._ordered = PushConsumer(
                self.group, config=self._config.consuming, client_config=self._outer_config.client_config
            )
            self._ordered.subscribe(self.topic, self.expression, self._listen)
            await self._ordered.start()
            return
        self._stopping = asyncio.Event()  # a new one, because the subscriber may have been in another event loop
        consumer = await self._started_consumer()
        workers = self._config.consuming.concurrency
        self._bystander = background(sleep_forever(), f"loops of {self.group}")
        self._loops = [background(self._consume_all(consumer), f"loop of {self.group}") for _ in range(workers)]

    async def stop(self) -> None:
        """Wait for running handlers, commit and leave the group. Messages that are not settled are delivered again."""
        self._stopping.set()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
        if self._ordered is not None:
            # If a handler stops its subscriber, this call returns at once, and the broker's later stop waits for the
            # end.
            await self._ordered.stop()
        await super().stop()
        loops, self._loops = self._loops, []
        if self._bystander is not None:
            self._bystander.cancel()
        for loop in loops:
            if loop is not asyncio.current_task():  # a handler may stop its subscriber
                loop.cancel()

    async def get_one(self, *, timeout: float = 5.0) -> StreamRaptorMessage | None:
        """Return the next message, which the caller settles; None if none arrived within ``timeout`` seconds. Only for
        subscribers without handlers and without an order.
        """
        consumer = await self._started_consumer()
        try:
            async with asyncio.timeout(timeout):
                message = await anext(self._taken_from(consumer))
        except TimeoutError:
            return None
        return await self._parsed(message)

    async def __aiter__(self) -> AsyncIterator[StreamRaptorMessage]:
        """Iterate over messages, which the caller settles; as :meth:`get_one`."""
        async for message in self._taken_from(await self._started_consumer()):
            yield await self._parsed(message)

    async def _started_consumer(self) -> Consumer:
        if self._consumer is None:
            consumer = Consumer(
                self.group, config=self._config.consuming, client_config=self._outer_config.client_config
            )
            consumer.subscribe(self.topic, self.expression)
            await consumer.start()
            self._consumer = consumer
        return self._consumer

    def _taken_from(self, consumer: Consumer) -> AsyncIterator[ReceivedMessage | ReceivedBatch]:
        batch = self._config.batch
        if batch is None:
            return aiter(consumer)
        return consumer.batches(max_messages=batch.max_records, max_wait=batch.timeout_ms / 1000)

    async def _consume_all(self, consumer: Consumer) -> None:
        loop = asyncio.current_task()
        assert loop is not None
        async for taken in self._taken_from(consumer):
            unsettled = note_decisions(taken)
            try:
                await self.consume(taken)
            except asyncio.CancelledError:
                if loop.cancelling() and self._is_ending:
                    raise
                log.exception("a handler of group %s was cancelled by itself or by what it awaited", self.group)
                unsettled.decision = self._decision_on_error(taken)  # FastStream makes none
            except PROGRAM_ENDS:
                raise
            except BaseException:
                # FastStream has settled the message, but handles only an Exception. Without its loops a subscriber
                # consumes nothing.
                log.exception("a handler of group %s failed", self.group)
            if loop.cancelling():
                await self._undo_cancellation(loop)
            if self._config.ack_policy is not AckPolicy.MANUAL:
                await self._settle(unsettled)

    @property
    def _is_ending(self) -> bool:
        """Whether a cancelled loop has to end, because the subscriber stops, or `asyncio.run` cancels all tasks."""
        return self._stopping.is_set() or self._bystander is None or bool(self._bystander.cancelling())

    async def _undo_cancellation(self, loop: asyncio.Task[None]) -> None:
        """Let a loop go on whose handler has cancelled it."""
        try:
            await asyncio.sleep(0)  # raises a pending cancellation that `uncancel` did not remove
        except asyncio.CancelledError:
            if self._is_ending:
                raise
        log.error("a handler of group %s cancelled its own task, which goes on", self.group)
        while loop.uncancel():
            pass

    async def _settle(self, unsettled: Unsettled) -> None:
        """Repeat the decision about a message until a broker accepts it, the message is given up or the subscriber
        stops. The loop takes no further message meanwhile, because it could not settle that one either.
        """
        failures = 0
        while (decision := unsettled.decision) is not None:
            pause = _SETTLE_BACKOFF.pause(failures)
            failures += 1
            log.warning("group %s settles a message of topic %s in %g s", self.group, self.topic, pause)
            await wait_event(self._stopping, pause)
            if self._stopping.is_set():
                return
            unsettled.decision = None
            try:
                await decision()
            except RaptorMQError as error:
                if may_be_accepted(error):
                    unsettled.decision = decision
                else:  # such as that of a message that the handler has settled meanwhile
                    log.error("group %s: a message of topic %s is not settled: %s", self.group, self.topic, error)

    def _decision_on_error(self, taken: ReceivedMessage | ReceivedBatch) -> Callable[[], Awaitable[object]] | None:
        """Return what the policy decides about a message whose handler has failed."""
        match self._config.ack_policy:
            case AckPolicy.NACK_ON_ERROR:
                return taken.retry
            case AckPolicy.REJECT_ON_ERROR:
                return partial(taken.dead_letter, REJECTED)
            case AckPolicy.ACK:
                return taken.ack
        return None

    async def _listen(self, messages: list[MessageExt]) -> ConsumeResult:
        taken = OrderedMessage.of(messages[0]) if self._config.batch is None else OrderedBatch(messages)
        await self.consume(taken)
        if taken.is_acked:
            return ConsumeResult.SUCCESS
        # The consumer gives up a message whose retries are exhausted. It splits a failed batch first.
        if taken.is_rejected and len(messages) == 1:
            messages[0].reconsume_times = self._config.consuming.max_reconsume_times
        return ConsumeResult.RECONSUME_LATER

    async def _parsed(self, message: ReceivedMessage | ReceivedBatch) -> StreamRaptorMessage:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        parsed = await process_msg(
            msg=message,
            middlewares=(each(message, context=context) for each in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        assert isinstance(parsed, StreamRaptorMessage)
        return parsed

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        if self.takes_batches:  # a result of several messages is the reply to none of them
            return ()
        return (ReplyPublisher(self._outer_config.producer, message.raw_message),)

    def get_log_context(self, message: StreamMessage[MessageExt] | None) -> dict[str, str]:
        """Return the fields of log lines about a message."""
        return {"topic": self.topic, "group": self.group, "message_id": getattr(message, "message_id", "")}


def consuming(
    config: ConsumerConfig | None, order: Order | None, max_workers: int | None, batch: Batch | None
) -> ConsumerConfig:
    """Return the consumer settings of a subscriber: ``config``, overridden by the other arguments.

    Raises:
        ConfigError: a value is out of range.
    """
    changes: dict[str, Any] = {"consume_batch": 1 if batch is None else batch.max_records}
    if order is not None:
        changes["order"] = order
    if max_workers is not None:
        changes["concurrency"] = max_workers
    return replace(config or ConsumerConfig(), **changes)
