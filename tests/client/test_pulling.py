"""One pull, at brokers that cannot hold it."""

from __future__ import annotations

import asyncio

from raptormq.client import MessageQueue
from raptormq.client.pulling import PullRequest, PullStatus, pull
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.headers.pull import PullMessageResponseHeader
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import ScriptedPeer, answer

NOTHING = answer(ResponseCode.PULL_NOT_FOUND, PullMessageResponseHeader(0, 7, 0, 7))


async def seconds_of_pull(suspend_ms: int) -> float:
    wanted = PullRequest("g", MessageQueue("t", "b", 0), 7, 32, Subscription("t", "*", version=0), True, suspend_ms)
    async with ScriptedPeer() as broker:
        broker.on(RequestCode.PULL_MESSAGE, NOTHING)
        pool = ConnectionPool()
        await pool.connection(broker.address)
        clock = asyncio.get_running_loop().time
        asked = clock()
        result = await pull(pool, broker.address, wanted, 30)
        passed = clock() - asked
        await pool.close()
    assert result.status is PullStatus.NO_NEW_MESSAGE
    assert result.next_offset == 7
    return passed


async def test_a_pull_that_its_broker_cannot_hold_waits_in_its_place() -> None:
    assert await seconds_of_pull(15_000) >= 0.19
    assert await seconds_of_pull(100) >= 0.04
