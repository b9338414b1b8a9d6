"""Base class of `PushConsumer` and `BufferedConsumer`: subscriptions, start, pauses and assigned queues.

See also: `consumer.group_member` is the started consumer. Source: RocketMQ `DefaultMQPushConsumer`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumerConfig, MessageModel
from raptormq.client.consumer.group_member import Consumption, GroupMember
from raptormq.client.consumer.paused_queues import PausedQueues
from raptormq.client.consumer.subscription import Sql, subscription_to
from raptormq.client.description import ConsumerDescription
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.lifecycle import Shutdown, WarnsIfUnclosed, require_loop
from raptormq.client.message import as_queues
from raptormq.client.producer import MessageTrace
from raptormq.client.settings import check_setting
from raptormq.errors import ConsumptionStopped
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import check_group, check_topic, retry_topic


class GroupConsumer(WarnsIfUnclosed, ABC):
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

    _END_METHOD: ClassVar[str] = "close"
    """The method that ends the consumer, for the warning about one that was not ended."""

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        self._running: GroupMember | None = None
        self._trace: MessageTrace | None = None
        check_group(group)
        self._group = group
        check_setting("config", config, ConsumerConfig | None)
        self._config = config or ConsumerConfig()
        self._client_config = ClientConfig.choose(client_config, name_servers)
        self._subscriptions: dict[str, Subscription] = {}
        self._is_whole: Callable[[str], bool] = lambda _: False
        """Whether the batches of a topic are consumed as a whole. A function and not a method, because a reference from
        the started parts to this object would suppress the warning about a consumer that is never stopped.
        """
        self._paused = PausedQueues()
        self._failure: ConsumptionStopped | None = None
        self._shutdown = Shutdown(f"a consumer of {group}")

    def __del__(self) -> None:
        if self._running is not None:
            self._warn_unclosed(self._END_METHOD)

    @abstractmethod
    def _new_consumption(self, instance: ClientInstance, interceptors: ConsumeChain) -> Consumption:
        """Return the consumer of fetched messages between a start and the next stop."""

    def _add_subscription(self, topic: str, expression: str | Sql) -> None:
        check_topic(topic)
        self._subscriptions[topic] = subscription_to(topic, expression, time.time_ns() // 1_000_000)
        if self._running is not None:
            self._running.members_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; does nothing for a topic without a subscription."""
        if self._subscriptions.pop(topic, None) is not None and self._running is not None:
            self._running.members_changed()

    async def start(self) -> None:
        """Join the group and start reading; does nothing when it is started.

        Returns when each subscribed topic has a route, a broker of the topic has returned the members of the group, and
        the start offsets of the assigned queues are known. A message that is sent afterwards is therefore not skipped,
        wherever the group starts. The call does not wait for a queue whose broker fails to return the offset, nor for
        the queues of a consumer with a rebalance listener, which may choose the offset itself. With
        `ConsumerConfig.allow_missing_topics` the call returns at once, and missing topics are logged.

        Raises:
            NoRoute: a topic does not exist, or no broker that has it is up, for `ConsumerConfig.start_timeout`.
            RequestTimeout: no name server, or no broker of a topic, has responded for that time.
            ServerError: a server refuses, for example without a required permission.
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
        trace = MessageTrace.start(self._client_config, self._group, self._config)
        traced = () if trace is None else (trace.interceptor,)
        interceptors = ConsumeChain(self._group, (*self._config.interceptors, *traced))
        try:
            running = GroupMember(
                instance,
                self._group,
                self._config,
                self._subscriptions,
                self._new_consumption(instance, interceptors),
                self._is_whole,
                self._paused,
                interceptors,
            )
            await running.start()
        except BaseException:
            await instance.release()
            if trace is not None:
                await trace.close()
            raise
        self._running, self._failure, self._trace = running, None, trace
        interceptors.started(self)
        try:
            await running.wait_for_topics()
        except BaseException:
            if self._running is running:
                await self._stop()
            raise

    async def _stop(self) -> None:
        running = self._running
        if running is None:
            await self._shutdown.wait()
        else:
            require_loop(running.loop)
            self._running = None
            await self._shutdown.run(self._end(running), running.listeners)

    async def _end(self, running: GroupMember) -> None:
        await running.stop()
        if self._trace is not None:
            await self._trace.close()
        running.interceptors.closed(self)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pause queues: nothing is fetched and no listener call begins for them. Running calls continue, and the queues
        stay assigned. The pause lasts until `resume`, even if a queue is assigned to another member in the meantime.

        Args:
            queues: queues, which need not be assigned to this member; `None` for all current and future queues.

        Raises:
            ClientError: a value is not a queue.
        """
        self._paused.pause(None if queues is None else as_queues(queues))
        self._apply_pauses()

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Resume `queues` after `pause`, or all queues for `None`. No effect on queues that are not paused.

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

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member currently reads, in order."""
        return sorted(reader.queue for reader in self._running.rebalancer.readers) if self._running else []

    def describe(self) -> ConsumerDescription:
        """Return the assigned queues with offsets, lag and errors, and the state of the workers. Sends no request."""
        if self._running is not None:
            return self._running.snapshot()
        subscriptions = {topic: subscription.expression for topic, subscription in self._subscriptions.items()}
        return ConsumerDescription(self._group, None, subscriptions, (), ())
