"""Several name servers: any response is sufficient, and an unresponsive one does not use up the time of the others."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client.cluster.name_servers import NameServers
from raptormq.errors import ConnectError, TransportError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.transport.pool import ConnectionPool
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, silence

ASK = RequestCode.GET_BROKER_CLUSTER_INFO


async def ask(servers: NameServers, timeout: float | None = None) -> RemotingCommand:
    return await servers.request(request(ASK), timeout)


async def test_it_stays_with_the_one_that_answered(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ASK, answer(body=b"second"))
        pool = ConnectionPool()
        servers = NameServers(pool, [f"127.0.0.1:{free_port}", peer.address], timeout=3)
        for _ in range(3):
            assert (await ask(servers)).body == b"second"
        assert servers._current == 1
        await pool.close()


@pytest.mark.parametrize("reply", [silence, hang_up], ids=["silent", "hangs up"])
async def test_the_next_one_answers(reply: Reply) -> None:
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        first.on(ASK, reply)
        second.on(ASK, answer(body=b"second"))
        pool = ConnectionPool()
        servers = NameServers(pool, [first.address, second.address], timeout=2)
        assert (await ask(servers)).body == b"second"
        await pool.close()


async def test_an_answer_with_an_error_code_is_an_answer() -> None:
    async with ScriptedPeer() as first, ScriptedPeer() as second:
        first.on(ASK, refuse(ResponseCode.SYSTEM_ERROR))
        pool = ConnectionPool()
        servers = NameServers(pool, [first.address, second.address], timeout=3)
        assert (await ask(servers)).code == ResponseCode.SYSTEM_ERROR
        assert not second.received[ASK]
        await pool.close()


@pytest.mark.parametrize("reply", [silence, hang_up], ids=["silent", "hangs up"])
async def test_another_one_that_does_not_answer_is_not_asked_again_at_once(
    reply: Reply, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedPeer() as first, ScriptedPeer() as second, ScriptedPeer() as third:
        second.on(ASK, reply)
        pool = ConnectionPool()
        gone = f"127.0.0.1:{free_port}"
        servers = NameServers(pool, [first.address, gone, second.address, third.address], timeout=3)
        assert list(await servers.ask_all(lambda: request(ASK))) == [first.address, third.address]
        async with ScriptedPeer(free_port) as back:
            for _ in range(2):
                assert list(await servers.ask_all(lambda: request(ASK))) == [first.address, third.address]
            assert [len(each.received[ASK]) for each in (first, back, second, third)] == [3, 0, 1, 3]
            monkeypatch.setattr(servers, "_skipped_until", {})
            second.on(ASK, answer())
            assert list(await servers.ask_all(lambda: request(ASK))) == list(servers.addresses)
        await pool.close()


async def test_all_gone_is_an_error_within_the_time(free_port: int) -> None:
    async with ScriptedPeer() as peer:
        peer.on(ASK, silence)
        pool = ConnectionPool()
        servers = NameServers(pool, [peer.address, f"127.0.0.1:{free_port}"], timeout=60)
        started = asyncio.get_running_loop().time()
        with pytest.raises(TransportError):
            await ask(servers, timeout=0.4)
        assert asyncio.get_running_loop().time() - started < 20  # not a separate timeout for each
        with pytest.raises(ConnectError, match=str(free_port)):
            await NameServers(pool, [f"127.0.0.1:{free_port}"], timeout=3).request(request(ASK))
        await pool.close()
