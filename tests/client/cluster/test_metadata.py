"""Merged metadata of name servers that have different data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client import AdminClient, ClientConfig
from raptormq.client.cluster.metadata import fetch_cluster, fetch_route, fetch_topics
from raptormq.client.cluster.name_servers import NameServers
from raptormq.errors import BodyError, ServerError
from raptormq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, refuse, silence

ROUTE, CLUSTER = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO
TOPICS = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
MASTER, REPLICA, OTHER = (
    BrokerData("c", "a", {0: "h:1"}),
    BrokerData("c", "a", {1: "h:2"}),
    BrokerData("d", "b", {0: "h:3"}),
)
BAD: list[Reply] = [refuse(ResponseCode.SYSTEM_ERROR), answer(body=b"no json")]


@asynccontextmanager
async def two() -> AsyncIterator[tuple[NameServers, ScriptedPeer, ScriptedPeer]]:
    pool = ConnectionPool()
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        yield NameServers(pool, [first.address, second.address], timeout=2), first, second
    await pool.close()


def route(*brokers: BrokerData) -> Reply:
    return answer(body=TopicRoute([QueueData(each.broker_name, 1, 1, 6) for each in brokers], list(brokers)).to_json())


def cluster(*brokers: BrokerData) -> Reply:
    names = {each.cluster: [each.broker_name] for each in brokers}
    return answer(body=ClusterInfo({each.broker_name: each for each in brokers}, names).to_json())


async def test_brokers_and_their_members_are_those_that_any_knows() -> None:
    async with two() as (servers, first, second):
        first.on(ROUTE, route(MASTER))
        second.on(ROUTE, route(REPLICA, OTHER))
        first.on(CLUSTER, cluster(REPLICA))
        second.on(CLUSTER, cluster(MASTER, OTHER))
        found = await fetch_route(servers, "t")
        assert found is not None
        assert {each.broker_name: each.broker_addrs for each in found.brokers} == {
            "a": {0: "h:1", 1: "h:2"},
            "b": {0: "h:3"},
        }
        assert sorted(queue.broker_name for queue in found.queues) == ["a", "b"]
        info = await fetch_cluster(servers)
        assert {name: each.broker_addrs for name, each in info.brokers.items()} == {
            "a": {0: "h:1", 1: "h:2"},
            "b": {0: "h:3"},
        }
        assert info.clusters == {"c": ["a"], "d": ["b"]}


async def test_all_are_asked_at_once_and_the_one_that_the_client_is_with_is_believed_where_they_differ() -> None:
    """Sequential requests for a thousand topics would take minutes."""
    pool = ConnectionPool()
    async with ScriptedPeer() as first, ScriptedPeer() as second, asyncio.timeout(30):
        late: list[tuple[Connection, RemotingCommand]] = []
        first.on(CLUSTER, lambda connection, asked: late.append((connection, asked)))
        second.on(CLUSTER, cluster(BrokerData("c", "a", {0: "old:1"})))
        asking = asyncio.ensure_future(fetch_cluster(NameServers(pool, [first.address, second.address], timeout=300)))
        for each in (first, second):
            await each.wait_for(CLUSTER)
        cluster(MASTER)(*late[0])
        assert (await asking).brokers == {"a": MASTER}
    await pool.close()


async def test_topics_are_those_of_all() -> None:
    async with two() as (servers, first, second):
        first.on(TOPICS, answer(body=TopicList(["t", "u"]).to_json()))
        second.on(TOPICS, answer(body=TopicList(["u", "v"]).to_json()))
        assert await fetch_topics(servers) == {"t", "u", "v"}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_bad_answer_hides_no_good_one(bad: Reply, is_first: bool) -> None:
    async with two() as (servers, first, second):
        first.on(ROUTE, bad if is_first else route(OTHER))
        second.on(ROUTE, route(OTHER) if is_first else bad)
        found = await fetch_route(servers, "t")
        assert found is not None
        assert found.brokers == [OTHER]


@pytest.mark.parametrize("bad", BAD)
async def test_bad_answers_alone_are_an_error(bad: Reply) -> None:
    async with two() as (servers, first, second):
        for each in (first, second):
            each.on(ROUTE, bad)
        with pytest.raises((ServerError, BodyError)):
            await fetch_route(servers, "t")


async def test_an_administrator_sees_brokers_that_reach_one_of_them_alone() -> None:
    async with ScriptedPeer() as first, ScriptedPeer() as second, ScriptedPeer() as a, ScriptedPeer() as b:
        brokers = [BrokerData("c", "a", {0: a.address}), BrokerData("c", "b", {0: b.address})]
        first.on(CLUSTER, cluster(brokers[0]))
        second.on(CLUSTER, cluster(brokers[1]))
        for peer in (first, second, a, b):
            peer.on(RequestCode.DELETE_TOPIC_IN_BROKER, answer())
            peer.on(RequestCode.DELETE_TOPIC_IN_NAMESRV, answer())
        async with AdminClient(name_servers=[first.address, second.address]) as admin:
            await admin.delete_topic("t")
            alone = await admin.cluster_info(second.address)
        assert [len(each.received[RequestCode.DELETE_TOPIC_IN_BROKER]) for each in (a, b)] == [1, 1]
        assert set(alone.brokers) == {"b"}


async def test_an_administrator_waits_for_what_a_late_name_server_alone_knows() -> None:
    """The client also waits for a server that did not respond in time to an earlier request without a change."""
    async with ScriptedPeer() as first, ScriptedPeer() as late, ScriptedPeer() as broker:
        asked: list[tuple[Connection, RemotingCommand]] = []
        first.on(ROUTE, refuse(ResponseCode.TOPIC_NOT_EXIST))
        first.on(CLUSTER, cluster(BrokerData("c", "a", {0: first.address})))
        for code in (ROUTE, CLUSTER):
            late.on(code, lambda connection, command: asked.append((connection, command)))
        for each in (first, broker):
            each.on(RequestCode.GET_TOPIC_CONFIG, refuse(ResponseCode.TOPIC_NOT_EXIST))
        config = ClientConfig([first.address, late.address], request_timeout=300)
        async with AdminClient(client_config=config) as admin, asyncio.timeout(60):
            assert set((await admin.cluster_info()).brokers) == {"a"}
            instance = admin._instance
            assert instance is not None
            assert late.address in instance.name_servers._skipped_until
            for number, work in enumerate((admin.create_topic("t"), admin.delete_topic("t")), 2):
                working = asyncio.ensure_future(work)
                await late.wait_for(CLUSTER, number)
                cluster(BrokerData("c", "b", {0: broker.address}))(*asked.pop())
                await working
            finding = asyncio.ensure_future(admin.route("t"))
            await late.wait_for(ROUTE)
            route(OTHER)(*asked.pop())
            found = await finding
        assert found is not None
        assert found.brokers == [OTHER]
        for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
            assert [len(each.received[code]) for each in (first, broker)] == [1, 1]


async def test_a_name_server_that_does_not_answer_keeps_no_topic_from_being_made() -> None:
    async with ScriptedPeer() as first, ScriptedPeer() as silent:
        first.on(CLUSTER, cluster(BrokerData("c", "a", {0: first.address})))
        first.on(RequestCode.GET_TOPIC_CONFIG, refuse(ResponseCode.TOPIC_NOT_EXIST))
        silent.on(CLUSTER, silence)
        for addresses in ([first.address, silent.address], [silent.address, first.address]):
            async with AdminClient(client_config=ClientConfig(addresses, request_timeout=3.0)) as admin:
                assert set(await admin.create_topic("t")) == {first.address}
