"""`PushConsumer`: reads subscribed topics, shares the queues with the other members of its group, and calls listeners.

    async def consume(messages: list[MessageExt]) -> None:
        ...

    async with PushConsumer("billing", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || refunded", consume)
        await asyncio.Event().wait()

`subscribe_batches` takes listeners of whole batches. Every message is delivered at least once: the committed offset is
that of the first unfinished message, so some messages are delivered again after a crash. `ConsumerConfig.order` keeps
the order of messages, by queue or by key; without it messages of a queue are consumed concurrently.
Neighbours: `consumer.rebalance` assigns queues, `consumer.handover` hands them over, `consumer.queue_reader` fetches,
`consumer.listener_pool` and, in order, `consumer.ordered_pool` call listeners, `consumer.send_back` returns failed
messages, `consumer.offset_commits` commits. Source: RocketMQ `DefaultMQPushConsumer`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from raptormq.client.background import background
from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumerConfig, GeneratedName, MessageModel, Order
from raptormq.client.consumer.broker_outages import BrokerOutages
from raptormq.client.consumer.handover import Handover, QueueLocks
from raptormq.client.consumer.inspection import ConsumerInspection, QueueState, RunningInfo
from raptormq.client.consumer.listener_call import BatchListener, Listener, WholeBatches
from raptormq.client.consumer.listener_pool import ListenerPool
from raptormq.client.consumer.local_offsets import DEFAULT_NAME, LocalOffsets
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.ordered_pool import OrderedPool
from raptormq.client.consumer.paused_queues import PausedQueues
from raptormq.client.consumer.queue_reader import PullPace, QueueReader, ReaderContext
from raptormq.client.consumer.rebalance import Rebalancer
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.subscription import Sql, subscription_to
from raptormq.client.lifecycle import Shutdown, require_loop, warn_unclosed
from raptormq.client.listener_checks import require_async, warn_if_plain
from raptormq.client.message import as_queues
from raptormq.client.settings import check_setting
from raptormq.errors import ClientError, ConsumptionStopped
from raptormq.protocol.bodies.heartbeat import ConsumerData, Subscription
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.topic_names import check_group, check_topic, retry_topic


class PushConsumer:
    """One member of a consumer group.

    Args:
        group: name of the group; all members subscribe to the same topics with the same tags.
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        config: how to fetch, consume and commit.
        client_config: shared connections; consumers of one group need different ones.

    Raises:
        MessageError: `group` is not a group name.
        ConfigError: an address is not `host:port`, or a configuration is invalid.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        self._running: _StartedConsumer | None = None
        check_group(group)
        self._group = group
        check_setting("config", config, ConsumerConfig | None)
        self._config = config or ConsumerConfig()
        self._client_config = ClientConfig.choose(client_config, name_servers)
        self._subscriptions: dict[str, Subscription] = {}
        self._listeners: dict[str, Listener | WholeBatches] = {}
        self._paused = PausedQueues()
        self._failure: ConsumptionStopped | None = None
        self._ending: asyncio.Task[None] | None = None
        """The stop after that failure."""
        self._shutdown = Shutdown(f"a consumer of {group}")

    def subscribe(self, topic: str, expression: str | Sql, listener: Listener) -> None:
        """Subscribe to a topic; a second call replaces expression and listener. A started consumer reads it from now
        on.

        Args:
            topic: a topic. It has to exist when the consumer is started, unless `ConsumerConfig.allow_missing_topics`
                is set; a started consumer waits for it and warns.
            expression: `*`, tags as in `TagA || TagB`, or `Sql` for a filter by properties.
            listener: `async` function of a list of messages, one by default. It returns `None` or
                `ConsumeResult.SUCCESS` when they are consumed. After `ConsumeResult.RECONSUME_LATER` or an exception
                they are delivered again later. A listener that turns out to be a plain function is not called again: an
                error is logged, and the messages of the topic wait for another subscription.

        Raises:
            MessageError: the topic name or the expression is invalid.
            ClientError: the listener cannot be called, or is certainly a plain function.
        """
        self._subscribe(topic, expression, listener)

    def subscribe_batches(self, topic: str, expression: str | Sql, listener: BatchListener) -> None:
        """Subscribe to a topic batch by batch: fewer calls, and messages are decoded on access.

        Messages that were sent as one batch to a topic of queue type BatchCQ arrive as one `MessageBatch`. On other
        topics a batch has the messages of one pull.

        Args:
            topic, expression: as in `subscribe`; messages of a batch without a wanted tag are left out.
            listener: `async` function of a `MessageBatch`. It returns what `subscribe` allows, or the indexes of the
                messages to deliver again later, one by one; the others are consumed.

        Raises:
            MessageError: the topic name or the expression is invalid.
            ClientError: the listener cannot be called, or is certainly a plain function, or the consumer has an order.
        """
        if self._config.order is not Order.NONE:
            raise ClientError(
                f"a consumer with order={self._config.order} has no batch listeners: use subscribe, and consume_batch "
                "for calls with several messages"
            )
        self._subscribe(topic, expression, WholeBatches(listener))

    def _subscribe(self, topic: str, expression: str | Sql, listener: Listener | WholeBatches) -> None:
        check_topic(topic)
        function = listener.listener if isinstance(listener, WholeBatches) else listener
        require_async(function, "a listener")
        warn_if_plain(function, "a listener")
        self._subscriptions[topic] = subscription_to(topic, expression, time.time_ns() // 1_000_000)
        self._listeners[topic] = listener
        if self._running is not None:
            self._running.members_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; does nothing for a topic without a subscription."""
        self._listeners.pop(topic, None)
        if self._subscriptions.pop(topic, None) is not None and self._running is not None:
            self._running.members_changed()

    async def start(self) -> None:
        """Join the group and start reading; does nothing when it is started.

        Returns when each subscribed topic has a route and a broker of it has returned the members of the group. With
        `ConsumerConfig.allow_missing_topics` it returns at once, and what is missing is logged.

        Raises:
            NoRoute: a topic does not exist, or no broker that has it is up, for `ConsumerConfig.start_timeout`.
            RequestTimeout: no name server, or no broker of a topic, has answered for that time.
            ServerError: a server refuses, for example because a right is missing.
            ClientClosed: `stop` was called in the meantime.
            ClientError: the group already has a consumer with this `client_config`, or the offsets of a broadcasting
                consumer cannot be read or stored.
        """
        await self._shutdown.wait()
        if self._running is not None:
            return
        if self._config.message_model is MessageModel.CLUSTERING:
            retries = retry_topic(self._group)
            self._subscriptions[retries] = Subscription.parse(retries, "*", time.time_ns() // 1_000_000)
        instance = ClientInstance.acquire(self._client_config)
        try:
            running = _StartedConsumer(
                instance,
                self._group,
                self._config,
                self._subscriptions,
                self._listeners,
                self._paused,
                self._stop_after_failure,
            )
            await running.start()
        except BaseException:
            await instance.release()
            raise
        self._running, self._failure = running, None
        try:
            await running.wait_for_topics()
        except BaseException:
            if self._running is running:
                await self.stop()
            raise

    async def stop(self) -> None:
        """Wait for running listener calls, commit and leave the group; does nothing when it is stopped, and is bounded
        by timeouts. A cancelled stop continues in the background. Called in a listener it returns at once, because the
        stop waits for that listener.

        Raises:
            ClientClosed: this is not the event loop that the consumer was started in.
        """
        running = self._running
        if running is None:
            await self._shutdown.wait()
        else:
            require_loop(running.loop)
            self._running = None
            await self._shutdown.run(running.stop(), running.listeners)

    def _stop_after_failure(self, failure: ConsumptionStopped) -> None:
        self._failure = failure
        self._ending = background(self.stop(), f"end of a consumer of {self._group}")

    async def wait(self) -> None:
        """Wait until the consumer is stopped; returns at once when it is not started.

        Raises:
            ConsumptionStopped: it has stopped because a message could not be consumed, and `on_failure` is `STOP`.
        """
        running = self._running
        if running is not None:
            await running.ended.wait()
        await self._shutdown.wait()
        if self._failure is not None:
            raise self._failure

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pause queues: nothing is fetched and no listener call begins for them. Running calls go on, and the queues
        stay assigned. The pause lasts until `resume`, even if a queue is assigned to another member in the meantime.

        Args:
            queues: queues that need not be assigned to this member; `None` for all, now and later.

        Raises:
            ClientError: a value is not a queue.
        """
        self._paused.pause(None if queues is None else as_queues(queues))
        self._apply_pauses()

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with queues after `pause`; with `None` with all. Queues that are not paused are left alone.

        Raises:
            ClientError: a value is not a queue.
        """
        self._paused.resume(None if queues is None else as_queues(queues))
        self._apply_pauses()

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused, in order."""
        return [queue for queue in self.assignment if queue in self._paused]

    def _apply_pauses(self) -> None:
        for reader in self._running.rebalancer.readers if self._running is not None else ():
            if reader.queue not in self._paused:
                reader.resume()
            else:
                reader.pause()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        if self._running is not None:
            warn_unclosed(self, "stop")

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now, in order."""
        return sorted(reader.queue for reader in self._running.rebalancer.readers) if self._running else []


class _StartedConsumer:
    """The parts of a started consumer; for the client instance it is the member of the group."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        config: ConsumerConfig,
        subscriptions: dict[str, Subscription],
        listeners: dict[str, Listener | WholeBatches],
        paused: PausedQueues,
        stopped: Callable[[ConsumptionStopped], None],
    ) -> None:
        self._instance = instance
        self.loop = instance.loop
        self._group = group
        self._config = config
        self._started_ms = time.time_ns() // 1_000_000
        self._subscriptions = subscriptions
        self.ended = asyncio.Event()
        redelivery = Redelivery(instance, group, config)
        is_ordered = config.order is not Order.NONE
        self._listener_pool = (
            OrderedPool(config, group, listeners.get, redelivery, stopped)
            if is_ordered
            else ListenerPool(config, group, listeners.get, redelivery)
        )
        broadcasts = config.message_model is MessageModel.BROADCASTING
        self._local = _local_offsets(instance, config, group) if broadcasts else None
        self._committer = OffsetCommitter(instance, group, config.commit_interval, self._local)
        self._locks = None if broadcasts else QueueLocks(instance, group, exclusive=is_ordered)
        pool = self._listener_pool
        pace, outages = PullPace(), BrokerOutages(group)
        context = ReaderContext(instance, config, group, pool.submit, self._local, pace, outages, pool.resume)

        def new_reader(queue: MessageQueue, subscription: Subscription) -> QueueReader:
            def whole() -> bool:
                return isinstance(listeners.get(queue.topic), WholeBatches)

            reader = QueueReader(context, queue, subscription, whole)
            if queue in paused:
                reader.pause()
            return reader

        self.rebalancer = Rebalancer(
            instance,
            group,
            config.rebalance_interval,
            lambda: subscriptions,
            new_reader,
            Handover(self._locks, self._committer, config.hand_over_timeout),
            shared=not broadcasts,
        )

    async def start(self) -> None:
        """Join the group and start all parts; raises `ClientError` when the instance is already a member of it."""
        self._instance.shared(ConsumerInspection)
        try:
            self._instance.register_consumer(self._group, self)
        except ClientError:
            await self._close_local()
            raise
        self._listener_pool.start()
        if self._locks is not None:
            self._locks.start(self.rebalancer.locks_lost, self.rebalancer.locks_confirmed)
        self.rebalancer.start()
        self._committer.start(lambda: self.rebalancer.readers)

    async def wait_for_topics(self) -> None:
        """Wait until all subscribed topics can be read, unless they need not exist yet; raises what `start` raises."""
        if not self._config.allow_missing_topics:
            wanted = [topic for topic in self._subscriptions if topic != retry_topic(self._group)]
            await self.rebalancer.wait_for_topics(wanted, self._config.start_timeout)

    @property
    def listeners(self) -> Collection[asyncio.Task[None]]:
        """The tasks that call listeners."""
        return self._listener_pool.workers

    async def stop(self) -> None:
        """Stop in the order that loses and repeats nothing: listeners, queues, membership."""
        await self._listener_pool.stop(self._instance.config.close_timeout)
        await self._committer.stop()
        if self._locks is not None:
            await self._locks.stop()
        await self.rebalancer.stop()
        await self._close_local()
        await self._instance.unregister_consumer(self._group)
        await self._instance.release()
        self.ended.set()

    async def _close_local(self) -> None:
        if self._local is not None:
            await self._local.close()

    def describe(self) -> ConsumerData:
        """Return the data for heartbeats."""
        return ConsumerData(
            self._group,
            message_model=self._config.message_model.value,
            consume_from_where=self._config.consume_from.value,
            subscriptions=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        """Rebalance soon."""
        self.rebalancer.trigger()

    def connection_made(self) -> None:
        """Renew the queue locks."""
        if self._locks is not None:
            self._locks.renew_soon()

    def connection_lost(self) -> None:
        """Rebalance now and for a while."""
        self.rebalancer.connection_lost()

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets in those of the queues that this member reads."""
        for reader in self.rebalancer.readers:
            if reader.queue in offsets:
                reader.reset_to(offsets[reader.queue])

    def running_info(self) -> RunningInfo:
        """Describe queues, subscriptions and settings."""
        queues = {
            reader.queue: QueueState(
                reader.process_queue.commit_offset,
                reader.process_queue.next_offset,
                reader.process_queue.unfinished_messages,
                reader.process_queue.unfinished_bytes,
            )
            for reader in self.rebalancer.readers
            if reader.process_queue is not None
        }
        properties = {
            "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMEORDERLY": "false" if self._config.order is Order.NONE else "true",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.config.addresses),
            "PROP_THREADPOOL_CORE_SIZE": str(self._config.concurrency),
        }
        return RunningInfo(queues, list(self._subscriptions.values()), properties)

    async def consume_directly(self, message: MessageExt) -> tuple[str, str]:
        """Call the listener of the message's topic."""
        done = await self._listener_pool.consume_directly(message)
        return ("CR_SUCCESS", "") if done else ("CR_LATER", "the listener failed or asked for the message again")


def _local_offsets(instance: ClientInstance, config: ConsumerConfig, group: str) -> LocalOffsets:
    client_id = instance.client_id
    if isinstance(instance.config.instance_name, GeneratedName):
        client_id = f"{client_id.partition('@')[0]}@{DEFAULT_NAME}"
    return LocalOffsets(Path(config.offset_folder).expanduser(), client_id, group)
