"""`PopConsumer`: consumes messages without assigned queues. The broker delivers each message to one member at a time.

    async with PopConsumer("billing", "orders", name_servers="127.0.0.1:9876") as consumer:
        async for batch in consumer.batches(max_messages=16):
            ...
            await batch.ack()

A popped message is invisible to other members for some time (`invisible_time`). If it is not acknowledged by then, it
is delivered again, up to `max_reconsume_times` times. There is no rebalance and no offset to commit. Any number of
members share one queue, and an unresponsive member delays only its own messages. Order is not kept. Brokers must be
RaptorMQ's, or Apache RocketMQ 5.0 or later.

All members of a group must pop. In a mixed group, a rebalance would assign some queues to members that pop, and these
queues would remain unread.

`receive` waits for a notification, which delivers no messages, and then pops without waiting. The messages of a pop
whose caller is cancelled would be invisible to all members. The pop therefore continues, and its messages are kept for
another call::

    receive --pop--> response --> the caller
               `-- cancelled: response --> kept --> a call that waits, or the next call

See also: `consumer.popped_message` settles messages, `consumer.pop_requests` sends requests, `consumer.pop_member`
joins the group, `consumer.pop_exhausted` stores dead letters, `consumer.consumer` is the consumer with queues. Source:
RocketMQ 5 `SimpleConsumer` for the calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from raptormq.client.background import cancel_all
from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumeFromWhere, ConsumerConfig
from raptormq.client.consumer.delayed_retry import DelayedRetry
from raptormq.client.consumer.delivery import DeliveryState, current_holder
from raptormq.client.consumer.messages_in_hand import MessagesInHand
from raptormq.client.consumer.pop_exhausted import ExhaustedMessages
from raptormq.client.consumer.pop_member import PopMember
from raptormq.client.consumer.pop_requests import Popped, PopRequests
from raptormq.client.consumer.popped_message import Invisible, PopDelivery, PoppedBatch, PoppedMessage
from raptormq.client.consumer.subscription import Sql, subscription_to
from raptormq.client.description import ConsumerDescription, QueueDescription, ReadState
from raptormq.client.interceptors import ConsumeChain, ConsumerInterceptor
from raptormq.client.lifecycle import Shutdown, Startable, require_loop
from raptormq.client.producer import MessageTrace
from raptormq.client.settings import Count, Limits, SecondsOrZero, check_setting
from raptormq.errors import ClientClosed, ConfigError, NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.topic_names import TRACE_TOPIC, check_group, check_topic

log = get_logger(__name__)

MAX_POPPED = 32
"""Most messages that brokers return for one pop."""
_LONGEST_WAIT_S = 15.0
"""Maximum time in seconds that a notification request waits at a broker."""
_RETRY_PAUSE_S = 1.0
_REFUSED_FOR_NOW = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)
"""Codes of a broker that does not serve at the moment, such as a former leader."""


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
        max_reconsume_times: how often a message is delivered again, after `PoppedMessage.retry` or the end of its
            invisible time. Then it becomes a dead letter.
        message_trace, trace_topic, interceptors: as in `ConsumerConfig`.
        client_config: shared connections; consumers of one group need different ones.

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
        max_reconsume_times: int = 16,
        message_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        interceptors: Sequence[ConsumerInterceptor] = (),
        client_config: ClientConfig | None = None,
    ) -> None:
        check_group(group)
        check_topic(topic)
        check_setting("invisible_time", invisible_time, Invisible)
        self._config = ConsumerConfig(
            consume_from=consume_from,
            max_reconsume_times=max_reconsume_times,
            message_trace=message_trace,
            trace_topic=trace_topic,
            interceptors=interceptors,
        )
        if consume_from is ConsumeFromWhere.TIMESTAMP:
            raise ConfigError("consume_from of a pop consumer must be FIRST or LAST, not TIMESTAMP")
        self.group = group
        """Name of the group."""
        self._topic = topic
        self._subscription: Subscription = subscription_to(topic, expression, time.time_ns() // 1_000_000)
        self._invisible_ms = round(invisible_time * 1000)
        self._client_config = ClientConfig.choose(client_config, name_servers)
        self._running: _Running | None = None
        self._shutdown = Shutdown(f"a pop consumer of {group}")
        self._ending: MessagesInHand[PopDelivery] | None = None
        """The messages for which the last close waits."""
        self._closed = asyncio.Event()
        self._has_started = False
        self._turn = 0
        """Number of receives, so that each begins at another broker."""
        self._failures: dict[str, str] = {}
        """Brokers whose last pop has failed, and why."""
        self._kept: deque[PoppedMessage] = deque()
        """Messages of cancelled calls, which another call returns."""
        self._has_kept = asyncio.Event()
        """Set while there are messages in :attr:`_kept`."""
        self._popping: set[asyncio.Task[list[Popped]]] = set()
        """Pops whose callers were cancelled."""

    async def start(self) -> None:
        """Start the consumer; does nothing when it is started.

        Raises:
            ClientError: the group already has a consumer with this `client_config`.
        """
        await self._shutdown.wait()
        if self._running is not None:
            return
        instance = ClientInstance.acquire(self._client_config)
        trace = MessageTrace.start(self._client_config, self.group, self._config)
        traced = () if trace is None else (trace.interceptor,)
        interceptors = ConsumeChain(self.group, (*self._config.interceptors, *traced))
        consume_from = self._config.consume_from
        from_last = consume_from is ConsumeFromWhere.LAST
        requests = PopRequests(instance, self.group, self._subscription, self._invisible_ms, from_last=from_last)
        retries = DelayedRetry(instance, self.group, self._config, interceptors)
        in_hand = MessagesInHand[PopDelivery](self.group, interceptors)
        try:
            member = PopMember(instance, self.group, consume_from, self._subscription, in_hand)
        except BaseException:
            if trace is not None:
                await trace.close()
            await instance.release()
            raise
        exhausted = ExhaustedMessages(self.group, self._config.max_reconsume_times, requests, retries)
        self._instance = instance
        self._running = _Running(instance, member, requests, retries, exhausted, in_hand, interceptors, trace)
        self._closed, self._has_started = asyncio.Event(), True
        interceptors.started(self)

    async def close(self) -> None:
        """End all waiting, and wait for other tasks to settle their messages (`ClientConfig.close_timeout`); does
        nothing when it is closed. Messages that are not settled are delivered again after their invisible time. A
        cancelled close continues in the background.

        Raises:
            ClientClosed: the consumer was started in another event loop.
        """
        running = self._running
        if running is None:
            if self._ending is not None:
                self._ending.disregard_caller()
            await self._shutdown.wait()
        else:
            require_loop(running.instance.loop)
            self._running = self._instance = None
            self._ending = running.in_hand
            self._closed.set()
            self._ending.disregard_caller()
            await self._shutdown.run(self._end(running))

    async def _end(self, running: _Running) -> None:
        timeout = running.instance.config.close_timeout
        await asyncio.gather(running.in_hand.end(timeout), running.exhausted.end(timeout), cancel_all(self._popping))
        self._kept.clear()
        self._has_kept.clear()
        await running.member.leave()
        if running.trace is not None:
            await running.trace.close()
        await running.instance.release()
        running.interceptors.closed(self)

    async def receive(self, max_messages: int = MAX_POPPED, *, timeout: float = 15.0) -> list[PoppedMessage]:
        """Wait for messages and pop them; empty if none arrived within `timeout` seconds, or if the consumer was closed
        meanwhile. The messages of one call are from one broker. A cancelled call takes no messages: those of a pop in
        flight are returned by another call.

        Args:
            max_messages: maximum number of messages, at most 32.
            timeout: seconds to wait for a message; 0 not to wait.

        Raises:
            ConfigError: an argument is out of range.
            NoRoute: the topic does not exist, or no broker of it is up.
            TransportError: no broker of the topic has responded.
            ServerError: a broker refuses, or none serves until the timeout; code 26 if it does not have the group and
                does not create groups.
            ClientClosed: not started, or closed.
        """
        check_setting("max_messages", max_messages, Annotated[int, Limits(MAX_POPPED)])
        check_setting("timeout", timeout, SecondsOrZero)
        running, closed = self._started(), self._closed
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            if kept := self._take_kept(max_messages):
                return kept
            try:
                found, failure = await self._pop_anywhere(running, max_messages)
                left = deadline - clock()
                if found or closed.is_set():
                    return [] if closed.is_set() else found
                if left <= 0:
                    if failure is not None:
                        raise failure
                    return []
                pause = _LONGEST_WAIT_S if failure is None else _RETRY_PAUSE_S
                await self._wait_for_messages(running, closed, min(left, pause))
            except RaptorMQError:
                if closed.is_set():
                    return []
                raise
            if closed.is_set():
                return []

    def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        """Iterate over messages, one pop for each, until the consumer is closed."""
        return self

    async def __anext__(self) -> PoppedMessage:
        """Return the next message; raises what `receive` raises.

        Raises:
            StopAsyncIteration: the consumer is closed.
        """
        if taken := await self._take(1):
            return taken[0]
        raise StopAsyncIteration

    def batches(self, *, max_messages: int = MAX_POPPED, max_wait: float = 1.0) -> AsyncGenerator[PoppedBatch, None]:
        """Iterate over batches of messages, until the consumer is closed. The loop raises what `receive` raises.

        Args:
            max_messages: maximum number of messages of a batch. More than 32 are popped by several requests.
            max_wait: seconds to wait for a full batch after its first message. The invisible time passes meanwhile.

        Raises:
            ConfigError: an argument is out of range.
            ClientClosed: the consumer was never started, or was started in another event loop.
        """
        check_setting("max_messages", max_messages, Count)
        check_setting("max_wait", max_wait, SecondsOrZero)
        if self._running is not None or not self._has_started:
            self._started()
        return self._batches(max_messages, max_wait)

    async def _batches(self, max_messages: int, max_wait: float) -> AsyncGenerator[PoppedBatch, None]:
        while taken := await self._take(min(max_messages, MAX_POPPED)):
            await self._fill(taken, max_messages, max_wait)
            yield PoppedBatch(taken)

    async def _take(self, most: int) -> list[PoppedMessage]:
        """Wait for messages without a limit of time; none only if the consumer is closed."""
        if self._running is None and self._has_started:
            return []
        closed = self._closed
        while not (taken := await self.receive(most)) and not closed.is_set():
            pass
        return taken

    async def _fill(self, taken: list[PoppedMessage], most: int, max_wait: float) -> None:
        """Add messages up to `most`, or until `max_wait` seconds have passed. An error ends the batch and is logged."""
        clock = asyncio.get_running_loop().time
        deadline, closed = clock() + max_wait, self._closed
        try:
            while len(taken) < most and (left := deadline - clock()) > 0 and not closed.is_set():
                taken += await self.receive(min(most - len(taken), MAX_POPPED), timeout=left)
        except RaptorMQError as error:
            log.info("group %s gets a smaller batch of topic %s: %s", self.group, self._topic, error)
        except BaseException:
            self._keep(taken)
            raise

    def _keep(self, messages: Iterable[PoppedMessage]) -> None:
        """Keep messages for a call that waits now, or for the next call."""
        self._kept += messages
        if self._kept:
            self._has_kept.set()

    def _take_kept(self, most: int) -> list[PoppedMessage]:
        """Return messages of cancelled calls whose invisible time is not over."""
        taken: list[PoppedMessage] = []
        while self._kept and len(taken) < most:
            message = self._kept.popleft()
            if message._delivery.state is DeliveryState.OPEN:  # noqa: SLF001
                message._delivery.holder = current_holder()  # noqa: SLF001
                taken.append(message)
        if not self._kept:
            self._has_kept.clear()
        return taken

    def describe(self) -> ConsumerDescription:
        """Return the queues of the topic with the messages in hand and errors; offsets and lags are not known, because
        brokers keep them. Sends no request.
        """
        subscriptions = {self._topic: self._subscription.expression}
        if (running := self._running) is None:
            return ConsumerDescription(self.group, None, subscriptions, (), ())
        found = running.instance.routes.cached(self._topic)
        count, size = Counter[object](), Counter[object]()
        for delivery in running.in_hand:
            count[delivery.message.queue] += 1
            size[delivery.message.queue] += len(delivery.message.body)
        queues = tuple(
            QueueDescription(
                queue,
                ReadState.FAILING if queue.broker_name in self._failures else ReadState.READING,
                *(None, None, None),
                unfinished_messages=count[queue],
                unfinished_bytes=size[queue],
                running_calls=count[queue],
                error=self._failures.get(queue.broker_name),
            )
            for queue in sorted(() if found is None else found.read_queues)
        )
        return ConsumerDescription(self.group, running.instance.client_id, subscriptions, queues, ())

    async def _pop_anywhere(self, running: _Running, count: int) -> tuple[list[PoppedMessage], RaptorMQError | None]:
        """Pop from the brokers in turn until one has messages. Return an error only if all have failed."""
        found = await running.instance.routes.find(self._topic)
        brokers = sorted({queue.broker_name for queue in found.read_queues})
        self._turn += 1
        failure: RaptorMQError | None = None
        failures = 0
        for number in range(len(brokers)):
            broker = brokers[(self._turn + number) % len(brokers)]
            try:
                popped = await self._pop(running, broker, found.master(broker), count)
            except (ServerError, TransportError, NoRoute) as error:
                self._failures[broker] = str(error)
                if isinstance(error, ServerError) and error.code not in _REFUSED_FOR_NOW:
                    raise
                running.instance.routes.refresh_soon(self._topic)
                log.info(
                    "group %s cannot pop messages of %s from %s; retrying: %s",
                    self.group,
                    self._topic,
                    broker,
                    error,
                )
                failure, failures = error, failures + 1
                continue
            self._failures.pop(broker, None)
            if received := self._received(running, popped):
                return received, None
        return [], failure if failures == len(brokers) else None

    async def _pop(self, running: _Running, broker: str, address: str | None, count: int) -> list[Popped]:
        """Pop messages of one broker. If the call is cancelled, the pop continues, and its messages are kept."""
        popping = asyncio.ensure_future(running.requests.pop(broker, address, count))
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            self._popping.add(popping)
            popping.add_done_callback(partial(self._keep_popped, running))
            raise

    def _keep_popped(self, running: _Running, popping: asyncio.Task[list[Popped]]) -> None:
        self._popping.discard(popping)
        if popping.cancelled():
            return
        if (error := popping.exception()) is not None:
            log.info("group %s: a pop of topic %s has failed: %s", self.group, self._topic, error)
        else:
            self._keep(self._received(running, popping.result()))

    def _received(self, running: _Running, popped: list[Popped]) -> list[PoppedMessage]:
        """Return popped messages for the application, without those that become dead letters."""
        if self._running is not running:
            return []
        deliveries = [
            PopDelivery(running.requests, each, running.retries, running.in_hand.ended)
            for each in running.exhausted.without(popped)
        ]
        received = [PoppedMessage.of(delivery.message, delivery) for delivery in deliveries]
        for delivery, message in zip(deliveries, received, strict=True):
            running.in_hand.begin(delivery, message)
        return received

    async def _wait_for_messages(self, running: _Running, closed: asyncio.Event, seconds: float) -> None:
        """Wait until a broker has messages, messages of a cancelled call are kept, the consumer is closed, or the time
        is over.
        """
        found = await running.instance.routes.find(self._topic)
        events = closed, self._has_kept
        waiting: set[asyncio.Future[bool]] = {asyncio.ensure_future(event.wait()) for event in events}
        for broker in {queue.broker_name for queue in found.read_queues}:
            address = found.master(broker)
            if address is not None:
                waiting.add(asyncio.ensure_future(running.requests.has_messages(address, seconds)))
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

    def _started(self) -> _Running:
        if self._running is None:
            raise ClientClosed("the consumer is not started, or closed: use async with, or await its start()")
        require_loop(self._running.instance.loop)
        return self._running


class _Running(NamedTuple):
    """The parts of a started consumer."""

    instance: ClientInstance
    member: PopMember
    requests: PopRequests
    retries: DelayedRetry
    exhausted: ExhaustedMessages
    in_hand: MessagesInHand[PopDelivery]
    interceptors: ConsumeChain
    trace: MessageTrace | None
