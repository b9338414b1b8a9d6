"""`TopicQueues`: writable and readable queues of a topic, with their brokers. No I/O.

Only queues of brokers with a master can be written; reading needs no master.
See also: `cluster.routes` fetches routes and caches these. Source: RocketMQ `TopicPublishInfo`, `MQClientInstance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from raptormq.protocol.bodies.route import MASTER_ID, QueueData, TopicRoute
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.message import MessageQueue


@dataclass(frozen=True)
class TopicQueues:
    """Queues of one topic. Routes that differ only in data that clients do not use give equal objects."""

    topic: str
    brokers: Mapping[str, Mapping[int, str]]
    """Addresses (`host:port`) by broker name and broker id; id 0 is the master."""
    write_queues: tuple[MessageQueue, ...]
    """Queues to send to, in order."""
    read_queues: tuple[MessageQueue, ...]
    """Queues to consume from, in order."""

    @cached_property
    def writable_brokers(self) -> frozenset[str]:
        """The names of the brokers with queues that can be written."""
        return frozenset(queue.broker_name for queue in self.write_queues)

    def master(self, broker_name: str) -> str | None:
        """Return the address of the broker's master; None if it has none."""
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def replica(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return the address of the given replica of the broker, or else of any other replica, or else None."""
        members = self.brokers.get(broker_name, {})
        if broker_id in members:
            return members[broker_id]
        return members[min(members)] if members else None


def topic_queues(topic: str, route: TopicRoute, most_queues: int | None = None) -> TopicQueues:
    """Return the queues of a topic according to `route`, under the name `topic`.

    `most_queues` limits the queues per broker. It is used for a topic that does not exist yet, which uses the route of
    the default topic and is created with this number. An order configuration (`broker:queues;…`) replaces the write
    queues.
    """
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in route.brokers}
    with_master = {name for name, members in brokers.items() if MASTER_ID in members}

    def queues(queue_data: QueueData, count: int) -> list[MessageQueue]:
        count = count if most_queues is None else min(count, most_queues)
        return [MessageQueue(topic, queue_data.broker_name, number) for number in range(count)]

    ordered = sorted(route.queues, key=lambda queue_data: queue_data.broker_name)
    writable = [
        queue
        for queue_data in ordered
        if queue_data.perm & Perm.WRITE and queue_data.broker_name in with_master
        for queue in queues(queue_data, queue_data.write_queue_nums)
    ]
    readable = [
        queue
        for queue_data in ordered
        if queue_data.perm & Perm.READ and queue_data.broker_name in brokers
        for queue in queues(queue_data, queue_data.read_queue_nums)
    ]
    if route.order_topic_conf:
        writable = _ordered_queues(topic, route.order_topic_conf)
    return TopicQueues(topic, brokers, tuple(writable), tuple(readable))


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for part in order_topic_conf.split(";"):
        broker_name, separator, count = part.strip().rpartition(":")
        if separator and count.isdecimal():
            queues += [MessageQueue(topic, broker_name, number) for number in range(int(count))]
    return queues
