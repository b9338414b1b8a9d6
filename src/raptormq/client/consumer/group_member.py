"""One member of a consumer group while it is started: its queues, offsets, locks and membership.

`GroupMember` connects the parts of a consumer. Fetched messages are passed to its `Consumption`: a pool that calls
listeners, or a buffer from which the application takes messages.

See also: `consumer.group_consumer` starts and stops members; `consumer.rebalance` assigns queues, `consumer.handover`
hands them over, `consumer.queue_reader` fetches, `consumer.offset_commits` commits. Source: RocketMQ
`DefaultMQPushConsumerImpl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ConsumerConfig, GeneratedName, MessageModel, Order
from raptormq.client.consumer.broker_outages import BrokerOutages
from raptormq.client.consumer.handover import Handover, QueueLocks
from raptormq.client.consumer.inspection import ConsumerInspection, QueueState, RunningInfo, common_properties
from raptormq.client.consumer.local_offsets import DEFAULT_NAME, LocalOffsets
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.paused_queues import PausedQueues
from raptormq.client.consumer.process_queue import ProcessQueue, now_ms
from raptormq.client.consumer.queue_reader import PullPace, QueueReader, ReaderContext
from raptormq.client.consumer.rebalance import Rebalancer
from raptormq.client.consumer.rebalance_calls import RebalanceCalls
from raptormq.client.description import ConsumerDescription, WorkerDescription
from raptormq.client.interceptors import ConsumeChain
from raptormq.errors import ClientError
from raptormq.protocol.bodies.heartbeat import CONSUME_PASSIVELY, ConsumerData, Subscription
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.topic_names import retry_topic


class Consumption(Protocol):
    """Consumes fetched messages."""

    @property
    def workers(self) -> Collection[asyncio.Task[None]]:
        """The tasks of the application that `stop` waits for."""

    def start(self) -> None:
        """Start; called once."""

    def describe(self) -> tuple[WorkerDescription, ...]:
        """Return the state of each worker."""

    def submit(self, reader: QueueReader, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Take messages of one queue, in order, or a batch that is completed as a whole. Does not block."""

    def resume(self, reader: QueueReader) -> None:
        """Continue with the submitted messages of a queue after a pause, or discard them when it is no longer read."""

    async def consume_directly(self, message: MessageExt) -> bool:
        """Consume a message from an administrator. Return True if it was consumed."""

    async def stop(self, timeout: float) -> None:
        """Stop within about `timeout` seconds."""


