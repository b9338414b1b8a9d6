"""Cached routes of a topic while some name servers do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client.cluster.metadata import RouteCache
from raptormq.client.cluster.name_servers import NameServers
from raptormq.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, silence

ASK = RequestCode.GET_ROUTEINFO_BY_TOPIC
A, B = BrokerData("c", "a", {0: "h:1"}), BrokerData("c", "b", {0: "h:2"})
UNKNOWN = refuse(ResponseCode.TOPIC_NOT_EXIST)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[RouteCache, ScriptedPeer, ScriptedPeer]]:
    pool = ConnectionPool()
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        yield RouteCache(NameServers(pool, [first.address, second.address], timeout=2)), first, second
    await pool.close()


def route(*brokers: BrokerData) -> Reply:
    return answer(body=TopicRoute([QueueData(each.broker_name, 1, 1, 6) for each in brokers], list(brokers)).to_json())


async def told(routes: RouteCache) -> dict[str, dict[int, str]]:
    """Return the addresses of the brokers. Each of them has queues."""
    found = await routes.ask("t")
    assert found is not None
    assert {each.broker_name for each in found.queues} == {each.broker_name for each in found.brokers}
    return {each.broker_name: each.broker_addrs for each in found.brokers}


@pytest.mark.parametrize(
    "reply",
    [silence, hang_up, refuse(ResponseCode.SYSTEM_ERROR), answer(body=b"no route")],
    ids=["silent", "hangs up", "refuses", "nonsense"],
)
async def test_the_last_response_counts_until_there_is_another(reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.cluster.name_servers._SKIP_UNRESPONSIVE_S", 0.0)
    async with two() as (routes, first, second):
        first.on(ASK, route(A))
        second.on(ASK, route(A, B), reply, reply, route(A), reply)
        for _ in range(3):
            assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        for _ in range(2):
            assert await told(routes) == {"a": {0: "h:1"}}, "its response does not have the broker"


async def test_no_matter_which_one_the_client_is_with() -> None:
    async with two() as (routes, first, second):
        first.on(ASK, route(B), hang_up)
        second.on(ASK, route(A))
        for _ in range(3):
            assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}


async def test_members_of_brokers_stay_too_and_the_newest_address_of_one_counts() -> None:
    replica = BrokerData("c", "a", {1: "new:2"})
    async with two() as (routes, first, second):
        first.on(ASK, route(replica))
        second.on(ASK, route(BrokerData("c", "a", {0: "h:1", 1: "old:2"})), hang_up)
        for _ in range(2):
            assert await told(routes) == {"a": {0: "h:1", 1: "new:2"}}


async def test_the_response_that_there_is_no_such_topic_counts() -> None:
    async with two() as (routes, first, second):
        first.on(ASK, route(A))
        second.on(ASK, route(B), UNKNOWN, hang_up)
        assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        for _ in range(2):
            assert await told(routes) == {"a": {0: "h:1"}}


async def test_cached_routes_alone_are_no_response() -> None:
    """This server cannot report a deletion of the topic. It counts again after its next response."""
    async with two() as (routes, first, second):
        first.on(ASK, UNKNOWN, UNKNOWN, route(A))
        second.on(ASK, route(B), hang_up)
        assert await told(routes) == {"b": {0: "h:2"}}
        assert await routes.ask("t") is None
        assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}


async def test_nothing_is_kept_of_topics_that_are_unknown_or_were_deleted() -> None:
    async with two() as (routes, first, second):
        first.on(ASK, UNKNOWN, route(A))
        second.on(ASK, UNKNOWN, route(B), hang_up)
        assert await routes.ask("t") is None
        assert not routes._cached
        assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        routes.forget("t")
        assert await told(routes) == {"a": {0: "h:1"}}, "the topic was recreated only there"


async def test_one_that_is_gone_keeps_no_broker_for_longer_than_two_minutes() -> None:
    async with two() as (routes, first, second):
        first.on(ASK, route(A))
        second.on(ASK, route(B), hang_up)
        await told(routes)
        before = routes._cached["t"][second.address]
        ago = asyncio.get_running_loop().time() - 120.0
        routes._cached["t"][second.address] = before._replace(at=ago + 60.0)
        assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        routes._cached["t"][second.address] = before._replace(at=ago)
        assert await told(routes) == {"a": {0: "h:1"}}
        assert list(routes._cached["t"]) == [first.address]


async def test_a_broker_that_another_one_knew_and_does_not_tell_any_more_is_gone() -> None:
    """A machine often runs a name server and a broker."""
    master, replica = BrokerData("c", "a", {0: "h:1"}), BrokerData("c", "a", {1: "h:3"})
    async with two() as (routes, first, second):
        both = route(A, B)
        first.on(ASK, both, both, UNKNOWN, route(replica), route(master), route(replica), route(replica, B))
        second.on(ASK, both, hang_up)
        for _ in range(2):
            assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        assert await routes.ask("t") is None
        assert await told(routes) == {"a": {0: "h:1", 1: "h:3"}, "b": {0: "h:2"}}, "it has no routes yet"
        assert await told(routes) == {"a": {0: "h:1"}, "b": {0: "h:2"}}
        assert await told(routes) == {"a": {1: "h:3"}, "b": {0: "h:2"}}, "the master is lost"
        assert await told(routes) == {"a": {1: "h:3"}, "b": {0: "h:2"}}
        first.on(ASK, route(replica))
        for _ in range(2):
            assert await told(routes) == {"a": {1: "h:3"}}
