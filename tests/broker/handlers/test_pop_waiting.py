"""Held pops and orderly pops while other consumers disconnect or pop, or an administrator resets offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from tests.broker.handlers.test_pop import MINUTE, ack, handle_of, pop
from tests.broker.handlers.test_pop_returns import SYNC, failing_flush
from tests.broker.handlers.test_resets import reset
from tests.broker.harness import Peer, bodies, connected, held, running
from tests.clock import Clock

WAIT_MS = 60_000


async def waiting_pop(peer: Peer) -> RemotingCommand:
    return await pop(peer, queueId=-1, pollTime=WAIT_MS)


async def waiting_notification(peer: Peer) -> RemotingCommand:
    fields = {"consumerGroup": "consumers", "topic": "t", "queueId": -1, "pollTime": WAIT_MS, "bornTime": 0}
    return await peer.call(RequestCode.NOTIFICATION, fields)


@pytest.mark.parametrize("wait", [waiting_pop, waiting_notification])
async def test_who_is_gone_takes_no_message_from_those_who_wait(
    tmp_path: Path, wait: Callable[[Peer], Coroutine[object, object, RemotingCommand]]
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        await pop(peer)
        async with connected(broker) as gone:
            gone_wait = asyncio.ensure_future(wait(gone))
            await held(gone, 1)
            waiting = asyncio.ensure_future(waiting_pop(peer))
            await held(peer, 1)
            gone_wait.cancel()
        await held(peer, 1)
        await producer.send("t", b"1", 3)
        async with asyncio.timeout(20):
            assert bodies(await waiting) == [b"1"]


async def test_what_a_pop_leaves_is_for_those_who_wait_for_its_queue(tmp_path: Path) -> None:
    async with running(tmp_path, SYNC) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        await pop(peer)
        other = asyncio.ensure_future(pop(peer, queueId=1, pollTime=WAIT_MS))
        await held(peer, 1)
        tasks = [asyncio.ensure_future(pop(peer, queueId=0, maxMsgNums=1, pollTime=WAIT_MS)) for _ in range(2)]
        await held(peer, 2)
        await producer.send_list("t", [b"1", b"2"], 0)
        async with asyncio.timeout(20):
            assert sorted(bodies(each)[0] for each in await asyncio.gather(*tasks)) == [b"1", b"2"]
        other.cancel()


async def test_what_a_pop_leaves_of_the_retry_topic_is_for_those_who_wait_for_other_queues(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, SYNC, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"1", b"2"])
        assert len(bodies(await pop(peer))) == 2
        tasks = [asyncio.ensure_future(pop(peer, queueId=each, maxMsgNums=1, pollTime=WAIT_MS)) for each in range(2)]
        await held(peer, 2)
        clock.move(MINUTE)
        async with asyncio.timeout(20):
            assert sorted(bodies(each)[0] for each in await asyncio.gather(*tasks)) == [b"1", b"2"]


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_what_a_pop_could_not_take_is_for_those_who_went_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue_id: int
) -> None:
    async with running(tmp_path, SYNC) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        await pop(peer, queueId=queue_id)
        other = asyncio.ensure_future(pop(peer, queueId=1, pollTime=WAIT_MS))
        await held(peer, 1)
        failing, may_fail = failing_flush(monkeypatch)
        await peer.send("t", b"1")
        fails = asyncio.ensure_future(pop(peer, queueId=queue_id))
        await failing.wait()
        waiting = asyncio.ensure_future(pop(peer, queueId=queue_id, pollTime=WAIT_MS))
        await held(peer, 1)
        may_fail.set()
        assert (await fails).code == ResponseCode.SERVICE_NOT_AVAILABLE
        async with asyncio.timeout(20):
            assert bodies(await waiting) == [b"1"]
        other.cancel()


async def test_a_reset_is_not_held_up_by_what_was_popped_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"%d" % number for number in range(4)])
        first = await pop(peer, order="true", maxMsgNums=2)
        assert (await reset(peer)).code == 0
        again = await pop(peer, order="true", maxMsgNums=2)
        assert bodies(again) == [b"0", b"1"]
        for offset in range(2):
            await ack(peer, handle_of(first, 0), offset)  # of the pop before the reset
        assert bodies(await pop(peer, order="true", maxMsgNums=2)) == []
        for offset in range(2):
            await ack(peer, handle_of(again, 0), offset)
        assert bodies(await pop(peer, order="true", maxMsgNums=2)) == [b"2", b"3"]


async def test_a_topic_made_again_is_not_held_up_by_what_was_popped_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        await pop(peer, order="true", maxMsgNums=2)
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        await peer.send_list("t", [b"new 0", b"new 1"])
        assert bodies(await pop(peer, order="true", maxMsgNums=2)) == [b"new 0", b"new 1"]
