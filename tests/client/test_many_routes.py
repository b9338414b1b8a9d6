"""Refresh of the routes of many topics: their concurrency, their order, and the cost of a failure."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client.cluster.routes import RouteTable
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from tests.client.route_tables import ASK, table
from tests.client.scripted_peer import Reply, ScriptedPeer, refuse, route, silence


async def test_many_are_asked_for_at_once_and_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.client.cluster.routes._REFRESH_PAUSE_S", 0.0)
    async with table() as (routes, peer, changes):
        peer.on(ASK, route(1, peer))
        before = await routes.find("t")
        peer.on(ASK, silence)
        await routes.refresh_within(["t", "u", "v"], 0.01)
        assert len(peer.received[ASK]) == 4
        assert (routes.cached("t"), routes.cached("u")) == (before, None)
        peer.on(ASK, route(2, peer))
        await routes.refresh_within(["w"], 10)
        assert routes.cached("w") is changes[-1]
        await routes.refresh_within([], 10)


async def test_what_was_asked_for_just_now_is_not_asked_for_once_more_after_a_loss() -> None:
    """A consumer refreshes often then, and there may be several."""
    async with table() as (routes, peer, _):
        peer.on(ASK, route(1, peer))
        await routes.find("t")
        await routes.refresh_within(["t", "u"], 10)
        await routes.refresh_within(["t", "u"], 10)
        assert [asked.ext_fields["topic"] for asked in peer.received[ASK]] == ["t", "u"]
        routes._next_fetch_at["u"] -= 1.0
        await routes.refresh_within(["t", "u"], 10)
        assert [asked.ext_fields["topic"] for asked in peer.received[ASK]] == ["t", "u", "u"]


async def test_those_that_were_asked_for_longest_ago_come_first() -> None:
    """If the time limit ends before all routes are requested, the next refresh requests the others."""
    async with table() as (routes, peer, _):
        peer.on(ASK, route(1, peer))
        for topic in ("t", "u", "v"):
            await routes.find(topic)
        routes._next_fetch_at |= {"t": -1.0, "u": -3.0, "v": -2.0}
        await routes.refresh_within(["t", "u", "v"], 10)
        assert [asked.ext_fields["topic"] for asked in peer.received[ASK][3:]] == ["u", "v", "t"]


async def test_a_bounded_number_of_topics_is_refreshed_at_the_same_time() -> None:
    """Sequential requests for a thousand topics would wait a thousand times for a slow name server."""
    async with table() as (routes, peer, _), asyncio.timeout(30):
        peer.on(ASK, route(1, peer))
        topics = [f"t{number}" for number in range(40)]
        for topic in topics:
            await routes.find(topic)
        late: list[tuple[Connection, RemotingCommand]] = []
        peer.on(ASK, lambda connection, asked: late.append((connection, asked)))
        refreshing = asyncio.ensure_future(routes.refresh_all())
        await peer.wait_for(ASK, 40 + 32)
        for count in range(1, 9):
            route(2, peer)(*late[count - 1])
            await peer.wait_for(ASK, 40 + 32 + count)
            assert len(late) == 32 + count
        for each in late[8:]:
            route(2, peer)(*each)
        await refreshing
        assert [len(each.read_queues) for each in routes.all_cached()] == [2] * 40


async def refreshed_two_at_a_time(
    monkeypatch: pytest.MonkeyPatch, routes: RouteTable, peer: ScriptedPeer, *replies: Reply
) -> list[int]:
    """Return the numbers of queues of eight topics, each of which had one, after these responses."""
    monkeypatch.setattr("raptormq.client.cluster.routes._MAX_CONCURRENT", 2)
    peer.on(ASK, route(1, peer))
    for topic in "abcdefgh":
        await routes.find(topic)
    peer.on(ASK, *replies)
    with monkeypatch.context() as patched:
        patched.setattr(routes._cache._name_servers, "_timeout", 0.2)
        await routes.refresh_all()
    return [len(each.read_queues) for each in routes.all_cached()]


async def test_where_no_name_server_answers_the_other_topics_do_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with table() as (routes, peer, _):
        assert await refreshed_two_at_a_time(monkeypatch, routes, peer, silence) == [1] * 8
        assert len(await peer.wait_for(ASK, 8 + 4)) == 8 + 4
        assert "the routes of 4 more topics were not refreshed" in caplog.text
        peer.on(ASK, refuse(ResponseCode.SYSTEM_ERROR))
        await routes.refresh_all()
        assert len(peer.received[ASK]) == 8 + 4 + 8, "this is a response, and that for the next topic may differ"


async def test_a_name_server_that_fails_what_is_under_way_costs_the_other_topics_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with table() as (routes, peer, _):
        queues = await refreshed_two_at_a_time(monkeypatch, routes, peer, silence, silence, route(2, peer))
        assert queues == [1, 1, *[2] * 6]
