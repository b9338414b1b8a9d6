"""Heartbeats: every broker gets a change immediately, independently of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client.cluster.heartbeats import Heartbeats
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from tests.client.scripted_peer import ScriptedPeer, answer, refuse, silence

HEART_BEAT = RequestCode.HEART_BEAT
FOR_EVER = 300.0
"""Longer than any test session."""


@asynccontextmanager
async def heartbeats_to(*peers: ScriptedPeer) -> AsyncIterator[tuple[Heartbeats, list[str]]]:
    """Return the heartbeats with their producer groups."""
    groups = ["p"]
    pool = ConnectionPool(Router(), ConnectionLimits(), FOR_EVER)
    addresses = [peer.address for peer in peers]
    try:
        yield Heartbeats(pool, FOR_EVER, FOR_EVER, lambda: addresses, lambda: HeartbeatData("c", list(groups))), groups
    finally:
        await pool.close()


def told(peer: ScriptedPeer) -> list[list[str]]:
    return [HeartbeatData.from_json(command.body).producer_groups for command in peer.received[HEART_BEAT]]


async def test_a_frozen_broker_is_waited_for_in_the_background() -> None:
    async with ScriptedPeer() as alive, ScriptedPeer() as frozen, heartbeats_to(alive, frozen) as (heartbeats, groups):
        frozen.on(HEART_BEAT, silence)
        running = asyncio.create_task(heartbeats.run())
        async with asyncio.timeout(60):
            await heartbeats.send_all()
            groups.append("later")
            await heartbeats.send_all()
            assert told(alive)[:2] == [["p"], ["p", "later"]]
            heard = len(frozen.received[HEART_BEAT])
            await frozen.wait_for(HEART_BEAT, heard + 1)
        running.cancel()


async def test_many_groups_that_a_broker_has_forgotten_come_back_with_two_heartbeats() -> None:
    async with ScriptedPeer() as broker, heartbeats_to(broker) as (heartbeats, _):
        assert await asyncio.gather(*(heartbeats.send(broker.address) for _ in range(500))) == [True] * 500
        assert len(told(broker)) == 2  # the second heartbeat includes all changes after the start of the first


async def test_a_heartbeat_that_has_begun_does_not_count_for_a_change() -> None:
    async with ScriptedPeer() as broker, heartbeats_to(broker) as (heartbeats, groups):
        held = asyncio.Event()
        broker.on(HEART_BEAT, lambda *_: held.set(), answer())
        first = asyncio.create_task(heartbeats.send(broker.address))
        await held.wait()
        groups.append("later")
        second = asyncio.create_task(heartbeats.send(broker.address))
        first.cancel()  # the second waits before this is detected
        assert await second
        assert told(broker) == [["p"], ["p", "later"]]


async def test_who_came_along_with_a_heartbeat_that_is_refused_is_told_so() -> None:
    async with ScriptedPeer() as broker, heartbeats_to(broker) as (heartbeats, _):
        broker.on(HEART_BEAT, answer(), refuse(1), answer())
        told_to = await asyncio.gather(*(heartbeats.send(broker.address) for _ in range(4)))
        assert told_to == [True, False, False, False]
        assert await heartbeats.send(broker.address)


async def test_a_broker_that_refuses_a_client_is_in_the_log_once_for_each_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedPeer() as broker, heartbeats_to(broker) as (heartbeats, _):
        denied = refuse(ResponseCode.NO_PERMISSION, "no access to group g")
        broker.on(HEART_BEAT, denied, denied, answer(), denied)
        assert [await heartbeats.send(broker.address) for _ in range(4)] == [False, False, True, False]
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 2
    assert all("no access to group g" in line and broker.address in line for line in lines)