class GroupMember:
    """The parts of a started consumer. It is registered at the client instance as the member of the group.

    Args:
        instance: connections, routes and heartbeats.
        group: the consumer group.
        config: how to fetch and commit.
        subscriptions: the subscriptions by topic; they may change.
        consumption: takes the fetched messages.
        whole: returns whether the batches of a topic are submitted, and completed, as a whole.
        paused: queues that the application has paused.
        interceptors: notified of assigned, revoked and lost queues.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        config: ConsumerConfig,
        subscriptions: dict[str, Subscription],
        consumption: Consumption,
        whole: Callable[[str], bool],
        paused: PausedQueues,
        interceptors: ConsumeChain,
    ) -> None:
        self.interceptors = interceptors
        self.instance = instance
        self.loop = instance.loop
        self._group = group
        self._config = config
        self._started_ms = now_ms()
        self._subscriptions = subscriptions
        self.ended = asyncio.Event()
        self._consumption = consumption
        broadcasts = config.message_model is MessageModel.BROADCASTING
        self._local = _local_offsets(instance, config, group) if broadcasts else None
        self._committer = OffsetCommitter(instance, group, config.commit_interval, self._local)
        self._locks = None if broadcasts else QueueLocks(instance, group, exclusive=config.order is not Order.NONE)
        pace, outages = PullPace(), BrokerOutages(group)
        context = ReaderContext(
            instance, config, group, consumption.submit, self._local, pace, outages, consumption.resume
        )

        def new_reader(
            queue: MessageQueue, subscription: Subscription, ready: asyncio.Task[None] | None
        ) -> QueueReader:
            reader = QueueReader(context, queue, subscription, lambda: whole(queue.topic), ready)
            if queue in paused:
                reader.pause()
            return reader

        calls = RebalanceCalls(config.rebalance_listener, group, config.hand_over_timeout, interceptors)
        self._handover = Handover(self._locks, self._committer, config.hand_over_timeout, calls)
        self.rebalancer = Rebalancer(instance, group, config, lambda: subscriptions, new_reader, self._handover, calls)

    async def start(self) -> None:
        """Join the group and start all parts. Raises `ClientError` if the instance already has a group member."""
        self.instance.shared(ConsumerInspection)
        try:
            self.instance.register_consumer(self._group, self)
        except ClientError:
            await self._close_local()
            raise
        self._consumption.start()
        if self._locks is not None:
            self._locks.start(self.rebalancer.locks_lost, self.rebalancer.locks_confirmed)
        self.rebalancer.start()
        self._committer.start(lambda: self.rebalancer.readers)

    async def wait_for_topics(self) -> None:
        """Wait until all subscribed topics can be read, if they must exist. Raises as `GroupConsumer.start`."""
        if not self._config.allow_missing_topics:
            wanted = [topic for topic in self._subscriptions if topic != retry_topic(self._group)]
            await self.rebalancer.wait_for_topics(wanted, self._config.start_timeout)

    @property
    def listeners(self) -> Collection[asyncio.Task[None]]:
        """The tasks that call listeners."""
        return self._consumption.workers

    async def stop(self) -> None:
        """Stop the listeners, release the queues and leave the group, in this order, without loss or duplicates."""
        await self._consumption.stop(self.instance.config.close_timeout)
        await self._committer.stop()
        if self._locks is not None:
            await self._locks.stop()
        await self.rebalancer.stop()
        await self._close_local()
        await self.instance.unregister_consumer(self._group)
        await self.instance.release()
        self.ended.set()

    async def _close_local(self) -> None:
        if self._local is not None:
            await self._local.close()

    async def commit(self) -> None:
        """Commit the offsets of all queues now, also of those that are being handed over.

        Raises:
            TransportError, ServerError, NoRoute: a broker did not accept an offset; all others were tried.
        """
        # Queues of handovers come first, before the handover commits them itself and logs a failure only.
        readers = [*self._handover.revoking, *self.rebalancer.readers]
        for failure in (await self._committer.commit_now(readers)).values():
            raise failure

    def snapshot(self) -> ConsumerDescription:
        """Return a snapshot of this consumer."""
        readers = sorted(self.rebalancer.readers, key=lambda reader: reader.queue)
        return ConsumerDescription(
            self._group,
            self.instance.client_id,
            {topic: subscription.expression for topic, subscription in self._subscriptions.items()},
            tuple(reader.describe() for reader in readers),
            self._consumption.describe(),
        )

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
        """Continue at `offsets` in the queues that this member reads."""
        for reader in self.rebalancer.readers:
            if reader.queue in offsets:
                reader.reset_to(offsets[reader.queue])

    def running_info(self) -> RunningInfo:
        """Return the queues, subscriptions and settings for an administrator (307)."""
        queues = {
            reader.queue: self._queue_state(reader, reader.process_queue)
            for reader in self.rebalancer.readers
            if reader.process_queue is not None
        }
        orderly = self._config.order is not Order.NONE
        properties = common_properties(self.instance, CONSUME_PASSIVELY, self._started_ms, orderly=orderly)
        properties["PROP_THREADPOOL_CORE_SIZE"] = str(self._config.concurrency)
        return RunningInfo(queues, list(self._subscriptions.values()), properties)

    def _queue_state(self, reader: QueueReader, process_queue: ProcessQueue) -> QueueState:
        now, is_ordered = asyncio.get_running_loop().time(), self._config.order is not Order.NONE
        confirmed_at = self._locks.confirmed_at(reader.queue) if self._locks is not None else None
        return QueueState(
            process_queue.commit_offset,
            process_queue.next_offset,
            process_queue.unfinished_messages,
            process_queue.unfinished_bytes,
            is_locked=is_ordered and (self._locks is None or self._locks.locked_until(reader.queue) > now),
            last_lock_ms=reader.created_ms if confirmed_at is None else now_ms() - int((now - confirmed_at) * 1000),
            last_pull_ms=reader.last_pull_ms,
            last_consume_ms=reader.calls.last_ms,
        )

    async def consume_directly(self, message: MessageExt) -> tuple[str, str]:
        """Call the listener of the message's topic. Return RocketMQ's name of the result, and a remark."""
        done = await self._consumption.consume_directly(message)
        return ("CR_SUCCESS", "") if done else ("CR_LATER", "the listener failed or asked for the message again")


def _local_offsets(instance: ClientInstance, config: ConsumerConfig, group: str) -> LocalOffsets:
    client_id = instance.client_id
    if isinstance(instance.config.instance_name, GeneratedName):
        client_id = f"{client_id.partition('@')[0]}@{DEFAULT_NAME}"
    return LocalOffsets(Path(config.offset_folder).expanduser(), client_id, group)
