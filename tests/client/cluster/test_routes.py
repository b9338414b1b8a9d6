"""The route table: one request for many callers, routes of missing topics, and failing name servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client.cluster.name_servers import NameServers
from raptormq.client.cluster.routes import RouteTable
from raptormq.errors import BodyError, ClientClosed, NoRoute, ServerError, TransportError
from raptormq.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from tests.client.route_tables import ASK, table
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence

UNKNOWN = refuse(ResponseCode.TOPIC_NOT_EXIST)


def only(**replies: Reply) -> Reply:
    """Respond with routes by topic. All other topics are unknown."""

    def reply(connection: Connection, request: RemotingCommand) -> None:
        replies.get(request.ext_fields["topic"], UNKNOWN)(connection, request)

    return reply


async def test_many_callers_share_one_request() -> None:
    async with table() as (routes, peer, changes):
        peer.on(ASK, route(2, peer))
        found = await asyncio.gather(*(routes.find("t") for _ in range(50)))
        assert len({id(each) for each in found}) == 1
        assert len(peer.received[ASK]) == 1
        assert await routes.find("t") is routes.cached("t")
        assert len(peer.received[ASK]) == 1
        assert changes == [routes.cached("t")]


async def test_a_caller_that_gives_up_does_not_take_the_answer_from_the_others() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, route(2, peer))
        first, second = (asyncio.ensure_future(routes.find("t")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert len((await second).read_queues) == 2


async def test_who_waits_for_a_route_learns_that_the_client_was_closed() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, silence)
        waiting = asyncio.ensure_future(routes.find("t"))
        await peer.wait_for(ASK)
        await routes.close()
        with pytest.raises(ClientClosed):
            await waiting


async def test_changes_are_told_once() -> None:
    async with table() as (routes, peer, changes):
        peer.on(ASK, route(2, peer), route(2, peer), route(3, peer))
        for _ in range(3):
            await routes.refresh("t")
        assert [len(change.read_queues) for change in changes] == [2, 3]


async def test_an_unknown_topic_has_no_route_and_is_asked_for_again() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, UNKNOWN, route(1, peer))
        with pytest.raises(NoRoute, match="topic t"):
            await routes.find("t")
        assert len((await routes.find("t")).read_queues) == 1


async def test_a_route_stays_known_while_name_servers_know_nothing() -> None:
    """A restarted name server does not have the route until the brokers have registered."""
    async with table() as (routes, peer, changes):
        peer.on(ASK, route(1, peer), UNKNOWN)
        known = await routes.find("t")
        assert await routes.refresh("t") is None
        await routes.refresh_all()
        assert await routes.find("t") is routes.cached("t") is known
        assert changes == routes.all_cached() == [known]


async def test_a_topic_that_its_brokers_and_all_name_servers_lack_was_deleted() -> None:
    async with table() as (routes, peer, _), ScriptedPeer() as other:
        peer.on(ASK, route(1, peer), route(2, peer, other), UNKNOWN)
        await routes.find("t")
        routes.note_missing("t", "broker-0")
        assert await routes.refresh("t") is routes.cached("t"), "another broker has the topic"
        assert await routes.refresh("t") is None
        assert routes.cached("t") is not None, "no response lacks this broker"
        routes.note_missing("t", "broker-0")
        assert await routes.refresh("t") is None
        assert routes.cached("t") is not None, "the other broker does not have the topic"
        routes.note_missing("t", "broker-1")
        assert await routes.refresh("t") is None
        assert routes.cached("t") is None


async def test_a_denial_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic may have been recreated meanwhile."""
    async with table() as (routes, peer, _):
        peer.on(ASK, route(1, peer), UNKNOWN)
        await routes.find("t")
        monkeypatch.setattr("raptormq.client.cluster.routes._DENIAL_VALID_S", 0.0)
        routes.note_missing("t", "broker-0")
        assert await routes.refresh("t") is None
        assert routes.cached("t") is not None


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[RouteTable, ScriptedPeer, ScriptedPeer]]:
    pool = ConnectionPool()
    with pytest.MonkeyPatch.context() as patched:
        # Both run in this process, which may get no CPU time for half a second.
        patched.setattr("raptormq.client.cluster.name_servers._OTHERS_TIMEOUT_S", 60.0)
        async with ScriptedPeer() as first, ScriptedPeer() as second:
            routes = RouteTable(NameServers(pool, [first.address, second.address], timeout=60), lambda _: None)
            yield routes, first, second
            await routes.close()
    await pool.close()


