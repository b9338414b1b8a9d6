"""A topic that its broker has deleted is removed from the routes with the broker's next registration, and only for this
broker.

Apache RocketMQ's name servers keep such routes unless `deleteTopicWithBrokerRegistration` is set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.bodies.route import TopicRoute, encode_registration
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import Peer, connected, running


class Routes:
    """Sends requests to a name server."""

    def __init__(self, server: NameServer) -> None:
        self.address = f"127.0.0.1:{server.port}"
        self._pool = ConnectionPool()

    async def ask(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        return await self._pool.request(self.address, RemotingCommand(code, fields, body), 10)

    async def brokers(self, topic: str) -> set[str]:
        """Return the names of the brokers that have queues of a topic."""
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return {queue.broker_name for queue in TopicRoute.from_json(answer.body).queues} if answer.code == 0 else set()

    async def close(self) -> None:
        await self._pool.close()


@asynccontextmanager
async def routing(folder: Path, **settings: str) -> AsyncIterator[Routes]:
    pairs = {
        "listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(folder / "kv.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }  # fmt: skip
    server = NameServer(NameServerConfig.from_pairs(pairs | settings))
    await server.start()
    routes = Routes(server)
    try:
        yield routes
    finally:
        await routes.close()
        await server.stop()


async def two_brokers(stack: AsyncExitStack, folder: Path, routes: Routes) -> list[Peer]:
    peers: list[Peer] = []
    for name in ("broker-a", "broker-b"):
        broker = await stack.enter_async_context(
            running(folder / name, {"namesrvAddr": routes.address, "brokerName": name})
        )
        await broker.registered()
        peers.append(await stack.enter_async_context(connected(broker)))
    return peers


async def create(peer: Peer, topic: str) -> None:
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize("setting", ["false", "true"])
async def test_the_route_of_a_deleted_topic_is_gone_when_the_deletion_is_answered(tmp_path: Path, setting: str) -> None:
    async with AsyncExitStack() as stack:
        routes = await stack.enter_async_context(routing(tmp_path, deleteTopicWithBrokerRegistration=setting))
        peer_a, peer_b = await two_brokers(stack, tmp_path, routes)
        for topic, peers in {"shared": (peer_a, peer_b), "alone": (peer_a,), "kept": (peer_a,)}.items():
            for peer in peers:
                await create(peer, topic)
        # A registration of one topic removes no other topic.
        assert await routes.brokers("shared") == {"broker-a", "broker-b"}
        assert await routes.brokers("alone") == {"broker-a"}
        for topic in ("shared", "alone"):
            assert (await peer_a.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
        assert await routes.brokers("shared") == {"broker-b"}
        assert await routes.brokers("alone") == set()
        assert await routes.brokers("kept") == {"broker-a"}
        await create(peer_a, "alone")
        assert await routes.brokers("alone") == {"broker-a"}


async def test_a_broker_that_comes_back_with_fewer_topics_has_no_routes_of_the_others(
    tmp_path: Path, free_port: int
) -> None:
    """A broker whose absence was not detected, because its former connection is still open, is treated in the
    same way.
    """
    async with routing(tmp_path) as routes:
        before = TopicConfigTable({name: TopicConfig(name) for name in ("lost", "broker-a")}, DataVersion(0, 1, 1))
        former = {
            "brokerName": "broker-a", "brokerAddr": f"127.0.0.1:{free_port}", "clusterName": "DefaultCluster",
            "haServerAddr": f"127.0.0.1:{free_port + 1}", "brokerId": "0",
        }  # fmt: skip
        answer = await routes.ask(RequestCode.REGISTER_BROKER, encode_registration(before), **former)
        assert answer.code == 0
        assert await routes.brokers("lost") == {"broker-a"}
        pairs = {"namesrvAddr": routes.address, "listenPort": str(free_port)}
        async with running(tmp_path / "store", pairs) as broker:
            await broker.registered()
            assert await routes.brokers("broker-a") == {"broker-a"}
            assert await routes.brokers("lost") == set()
