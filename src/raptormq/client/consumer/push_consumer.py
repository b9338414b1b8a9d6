"""`PushConsumer`: reads subscribed topics, shares the queues with the other members of its group, and calls listeners.

    async def consume(messages: list[MessageExt]) -> None:
        ...

    async with PushConsumer("billing", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || refunded", consume)
        await asyncio.Event().wait()

`subscribe_batches` accepts listeners of whole batches. Every message is delivered at least once: the committed offset
is that of the first unfinished message, so some messages are delivered again after a crash. `ConsumerConfig.order`
keeps the order of messages, by queue or by key; without it messages of a queue are consumed concurrently. See also:
`consumer.group_consumer` starts and pauses, `consumer.listener_pool` and, in order, `consumer.ordered_pool` call
listeners, `consumer.send_back` returns failed messages. Source: RocketMQ `DefaultMQPushConsumer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from raptormq.client.background import background
from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumerConfig, Order
from raptormq.client.consumer.group_consumer import GroupConsumer
from raptormq.client.consumer.group_member import Consumption
from raptormq.client.consumer.listener_call import BatchListener, Listener, WholeBatches
from raptormq.client.consumer.listener_pool import ListenerPool
from raptormq.client.consumer.ordered_pool import OrderedPool
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.consumer.subscription import Sql
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.listener_checks import require_async, warn_if_plain
from raptormq.errors import ClientError, ConsumptionStopped


class PushConsumer(GroupConsumer):
    """One member of a consumer group that calls listeners.

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

    _END_METHOD = "stop"

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        super().__init__(group, name_servers=name_servers, config=config, client_config=client_config)
        listeners: dict[str, Listener | WholeBatches] = {}
        self._listeners = listeners
        self._is_whole = lambda topic: isinstance(listeners.get(topic), WholeBatches)
        self._ending: asyncio.Task[None] | None = None
        """Task that stops the consumer after a message could not be consumed (`OnFailure.STOP`)."""

    def _new_consumption(self, instance: ClientInstance, interceptors: ConsumeChain) -> Consumption:
        config, listener_of = self._config, self._listeners.get
        redelivery = Redelivery(instance, self._group, config, interceptors)
        if config.order is Order.NONE:
            return ListenerPool(config, self._group, listener_of, interceptors, redelivery)
        return OrderedPool(config, self._group, listener_of, interceptors, redelivery, self._stop_after_failure)

    def subscribe(self, topic: str, expression: str | Sql, listener: Listener) -> None:
        """Subscribe to a topic; a second call replaces expression and listener. A started consumer reads the topic from
        now on.

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
        function = listener.listener if isinstance(listener, WholeBatches) else listener
        require_async(function, "a listener")
        warn_if_plain(function, "a listener")
        self._add_subscription(topic, expression)
        self._listeners[topic] = listener

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; does nothing for a topic without a subscription."""
        self._listeners.pop(topic, None)
        super().unsubscribe(topic)

    async def stop(self) -> None:
        """Wait for running listener calls, commit and leave the group; no effect if it is stopped. Timeouts limit its
        duration. A cancelled stop continues in the background. A call from a listener returns at once, because the stop
        waits for that listener.

        Raises:
            ClientClosed: the consumer was started in another event loop.
        """
        await self._stop()

    def _stop_after_failure(self, failure: ConsumptionStopped) -> None:
        self._failure = failure
        self._ending = background(self.stop(), f"end of a consumer of {self._group}")

    async def wait(self) -> None:
        """Wait until the consumer is stopped; returns at once when it is not started.

        Raises:
            ConsumptionStopped: the consumer stopped because a message could not be consumed and `on_failure` is `STOP`.
        """
        running = self._running
        if running is not None:
            await running.ended.wait()
        await self._shutdown.wait()
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