async def brokers(routes: RouteTable) -> set[str]:
    found = await routes.refresh("t")
    return set(found.brokers) if found is not None else set()


async def test_a_broker_that_only_another_name_server_knows_is_found_at_once() -> None:
    """A broker that cannot reach a name server is missing in its routes, like a stopped broker. New clients must find
    it.
    """
    async with two_servers() as (routes, first, second):
        first.on(ASK, route(1, first))
        second.on(ASK, route(1, first, second), UNKNOWN, route(1, first, second))
        assert await brokers(routes) == {"broker-0", "broker-1"}
        assert await brokers(routes) == {"broker-0"}, "the other name server has restarted"
        assert await brokers(routes) == {"broker-0", "broker-1"}


async def test_a_broker_stays_while_the_only_name_server_that_knows_it_does_not_answer() -> None:
    async with two_servers() as (routes, first, second):
        first.on(ASK, route(1, first))
        second.on(ASK, route(1, first, second), hang_up)
        for _ in range(3):
            assert await brokers(routes) == {"broker-0", "broker-1"}


@pytest.mark.parametrize("spoilt", [refuse(ResponseCode.SYSTEM_ERROR), answer(body=b"no route")])
async def test_a_bad_answer_of_another_name_server_hides_no_good_one(spoilt: Reply) -> None:
    async with two_servers() as (routes, first, second):
        first.on(ASK, route(1, first))
        second.on(ASK, spoilt)
        assert await brokers(routes) == {"broker-0"}


async def test_one_that_knows_nothing_does_not_hide_what_another_knows() -> None:
    async with two_servers() as (routes, first, second):
        first.on(ASK, UNKNOWN)
        second.on(ASK, route(1, first, second), route(1, second))
        assert await brokers(routes) == {"broker-0", "broker-1"}
        known = await routes.refresh("t")
        assert known is not None
        assert (known.master("broker-0"), len(known.brokers)) == (second.address, 1), (
            "one has another address, one is lost"
        )


async def test_what_each_name_server_knows_counts_together() -> None:
    """Each name server may be cut off from another broker."""
    async with two_servers() as (routes, first, second):
        both, mine, other = route(1, first, second), route(1, first), route_of_second(second)
        first.on(ASK, both, mine)
        second.on(ASK, other)
        for _ in range(3):
            assert await brokers(routes) == {"broker-0", "broker-1"}
        known = routes.cached("t")
        assert known is not None
        assert [known.master(name) for name in ("broker-0", "broker-1")] == [first.address, second.address]


def route_of_second(second: ScriptedPeer) -> Reply:
    """Respond with a route of two brokers without the first one."""
    body = TopicRoute([QueueData("broker-1", 1, 1, 6)], [BrokerData("c", "broker-1", {0: second.address})]).to_json()
    return answer(body=body)


async def test_a_default_topic_that_cannot_be_asked_for_hides_no_answer() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, only(TBW102=route(8, peer, perm=7)))
        borrowed = await routes.find_for_sending("new", 4)
        peer.on(ASK, only(TBW102=refuse(ResponseCode.SYSTEM_ERROR)))
        assert await routes.refresh("new") is None
        assert routes.cached("new") is borrowed


async def test_a_broker_that_comes_back_between_the_two_questions_has_the_topic_after_all() -> None:
    async with table() as (routes, peer, _):
        has_come = False

        def reply(connection: Connection, asked: RemotingCommand) -> None:
            nonlocal has_come
            is_default = asked.ext_fields["topic"] == "TBW102"
            (route(8 if is_default else 2, peer) if has_come or is_default else UNKNOWN)(connection, asked)
            has_come = has_come or is_default

        peer.on(ASK, reply)
        found = await routes.find_for_sending("old", 4)
        assert len(found.write_queues) == 2
        assert not routes.uses_default_route


