"""Which queues this consumer reads, kept up to date.

Everything is looked at again every 20 s, at once when a broker reports that members came or went (code 40), when a
route or the subscriptions change, and soon again while a topic or its brokers cannot be found or another member still
has a queue that is this one's now.
Neighbours: `rebalance` does the arithmetic, `hand_over` lets queues go and come, `queue_reader` reads.
Source: RocketMQ `RebalanceService`, `RebalanceImpl`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from raptormq.client.answers import require_success
from raptormq.client.background import background, cancel_all
from raptormq.client.hand_over import HandOver
from raptormq.client.instance import ClientInstance
from raptormq.client.queue_reader import QueueReader
from raptormq.client.rebalance import allocate_averagely
from raptormq.client.topic_queues import TopicQueues
from raptormq.errors import NoRoute, RaptorMQError, ServerError
from raptormq.protocol.bodies.heartbeat import Subscription, decode_consumer_ids
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.transport.event_wait import set_within

log = logging.getLogger(__name__)

_MISSING_PAUSE_S = 1.0
_AWAITED_PAUSE_S = 0.05


class Rebalancing:
    """The readers of one consumer.

    Args:
        instance: where connections, routes and heartbeats come from.
        group: the consumer group.
        interval: seconds between two looks.
        subscriptions: what is subscribed, by topic; looked at anew every time.
        new_reader: starts the reader of a queue.
        hand_over: lets queues go and come.
        shared: false for a broadcasting consumer, which reads every queue.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        interval: float,
        subscriptions: Callable[[], Mapping[str, Subscription]],
        new_reader: Callable[[MessageQueue, Subscription], QueueReader],
        hand_over: HandOver,
        *,
        shared: bool = True,
    ) -> None:
        self._instance = instance
        self._group = group
        self._interval = interval
        self._subscriptions = subscriptions
        self._new_reader = new_reader
        self._hand_over = hand_over
        self._shared = shared
        self._members_before: dict[str, list[str]] = {}
        """Who belonged to the group when the queues of a topic were looked at last."""
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._announced: tuple[dict[str, Subscription], set[str]] = {}, set()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def readers(self) -> list[QueueReader]:
        """The readers of all queues that this consumer has now."""
        return list(self._readers.values())

    def soon(self) -> None:
        """Look again now."""
        self._wanted.set()

    def start(self) -> None:
        """Look now, and again and again."""
        self._task = background(self._run(), f"rebalancing of {self._group}")

    async def stop(self) -> None:
        """Stop looking and let all queues go."""
        if self._task is not None:
            await cancel_all([self._task])
        self._give_up(self._readers)
        await self._hand_over.given()

    async def _run(self) -> None:
        pause = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            await set_within(self._wanted, pause)
            self._wanted.clear()
            began = clock()
            complete = await self._look()
            pause = self._interval if complete else min(max(_MISSING_PAUSE_S, pause * 2), self._interval)
            if self._hand_over.awaited_topics:
                pause = min(pause, max(_AWAITED_PAUSE_S, clock() - began))  # a look at many queues takes time

    async def _look(self) -> bool:
        """Bring the readers in line; false when something was missing."""
        subscriptions = dict(self._subscriptions())
        routes: dict[str, TopicQueues] = {}
        for topic in subscriptions:
            try:
                routes[topic] = await self._instance.routes.find(topic)
            except RaptorMQError as error:
                log.info("group %s cannot read %s now: %s", self._group, topic, error)
        if self._announced != (subscriptions, set(routes)):
            await self._instance.heartbeat()  # a broker refuses pulls of a subscription that it has not heard of
            self._announced = subscriptions, set(routes)
        complete = len(routes) == len(subscriptions)
        for topic, found in routes.items():
            try:
                await self._share(subscriptions[topic], found)
            except RaptorMQError as error:
                log.info("group %s keeps its queues of %s: %s", self._group, topic, error)
                complete = False
        self._give_up(queue for queue in self._readers if queue.topic not in subscriptions)
        for topic in self._hand_over.awaited_topics - set(subscriptions):
            await self._hand_over.takable(topic, [], set())
        return complete

    async def _share(self, subscription: Subscription, found: TopicQueues) -> None:
        members = await self._members(found) if self._shared else [self._instance.client_id]
        share = allocate_averagely(found.read_queues, members, self._instance.client_id)
        wanted = set(share)  # of perhaps 10,000 queues
        self._give_up(
            queue
            for queue, reader in self._readers.items()
            if queue.topic == found.topic and (queue not in wanted or reader.subscription != subscription)
        )  # a pull that the broker holds has the old tags
        missing = [queue for queue in share if queue not in self._readers]
        for queue in await self._hand_over.takable(found.topic, missing, self._orphans(found, members)):
            log.info("group %s: %s reads %s", self._group, self._instance.client_id, queue)
            self._readers[queue] = self._new_reader(queue, subscription)
        self._members_before[found.topic] = members

    def _orphans(self, found: TopicQueues, members: list[str]) -> set[MessageQueue]:
        """The queues that no member can still have: of those that are gone, or all when there is nobody else."""
        if members == [self._instance.client_id]:
            return set(found.read_queues)
        before = self._members_before.get(found.topic, [])
        gone = set(before) - set(members)
        return {queue for member in gone for queue in allocate_averagely(found.read_queues, before, member)}

    def _give_up(self, queues: Iterable[MessageQueue]) -> None:
        readers = [self._readers.pop(queue) for queue in list(queues)]
        for reader in readers:
            log.info("group %s: %s gives up %s", self._group, self._instance.client_id, reader.queue)
        self._hand_over.give(readers)

    async def _members(self, found: TopicQueues) -> list[str]:
        """Return who belongs to the group."""
        members = await self._known_members(found)
        if self._instance.client_id not in members:  # the broker was restarted, or hears of us just now
            await self._instance.heartbeat()
            members = await self._known_members(found)
        return members

    async def _known_members(self, found: TopicQueues) -> list[str]:
        """Ask any broker of the topic who belongs to the group."""
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(self._group))
        failure: RaptorMQError = NoRoute(f"no broker of topic {found.topic} is up")
        for broker_name in found.brokers:
            address = found.replica(broker_name)
            if address is None:
                continue
            try:
                answer = await self._instance.pool.request(address, command, self._instance.config.request_timeout)
                return decode_consumer_ids(require_success(answer, address).body)
            except ServerError as error:
                log.info("broker %s knows no member of %s yet: %s", broker_name, self._group, error)
                return []
            except RaptorMQError as error:
                failure = error
        raise failure
