"""One pull at brokers that do not hold it."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client import MessageQueue, PullConsumer
from raptormq.client.consumer import pull_consumer
from raptormq.client.consumer.pull import LATE_RESPONSE_S, UNHELD_PAUSE_S, PullRequest, PullResult, PullStatus, pull
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.headers.pull import PullMessageResponseHeader
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import ScriptedPeer, answer, route

NOTHING = answer(ResponseCode.PULL_NOT_FOUND, PullMessageResponseHeader(0, 7, 0, 7))


async def test_a_pull_that_its_broker_cannot_hold_waits_in_its_place() -> None:
    for suspend_ms in (15_000, 1, 0):
        wanted = PullRequest("g", MessageQueue("t", "b", 0), 7, 32, Subscription("t", "*", version=0), True, suspend_ms)
        async with ScriptedPeer() as broker:
            broker.on(RequestCode.PULL_MESSAGE, NOTHING)
            pool = ConnectionPool()
            clock = asyncio.get_running_loop().time
            asked = clock()
            result = await pull(pool, broker.address, wanted, 30, unheld_pause=0.1)
            assert clock() - asked >= 0.099
            assert result.status is PullStatus.NO_NEW_MESSAGE
            assert result.next_offset == 7
            async with asyncio.timeout(30):
                await pull(pool, broker.address, wanted, 30)
            await pool.close()


@pytest.mark.parametrize(
    "code", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED]
)
async def test_an_answer_that_leads_nowhere_is_not_followed_at_once(code: ResponseCode) -> None:
    """A broker that responds to offset 7 with "retry at 7" must not get thousands of requests per second."""
    wanted = PullRequest("g", MessageQueue("t", "b", 0), 7, 32, Subscription("t", "*", version=0), True, 15_000)
    async with ScriptedPeer() as broker:
        broker.on(RequestCode.PULL_MESSAGE, answer(code, PullMessageResponseHeader(0, 7, 0, 9)))
        pool = ConnectionPool()
        clock = asyncio.get_running_loop().time
        asked = clock()
        assert (await pull(pool, broker.address, wanted, 30, unheld_pause=0.1)).next_offset == 7
        assert clock() - asked >= 0.099
        await pool.close()


async def test_a_poll_gives_brokers_the_time_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """They look for expired suspensions every 5 seconds."""
    asked: list[tuple[float, float]] = []

    async def noted(
        pool: ConnectionPool, address: str, wanted: PullRequest, timeout: float, pause: float
    ) -> PullResult:
        asked.append((timeout - wanted.suspend_ms / 1000, pause))
        return PullResult(wanted.queue, PullStatus.NO_NEW_MESSAGE, 0, 0, 0, b"")

    monkeypatch.setattr(pull_consumer, "pull", noted)
    async with ScriptedPeer() as broker:
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, broker))
        async with PullConsumer(name_servers=broker.address) as consumer:
            consumer.assign([MessageQueue("t", "broker-0", 0)])
            consumer.seek(MessageQueue("t", "broker-0", 0), 0)
            while not asked:
                await consumer.poll(timeout=0.1)
    room, pause = asked[0]
    assert room > LATE_RESPONSE_S
    assert pause == UNHELD_PAUSE_S