async def test_a_topic_to_come_borrows_the_route_of_the_default_topic_until_it_has_its_own() -> None:
    async with table() as (routes, peer, changes):
        peer.on(ASK, only(TBW102=route(8, peer, perm=7)))
        borrowed = await routes.find_for_sending("new", 4)
        assert [queue.topic for queue in borrowed.write_queues] == ["new"] * 4
        assert routes.cached("new") is borrowed
        assert routes.all_cached() == changes == []
        peer.on(ASK, only(new=route(2, peer)))
        while routes.cached("new") is borrowed:
            routes.note_sent("new")
            await asyncio.sleep(0)
        assert len(peer.received[ASK]) == 4  # the topic, the default topic, the topic again, and finally its own route
        assert [len(each.write_queues) for each in changes] == [2]


async def test_the_brokers_that_a_topic_to_come_is_sent_to_may_move() -> None:
    async with table() as (routes, peer, _), ScriptedPeer() as other:
        peer.on(ASK, only(TBW102=route(8, peer, perm=7)))
        assert (await routes.find_for_sending("new", 4)).master("broker-0") == peer.address
        peer.on(ASK, only(TBW102=route(8, other, perm=7)))
        assert await routes.refresh("new") is None
        moved = routes.cached("new")
        assert moved is not None
        assert (moved.master("broker-0"), len(moved.write_queues)) == (other.address, 4)
        peer.on(ASK, UNKNOWN)
        assert await routes.refresh("new") is None
        assert routes.cached("new") is moved


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
async def test_topics_that_brokers_make_of_groups_will_have_one_queue(topic: str) -> None:
    """A topic of a group has one queue whatever the default topic has. Otherwise the first dead letter would be sent to
    a missing queue.
    """
    async with table() as (routes, peer, _):
        peer.on(ASK, only(TBW102=route(8, peer, perm=7)))
        assert len((await routes.find_for_sending(topic, 4)).write_queues) == 1


async def test_one_send_is_enough_to_find_the_route_of_a_new_topic() -> None:
    async with table() as (routes, peer, changes):
        peer.on(ASK, only(TBW102=route(8, peer, perm=7)))
        await routes.find_for_sending("new", 4)
        routes.note_sent("new")
        await peer.wait_for(ASK, 4)  # twice by `sent`, because the name server does not have the topic yet
        assert changes == []
        peer.on(ASK, only(new=route(2, peer)))
        async with asyncio.timeout(20):
            while not changes:
                await asyncio.sleep(0.01)
        assert routes.cached("new") is changes[0]


async def test_a_topic_that_nobody_creates_or_can_write_to_has_no_route_for_sending() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, only(readable=route(2, peer, perm=4)))
        with pytest.raises(NoRoute, match="no broker creates topics automatically"):
            await routes.find_for_sending("new", 4)
        with pytest.raises(NoRoute, match="not writable"):
            await routes.find_for_sending("readable", 4)
        assert len((await routes.find("readable")).read_queues) == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (silence, TransportError),
        (hang_up, TransportError),
        (refuse(ResponseCode.SYSTEM_ERROR), ServerError),
        (answer(body=b"not a route"), BodyError),
    ],
    ids=["silent", "hangs up", "refuses", "nonsense"],
)
async def test_a_failure_is_raised_and_leaves_what_was_known(reply: Reply, error: type[Exception]) -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, route(2, peer), reply)
        known = await routes.find("t")
        with pytest.raises(error):
            await routes.refresh("t")
        assert routes.cached("t") is known
        await routes.refresh_all()
        assert routes.cached("t") is known


async def test_refreshing_soon_asks_at_most_once_a_second() -> None:
    async with table() as (routes, peer, _):
        peer.on(ASK, route(2, peer))
        for _ in range(20):
            routes.refresh_soon("t")
            await asyncio.sleep(0)
        await routes.find("t")
        routes.refresh_soon("t")
        await routes.close()
        assert len(peer.received[ASK]) == 1


async def test_a_cached_route_without_a_master_is_fetched_again_for_sending() -> None:
    """After a fail-over, the cached route lists the slave alone until its next refresh."""
    async with table() as (routes, peer, _):
        without_master = TopicRoute([QueueData("broker-0", 2, 2, 6)], [BrokerData("c", "broker-0", {1: peer.address})])
        peer.on(ASK, only(orders=answer(body=without_master.to_json())))
        with pytest.raises(NoRoute, match="no master is up"):
            await routes.find_for_sending("orders", 4)
        peer.on(ASK, only(orders=route(2, peer)))
        assert len((await routes.find_for_sending("orders", 4)).write_queues) == 2
