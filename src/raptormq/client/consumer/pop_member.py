"""Group membership of a pop consumer: brokers list it and forward administrative requests to it.

Brokers serve pop requests of unregistered clients, but `mqadmin consumerConnection`, `consumerStatus` and `raptormq
group describe` list only clients that send heartbeats. A pop consumer owns no queues, so it ignores changes of members
and routes.

A reset of offsets by the broker (222) does not involve the members. With `useServerSideResetOffset=false` the broker
delegates the reset to the members if there are any. The member then commits the offsets that it receives.

See also: `consumer.pop_consumer` registers the member, `consumer.inspection` passes requests to it. Source: RocketMQ
`ConsumeType.CONSUME_POP`, with which brokers count the lag of a group by its pop offsets, and `PopProcessQueueInfo`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import ClientInstance, call_broker
from raptormq.client.config import ConsumeFromWhere
from raptormq.client.consumer.inspection import ConsumerInspection, PoppedState, RunningInfo, common_properties
from raptormq.client.consumer.messages_in_hand import MessagesInHand
from raptormq.client.consumer.popped_message import PopDelivery
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.heartbeat import CONSUME_POP, ConsumerData, Subscription
from raptormq.protocol.message import MessageExt, MessageQueue

log = get_logger(__name__)


class PopMember:
    """The membership of one started `PopConsumer`.

    Args:
        instance: sends the heartbeats.
        group: the consumer group.
        consume_from: where a new group starts.
        subscription: the topic and which of its messages are wanted.
        in_hand: the unsettled messages.

    Raises:
        ClientError: the group already has a consumer with this `client_config`.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        consume_from: ConsumeFromWhere,
        subscription: Subscription,
        in_hand: MessagesInHand[PopDelivery],
    ) -> None:
        self._instance = instance
        self._group = group
        self._consume_from = consume_from
        self._subscription = subscription
        self._in_hand = in_hand
        self._started_ms = time.time_ns() // 1_000_000
        self._resets: set[asyncio.Task[None]] = set()
        instance.shared(ConsumerInspection)
        instance.register_consumer(group, self)

    async def leave(self) -> None:
        """Leave the group."""
        await cancel_all(self._resets)
        await self._instance.unregister_consumer(self._group)

    def describe(self) -> ConsumerData:
        """Return the data for heartbeats."""
        return ConsumerData(
            self._group,
            CONSUME_POP,
            consume_from_where=self._consume_from.value,
            subscriptions=[self._subscription],
        )

    def members_changed(self) -> None:
        """Do nothing: there is no rebalance."""

    def connection_made(self) -> None:
        """Do nothing: there are no queue locks."""

    def connection_lost(self) -> None:
        """Do nothing: there is no rebalance."""

    def running_info(self) -> RunningInfo:
        """Describe the unsettled messages by queue, and the settings."""
        waiting = Counter[MessageQueue]()
        last_pop: dict[MessageQueue, int] = {}
        for delivery in self._in_hand:
            queue = delivery.message.queue
            waiting[queue] += 1
            last_pop[queue] = max(last_pop.get(queue, 0), delivery.popped.handle.pop_time)
        properties = common_properties(self._instance, CONSUME_POP, self._started_ms, orderly=False)
        popped = {queue: PoppedState(count, last_pop[queue]) for queue, count in waiting.items()}
        return RunningInfo({}, [self._subscription], properties, popped)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit `offsets` in the background. The next pops continue there."""
        for queue, offset in offsets.items():
            task = background(self._commit(queue, offset), f"reset of {queue} for group {self._group}")
            self._resets.add(task)
            task.add_done_callback(self._resets.discard)

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        instance = self._instance
        try:
            await call_broker(
                instance.routes,
                queue,
                lambda address: instance.offsets.commit(address, self._group, queue, offset),
            )
        except RaptorMQError as error:
            log.warning("group %s: %s was not reset to offset %d: %s", self._group, queue, offset, error)

    async def consume_directly(self, _: MessageExt) -> tuple[str, str]:
        """Refuse a message from an administrator, because it has no pop handle by which it could be settled."""
        return "CR_LATER", "a consumer that pops settles only messages that it has popped"
