"""A restarted name server that has no broker, or only some, while all are running.

RocketMQ's brokers register every 30 s, so this state can last as long. The tests remove brokers from the name server's
table, and they register again only at their next interval.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.client import AdminClient, ClientConfig, Message, MessageQueue, Producer, PushConsumer
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.errors import NoRoute
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.route import UnregisterBrokerRequestHeader
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import assembly_of
from tests.client.consumer.test_push_consumer import FAST, Collector, readers
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually


async def forget(cluster: Cluster, number: int) -> None:
    """Remove a broker from the name server's table."""
    pool = ConnectionPool()
    header = UnregisterBrokerRequestHeader(f"broker-{number}", cluster.broker(number).address, "DefaultCluster", 0)
    await pool.request(cluster.name_servers, request(RequestCode.UNREGISTER_BROKER, header), 10)
    await pool.close()


def instance_of(consumer: PushConsumer) -> ClientInstance:
    assert consumer._running is not None
    return consumer._running.instance


def known_queues(instance: ClientInstance) -> int:
    known = instance.routes.cached("t")
    return len(known.read_queues) if known is not None else 0


async def test_messages_are_sent_and_consumed_meanwhile(tmp_path: Path) -> None:
    collector = Collector()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = ClientConfig(cluster.name_servers)
        async with (
            Producer("p", client_config=config) as producer,
            PushConsumer("g", client_config=config, config=FAST) as consumer,
        ):
            consumer.subscribe("t", "*", collector)
            await producer.send(Message("t", b"before"))
            await eventually(lambda: len(readers(consumer)) == 2)
            await forget(cluster, 0)
            routes = instance_of(consumer).routes
            assert await routes.refresh("t") is None
            await routes.refresh_all()
            for _ in range(10):
                await producer.send(Message("t", b"meanwhile"))
            await collector.until(lambda: collector.bodies[b"meanwhile"] == 10)


async def test_readers_of_brokers_that_are_not_known_yet_stay(tmp_path: Path) -> None:
    collector = Collector()
    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", 1)
        config = ClientConfig(cluster.name_servers, route_refresh_interval=0.1)
        queue = MessageQueue("t", "broker-1", 0)
        async with (
            Producer("p", name_servers=cluster.name_servers) as producer,
            PushConsumer("g", client_config=config, config=FAST) as consumer,
        ):
            await producer.send(Message("t", b"before"), queue=queue)
            consumer.subscribe("t", "*", collector)
            await collector.until(lambda: collector.bodies[b"before"] == 1)
            await eventually(lambda: len(readers(consumer)) == 2)
            before, instance = set(readers(consumer)), instance_of(consumer)
            await forget(cluster, 1)
            connection = instance.pool.open_connection(cluster.name_servers)
            assert connection is not None
            connection.abort()
            await eventually(lambda: known_queues(instance) == 1)
            assert consumer._running is not None
            rebalancing = consumer._running.rebalancer
            looks = rebalancing._rounds_since_loss
            await eventually(lambda: rebalancing._rounds_since_loss > looks + 1)
            await producer.send(Message("t", b"meanwhile"), queue=queue)
            registered = assembly_of(cluster.broker(1))
            registered.registrar.permission_changed()
            await eventually(lambda: known_queues(instance) == 2)
            await collector.until(lambda: collector.bodies[b"meanwhile"] == 1)
            assert set(readers(consumer)) == before


async def test_a_topic_that_was_deleted_has_no_route_once_its_broker_was_asked(tmp_path: Path) -> None:
    async with Cluster(tmp_path, autoCreateTopicEnable="false") as cluster:
        await cluster.create_topic("t", 2)
        async with (
            Producer("p", name_servers=cluster.name_servers) as producer,
            AdminClient(name_servers=cluster.name_servers) as admin,
        ):
            await producer.send(Message("t", b"before"))
            await admin.delete_topic("t")
            with pytest.raises(NoRoute, match="topic t: it does not exist"):
                await producer.send(Message("t", b"after"))
