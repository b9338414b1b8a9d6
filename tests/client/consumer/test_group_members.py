"""Members of a group while brokers are frozen, restarted, or have no list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from raptormq.client import ClientConfig
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.cluster.topic_route import TopicQueues
from raptormq.client.consumer.rebalance import GroupMembers
from raptormq.errors import NoRoute, RequestTimeout
from raptormq.protocol.bodies.heartbeat import encode_consumer_ids
from raptormq.protocol.codes import RequestCode
from tests.client.member import Member
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, route, silence

ASK, ROUTE = RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_ROUTEINFO_BY_TOPIC
HEART_BEAT = RequestCode.HEART_BEAT


class Two:
    """A client of two brokers, in a group with another member."""

    def __init__(self, instance: ClientInstance, first: ScriptedPeer, second: ScriptedPeer) -> None:
        self.instance, self.first, self.second = instance, first, second
        self.members = GroupMembers(instance, "g")

    def knows(self, *others: str) -> Reply:
        """Respond with this client and others."""
        return answer(body=encode_consumer_ids([self.instance.client_id, *others]))

    async def found(self, *topics: str) -> list[TopicQueues]:
        return [await self.instance.routes.find(topic) for topic in topics]

    async def others(self, topic: str = "t") -> list[str]:
        """Request the members. Return those besides this client."""
        (found,) = await self.found(topic)
        self.members.ask([found])
        return [each for each in await self.members.of(found) if each != self.instance.client_id]


@asynccontextmanager
async def two(request_timeout: float = 3.0) -> AsyncIterator[Two]:
    async with ScriptedPeer() as names, ScriptedPeer() as first, ScriptedPeer() as second:
        names.on(ROUTE, route(1, first, second))
        instance = ClientInstance.acquire(ClientConfig(names.address, request_timeout=request_timeout))
        instance.register_consumer("g", Member())
        try:
            yield Two(instance, first, second)
        finally:
            await instance.release()


async def test_whom_any_broker_knows_is_there() -> None:
    async with two() as group:
        group.first.on(ASK, group.knows("a"))
        group.second.on(ASK, group.knows("b"))
        assert await group.others() == ["a", "b"]


async def test_who_is_gone_does_not_count_for_as_long_as_another_broker_is_frozen() -> None:
    """A frozen process accepts connections, so the client's own connection to it is repeatedly new."""
    async with two(request_timeout=3.0) as group:
        group.first.on(ASK, group.knows("other"))
        group.second.on(ASK, group.knows("other"))
        assert await group.others() == ["other"]
        group.instance._connected_at.pop(group.first.address)
        group.first.on(ASK, group.knows())
        group.second.on(ASK, silence)
        group.members.connection_lost({"t": ["other"]})
        assert group.instance.is_recently_connected(group.second.address)
        assert await group.others() == []


async def test_while_the_connection_to_a_broker_is_new_those_from_before_count() -> None:
    async with two() as group:
        for broker in (group.first, group.second):
            broker.on(ASK, group.knows())
        group.members.connection_lost({"t": ["other"]})
        assert await group.others() == ["other"]
        assert await group.others("u") == []
        group.instance._connected_at.clear()
        assert await group.others() == []


async def test_each_broker_is_asked_once_for_all_topics() -> None:
    async with two() as group:
        for broker in (group.first, group.second):
            broker.on(ASK, group.knows())
        topics = await group.found("t", "u", "v")
        group.members.ask(topics)
        await asyncio.gather(*map(group.members.of, topics))
        assert [len(broker.received[ASK]) for broker in (group.first, group.second)] == [1, 1]


async def test_a_broker_that_does_not_know_this_client_hears_of_it_and_is_asked_again() -> None:
    async with two() as group:
        for broker in (group.first, group.second):
            broker.on(ASK, answer(body=encode_consumer_ids([])), group.knows("other"))
        assert await group.others() == ["other"]
        assert group.first.received[HEART_BEAT]


async def test_a_frozen_broker_does_not_keep_another_one_from_hearing_of_this_client() -> None:
    async with two(request_timeout=300) as group, asyncio.timeout(30):
        group.first.on(ASK, answer(body=encode_consumer_ids([])), group.knows("other"))
        for code in (ASK, HEART_BEAT):
            group.second.on(code, silence)
        asking = asyncio.ensure_future(group.others())
        await group.first.wait_for(ASK, 2)
        await group.second.wait_for(ASK)
        for connection in list(group.second.connections):
            connection.abort()
        assert await asking == ["other"]


async def test_a_broker_that_does_not_take_a_heartbeat_is_waited_for_no_longer_for_that() -> None:
    async with two(request_timeout=0.2) as group:
        for broker in (group.first, group.second):
            broker.on(ASK, answer(body=encode_consumer_ids([])))
            broker.on(HEART_BEAT, silence)
        with pytest.raises(RequestTimeout):
            await group.others()


async def test_where_no_broker_answers_nobody_can_say() -> None:
    async with two(request_timeout=0.2) as group:
        for broker in (group.first, group.second):
            broker.on(ASK, silence)
        with pytest.raises(RequestTimeout):
            await group.others()
        (found,) = await group.found("t")
        nobody = replace(found, brokers={})
        group.members.ask([nobody])
        with pytest.raises(NoRoute, match="no broker of topic t is up"):
            await group.members.of(nobody)
