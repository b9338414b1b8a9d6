"""Base class of `Consumer` and `LitePullConsumer`: the application takes messages from a buffer.

See also: `consumer.group_consumer` starts and pauses, `consumer.delivery_buffer` contains the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumerConfig, Order
from raptormq.client.consumer.delayed_retry import DelayedRetry
from raptormq.client.consumer.delivery_buffer import DeliveryBuffer
from raptormq.client.consumer.group_consumer import GroupConsumer
from raptormq.client.consumer.subscription import Sql
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.lifecycle import require_loop
from raptormq.errors import ConfigError


class BufferedConsumer(GroupConsumer):
    """One member of a consumer group without listeners.

    Args:
        group: name of the group; all members subscribe to the same topics with the same tags.
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        config: how to fetch and commit. Settings of listener calls (`concurrency`, `consume_batch`, `consume_timeout`)
            have no effect.
        client_config: shared connections; consumers of one group need different ones.

    Raises:
        MessageError: `group` is not a group name.
        ConfigError: an address is not `host:port`, or a configuration is invalid or has an order, which needs listeners
            (`PushConsumer`).
    """

    _ORDER_OF_MESSAGES: ClassVar[str]
    """The order in which messages are returned, for the error about a configuration with an order."""

    def __init__(
        self,
        group: str,
        *,
        name_servers: Sequence[str] | str | None = None,
        config: ConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        super().__init__(group, name_servers=name_servers, config=config, client_config=client_config)
        if self._config.order is not Order.NONE:
            raise ConfigError(
                f"a {type(self).__name__} returns messages {self._ORDER_OF_MESSAGES}: use a PushConsumer with"
                f" order={self._config.order}"
            )
        self._buffer: DeliveryBuffer | None = None
        """The messages of the current start, or of the last one."""

    def _new_consumption(self, instance: ClientInstance, interceptors: ConsumeChain) -> DeliveryBuffer:
        retries = DelayedRetry(instance, self._group, self._config, interceptors)
        self._buffer = DeliveryBuffer(self._group, retries, interceptors)
        return self._buffer

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Subscribe to a topic; a second call replaces the expression. A started consumer begins to read without a
        restart, at the committed offsets of the group or as `consume_from` says.

        Args:
            topic: a topic. It has to exist when the consumer is started, unless `ConsumerConfig.allow_missing_topics`
                is set; a started consumer waits for it and warns.
            expression: `*`, tags as in `TagA || TagB`, or `Sql` for a filter by properties.

        Raises:
            MessageError: the topic name or the expression is invalid.
        """
        self._add_subscription(topic, expression)

    async def _close(self) -> None:
        if self._running is not None:
            require_loop(self._running.loop)
        if self._buffer is not None:  # also during a close by another task, which need not wait for this one
            self._buffer.close()
        await self._stop()
