"""A topic that is deleted and recreated: popped messages of the old topic are not delivered from the new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.pop import pop_service
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.memory.send_budget import Reading
from tests.broker.handlers.test_pop import HOUR, MINUTE, ack, handle_of, pop
from tests.broker.handlers.test_pop_returns import SYNC, slow_flushes
from tests.broker.handlers.test_pop_trouble import change, popped_again
from tests.broker.harness import Peer, bodies, connected, running
from tests.clock import Clock


async def delete_topic(peer: Peer) -> None:
    assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0


async def pop_old_and_new(peer: Peer, clock: Clock) -> RemotingCommand:
    """Pop from a topic, and with a longer invisible time from its successor. Return the first response."""
    await peer.send("t", b"old")
    old = await pop(peer)
    await delete_topic(peer)
    clock.move(1)  # two pops of the same offset in the same millisecond would have the same key
    await peer.send("t", b"new")
    new = await pop(peer, invisibleTime=2 * MINUTE)
    clock.move(1)
    assert bodies(old) + bodies(new) == [b"old", b"new"]
    return old


async def expect_nothing_of_t(peer: Peer, clock: Clock) -> None:
    """Advance the clock by a minute, and wait until a popped message of another topic returns after the earlier
    ones.
    """
    await peer.send("u", b"u")
    await pop(peer, topic="u")
    clock.move(MINUTE)
    assert await popped_again(peer, "u") == [b"u"]
    assert bodies(await pop(peer, queueId=-1)) == []


@asynccontextmanager
async def old_and_new(root: Path, clock: Clock, restarts: int) -> AsyncIterator[tuple[Peer, RemotingCommand]]:
    """Run a broker with popped messages of a topic and of its successor. Yield a peer and the first response. Each
    start reads the whole revive log.
    """
    async with running(root, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("v", [b"%d" % number for number in range(8)])
        for _ in range(8):
            await pop(peer, topic="v", maxMsgNums=1, invisibleTime=HOUR)
        old = await pop_old_and_new(peer, clock)
        if not restarts:
            yield peer, old
            return
    for last in [False] * (restarts - 1) + [True]:
        async with running(root, clock=clock) as broker, connected(broker) as peer:
            if last:
                yield peer, old


@pytest.mark.parametrize("restarts", [0, 2])
async def test_what_was_popped_of_a_deleted_topic_brings_nothing_of_its_successor_back(
    tmp_path: Path, restarts: int
) -> None:
    clock = Clock()
    async with old_and_new(tmp_path, clock, restarts) as (peer, _):
        await expect_nothing_of_t(peer, clock)


@pytest.mark.parametrize("restarts", [0, 2])
async def test_a_handle_of_a_deleted_topic_changes_nothing_of_its_successor(tmp_path: Path, restarts: int) -> None:
    clock = Clock()
    async with old_and_new(tmp_path, clock, restarts) as (peer, old):
        assert (await change(peer, handle_of(old, 0), 0)).code == 0
        assert (await ack(peer, handle_of(old, 0), 0)).code == 0
        await expect_nothing_of_t(peer, clock)
        clock.move(MINUTE)  # nor is it processed
        assert await popped_again(peer, "t") == [b"new"]


def slow_grants(_: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Make the processing of read entries wait for the second event. The first event reports that it waits."""
    granting, granted = asyncio.Event(), asyncio.Event()

    async def waiting(_: Reading, __: int) -> bool:
        granting.set()
        return await granted.wait()

    monkeypatch.setattr(Reading, "granted_mapped", waiting)
    return granting, granted


def slow_starts(_: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Make the initialization of a group at the end of a topic wait for the second event. The first event reports that
    it waits.
    """
    starting, may_start = asyncio.Event(), asyncio.Event()

    async def waiting(*_: object) -> bool:
        starting.set()
        await may_start.wait()
        return False

    monkeypatch.setattr(pop_service, "is_young", waiting)
    return starting, may_start


@pytest.mark.parametrize("slow", [slow_flushes, slow_grants, slow_starts])
async def test_a_pop_that_a_deletion_overtakes_takes_nothing_of_the_successor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slow: Callable[[Broker, pytest.MonkeyPatch], tuple[asyncio.Event, asyncio.Event]],
) -> None:
    clock = Clock()
    async with running(tmp_path, SYNC, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"old"] * 3)
        waits, may_go_on = slow(broker, monkeypatch)
        popping = asyncio.ensure_future(pop(peer, initMode=1))
        await waits.wait()
        await delete_topic(peer)
        await peer.send("t", b"new")
        may_go_on.set()
        assert bodies(await popping) == []
        new = await pop(peer)
        assert bodies(new) == [b"new"]
        assert (await ack(peer, handle_of(new, 0), 0)).code == 0
        await expect_nothing_of_t(peer, clock)


@pytest.mark.parametrize("v2", ["false", "true"])
async def test_what_has_come_back_goes_with_the_topic(tmp_path: Path, v2: str) -> None:
    clock, form = Clock(), {"enableRetryTopicV2": v2}
    async with running(tmp_path, form, clock=clock) as broker, connected(broker) as peer:
        for topic in ("t", "u"):
            await peer.send(topic, b"old")
            await pop(peer, topic=topic)
        clock.move(MINUTE)
        assert await popped_again(peer, "u") == [b"old"]
        await delete_topic(peer)
        await peer.send("t", b"new")
        assert bodies(await pop(peer, queueId=-1)) == [b"new"]


async def test_the_retry_topic_of_another_group_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.heartbeat("client", "consumers_t", "u")
        await peer.send("t", b"x")
        await pop(peer)
        await delete_topic(peer)
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "%RETRY%consumers_t"})).code == 0
