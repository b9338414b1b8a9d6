"""Peers that stay connected and send nothing, like after a power failure of their machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from raptormq.errors import CommandError, ConnectionClosed, RequestTimeout
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.transport import requests
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router
from raptormq.transport.server import Server

ECHO, NEVER, LATE, HELD = 1, 2, 3, 4
LATE_S = 0.2
STOPPED_S = 0.7
"""Longer than the timeouts here, and long enough to be detected as a stop of the process."""


def stop_the_process(seconds: float = STOPPED_S) -> None:
    """Block the event loop for some time, like SIGSTOP or an exhausted CPU quota."""
    threading.Event().wait(seconds)


async def turns() -> None:
    """Let the event loop run due timers, and the callbacks that they schedule."""
    for _ in range(4):
        await asyncio.sleep(0)


async def late(_: object, asked: RemotingCommand, __: object) -> RemotingCommand:
    """Respond like a peer that was stopped, too, and has other work first."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(LATE_S, done.set_result, None)
    await done
    return response_to(asked)


@asynccontextmanager
async def silent_peer(
    limits: ConnectionLimits, held: Callable[[object, RemotingCommand, object], Awaitable[RemotingCommand]] = late
) -> AsyncIterator[tuple[str, Server, ConnectionPool]]:
    router = Router()
    router.add(HELD, None, held)
    router.add(ECHO, None, lambda connection, asked, header: response_to(asked))
    router.add(NEVER, None, lambda connection, asked, header: None)
    router.add(LATE, None, late)
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    pool = ConnectionPool(limits=limits)
    try:
        yield f"127.0.0.1:{server.port}", server, pool
    finally:
        await pool.close()
        await server.stop()


async def test_a_peer_that_owes_an_answer_for_long_is_dropped_and_the_next_request_reconnects() -> None:
    async with silent_peer(ConnectionLimits(silence_seconds=0.2)) as (address, _, pool):
        first = await pool.connection(address)
        held = asyncio.ensure_future(pool.request(address, request(NEVER), 30))
        with pytest.raises(RequestTimeout):
            await pool.request(address, request(NEVER), 0.3)
        with pytest.raises(ConnectionClosed):
            await held
        await pool.request(address, request(ECHO), 5)
        assert await pool.connection(address) is not first


async def test_request_after_a_timeout_in_silence_uses_a_new_connection_and_pending_ones_are_still_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the address of a leader, a new connection reaches the next one; the former one may only be slow."""
    monkeypatch.setattr(requests, "_DOUBT_S", 0.2)
    goes_on = asyncio.Event()

    async def held(_: object, asked: RemotingCommand, __: object) -> RemotingCommand:
        await goes_on.wait()
        return response_to(asked)

    async with silent_peer(ConnectionLimits(silence_seconds=60.0), held) as (address, server, pool):
        first = await pool.connection(address)
        pending = asyncio.ensure_future(pool.request(address, request(HELD), 60))
        with pytest.raises(RequestTimeout):
            await pool.request(address, request(NEVER), 0.3)
        assert pool.open_connection(address) is None
        await pool.request(address, request(ECHO), 60)
        second = await pool.connection(address)
        assert second is not first
        assert not pending.done()
        goes_on.set()
        assert (await pending).code == 0
        await first.wait_closed()
        assert pool.open_connection(address) is second
        while server.connection_count != 1:
            await asyncio.sleep(0.01)


async def test_pool_closes_connections_that_others_have_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_DOUBT_S", 0.2)
    async with silent_peer(ConnectionLimits(silence_seconds=60.0)) as (address, _, pool):
        first = await pool.connection(address)
        pending = asyncio.ensure_future(pool.request(address, request(NEVER), 60))
        with pytest.raises(RequestTimeout):
            await pool.request(address, request(NEVER), 0.3)
        await pool.request(address, request(ECHO), 60)
        await pool.close()
        assert first.is_disconnected
        with pytest.raises(ConnectionClosed):
            await pending


async def test_a_peer_owes_nothing_for_a_request_that_could_not_be_sent() -> None:
    async with silent_peer(ConnectionLimits(silence_seconds=0.2)) as (address, _, pool):
        first = await pool.connection(address)
        await pool.request(address, request(ECHO), 5)
        with pytest.raises(CommandError):
            await pool.request(address, RemotingCommand(ECHO, {"topic": "\ud800"}), 0.1)
        clock = asyncio.get_running_loop().time
        end = clock() + 0.5  # some sweeps after the limit
        while clock() < end:
            assert not first.is_closed
            await asyncio.sleep(0.01)


async def test_a_peer_that_answers_other_requests_is_not_dropped() -> None:
    async with silent_peer(ConnectionLimits(silence_seconds=3.0)) as (address, _, pool):
        first = await pool.connection(address)
        late = asyncio.ensure_future(pool.request(address, request(NEVER), 3.5))
        while not late.done():
            await pool.request(address, request(ECHO), 5)
        with pytest.raises(RequestTimeout):
            await late
        assert await pool.connection(address) is first


async def test_without_a_limit_a_silent_peer_is_kept() -> None:
    async with silent_peer(ConnectionLimits()) as (address, _, pool):
        first = await pool.connection(address)
        with pytest.raises(RequestTimeout):
            await pool.request(address, request(NEVER), 0.3)
        assert await pool.connection(address) is first


async def test_who_was_stopped_reads_the_answers_before_it_gives_up() -> None:
    async with silent_peer(ConnectionLimits(silence_seconds=0.2)) as (address, _, pool):
        first = await pool.connection(address)
        held = asyncio.ensure_future(pool.request(address, request(NEVER), 30))
        asked = asyncio.ensure_future(pool.request(address, request(ECHO), 0.1))
        await asyncio.sleep(0)  # both are sent; the peer is in this process, too
        stop_the_process()
        hasty = asyncio.ensure_future(pool.request(address, request(ECHO), 0.01))
        await asked
        await hasty
        assert await pool.connection(address) is first
        held.cancel()


async def test_a_hasty_request_does_not_end_the_grace_of_others() -> None:
    async with silent_peer(ConnectionLimits()) as (address, _, pool):
        await pool.connection(address)
        asked = asyncio.ensure_future(pool.request(address, request(LATE), 0.1))
        await asyncio.sleep(0)
        stop_the_process()
        await turns()
        with pytest.raises(RequestTimeout):
            await pool.request(address, request(NEVER), LATE_S / 10)
        assert (await asked).code == 0


async def test_who_is_stopped_again_and_again_gives_up_all_the_same() -> None:
    async with silent_peer(ConnectionLimits()) as (address, _, pool):
        await pool.connection(address)
        asked = asyncio.ensure_future(pool.request(address, request(NEVER), 0.1))
        for _ in range(3):
            await turns()
            stop_the_process(1.2)  # until a pause after a stop, too
        await turns()
        assert asked.done()
        with pytest.raises(RequestTimeout, match="no response from"):
            await asked
