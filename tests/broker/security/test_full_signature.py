"""A broker that requires full signatures: a recorded request cannot be reused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.errors import ConfigError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import FULL_SIGNATURE, SignatureStamp, sign_fully
from raptormq.protocol.signing import sign
from raptormq.security import full_signatures
from raptormq.security.settings import AccessControl
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import TIMEOUT, Peer, connected, running, send_fields
from tests.broker.security.test_access_control import ROOT, SECURED
from tests.clock import Clock

DEMANDING = SECURED | {"demandFullSignature": "true", "fullSignatureWindow": "60000"}
WINDOW_MS = 60_000
SESSION = "00112233445566ff"


@asynccontextmanager
async def demanding(folder: Path, clock: Clock) -> AsyncIterator[Broker]:
    async with running(folder, DEMANDING, clock=clock) as broker:
        yield broker


def read_request(clock: Clock, number: int = 1, ahead_ms: int = 0, session: str = SESSION) -> RemotingCommand:
    """A signed request for a topic's configuration."""
    request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
    sign_fully(request, ROOT, SignatureStamp(clock() + ahead_ms, session, number))
    return request


async def outcome(peer: Peer, request: RemotingCommand) -> tuple[int, str]:
    copy = RemotingCommand(request.code, dict(request.ext_fields), request.body)
    answer = await peer.connection.request(copy, TIMEOUT)
    return answer.code, answer.remark or ""


async def make_topic(peer: Peer, clock: Clock) -> None:
    request = RemotingCommand(310, {name: str(value) for name, value in send_fields("orders").items()}, b"x")
    sign_fully(request, ROOT, SignatureStamp(clock(), SESSION, 0))
    assert (await outcome(peer, request))[0] == ResponseCode.SUCCESS


async def test_a_signed_read_is_no_delete(tmp_path: Path) -> None:
    """With the classic signature it can be used, because both requests have the field topic and no body."""
    clock = Clock()
    async with running(tmp_path / "classic", SECURED) as broker, connected(broker) as peer:
        await make_topic(peer, clock)
        seen = read_request(clock)
        seen.code = RequestCode.DELETE_TOPIC_IN_BROKER
        assert (await outcome(peer, seen))[0] == ResponseCode.SUCCESS  # the purpose of the setting
    async with demanding(tmp_path / "full", clock) as broker, connected(broker) as peer:
        await make_topic(peer, clock)
        seen = read_request(clock)
        seen.code = RequestCode.DELETE_TOPIC_IN_BROKER
        assert await outcome(peer, seen) == (ResponseCode.NO_PERMISSION, "check full signature failed.")
        assert (await outcome(peer, read_request(clock, 2)))[0] == ResponseCode.SUCCESS


async def test_the_classic_signature_alone_is_refused(tmp_path: Path) -> None:
    async with demanding(tmp_path, Clock()) as broker, connected(broker) as peer:
        request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
        sign(request, ROOT)
        code, remark = await outcome(peer, request)
        assert code == ResponseCode.NO_PERMISSION
        assert remark.startswith("the full signature is missing: this server requires it (demandFullSignature)")
        request.ext_fields[FULL_SIGNATURE] = "7:what"
        sign(request, ROOT)
        code, remark = await outcome(peer, request)
        assert (code, remark.partition(":")[0]) == (16, "the full signature cannot be parsed")


@pytest.mark.parametrize(
    ("ahead_ms", "remark"),
    [
        (-WINDOW_MS, None),
        (WINDOW_MS, None),
        (-WINDOW_MS - 1, "its time is 60.0 s behind this server's clock; the limit is 60 s (fullSignatureWindow)"),
        (WINDOW_MS + 1, "its time is 60.0 s ahead of this server's clock; the limit is 60 s (fullSignatureWindow)"),
    ],
)
async def test_a_signature_expires(tmp_path: Path, ahead_ms: int, remark: str | None) -> None:
    clock = Clock()
    async with demanding(tmp_path, clock) as broker, connected(broker) as peer:
        clock.hold()
        await make_topic(peer, clock)
        code, told = await outcome(peer, read_request(clock, ahead_ms=ahead_ms))
        assert code == (ResponseCode.SUCCESS if remark is None else ResponseCode.NO_PERMISSION)
        assert remark is None or remark in told
        clock.run()


async def test_a_request_that_is_sent_again_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    again = "the full signature was used before: this is a replayed request."
    async with demanding(tmp_path, clock) as broker, connected(broker) as peer, connected(broker) as other:
        await make_topic(peer, clock)
        seen = read_request(clock, 1)
        assert (await outcome(peer, seen))[0] == ResponseCode.SUCCESS
        assert await outcome(peer, seen) == (ResponseCode.NO_PERMISSION, again)
        assert await outcome(other, seen) == (ResponseCode.NO_PERMISSION, again)
        assert (await outcome(peer, read_request(clock, 3)))[0] == ResponseCode.SUCCESS
        assert await outcome(peer, read_request(clock, 2)) == (ResponseCode.NO_PERMISSION, again)
        # Nor can a request that was intercepted arrive by another connection.
        assert await outcome(other, read_request(clock, 4)) == (ResponseCode.NO_PERMISSION, again)


async def test_it_is_refused_also_when_its_connection_has_ended(tmp_path: Path) -> None:
    clock = Clock()
    async with demanding(tmp_path, clock) as broker:
        clock.hold()
        async with connected(broker) as peer:
            await make_topic(peer, clock)
            seen = read_request(clock, ahead_ms=WINDOW_MS)
            assert (await outcome(peer, seen))[0] == ResponseCode.SUCCESS
        clock.move(2 * WINDOW_MS)  # the last time at which its timestamp is accepted
        async with connected(broker) as newcomer:  # after which the broker may forget it
            assert (await outcome(newcomer, read_request(clock, session="ee" * 8)))[0] == ResponseCode.SUCCESS
        async with connected(broker) as peer:
            code, remark = await outcome(peer, seen)
            assert (code, remark.partition(":")[0]) == (16, "the full signature was used before")
        clock.move(1)
        async with connected(broker) as peer:
            code, remark = await outcome(peer, seen)
            assert (code, remark.partition(":")[0]) == (16, "the full signature has expired")
        clock.run()


async def test_connections_that_are_long_gone_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_signatures, "MAX_SESSIONS", 3)
    clock = Clock()
    async with demanding(tmp_path, clock) as broker:
        clock.hold()

        async def ask_as(session: str) -> tuple[int, str]:
            async with connected(broker) as peer:
                found = await outcome(peer, read_request(clock, session=session))
            assert broker._server is not None
            while broker._server.connection_count:  # until the broker has detected the end
                await asyncio.sleep(0)
            return found

        for number in range(3):
            assert (await ask_as(f"{number:016x}"))[0] == ResponseCode.TOPIC_NOT_EXIST
        code, remark = await ask_as(f"{9:016x}")
        assert (code, remark) == (16, "the limit of 3 recent connections is reached: retry later.")
        clock.move(2 * WINDOW_MS + 1)
        assert (await ask_as(f"{9:016x}"))[0] == ResponseCode.TOPIC_NOT_EXIST
        clock.run()


async def test_a_connection_has_one_session(tmp_path: Path) -> None:
    clock = Clock()
    async with demanding(tmp_path, clock) as broker, connected(broker) as peer:
        await make_topic(peer, clock)
        code, remark = await outcome(peer, read_request(clock, session="ff" * 8))
        assert (code, remark.partition(" than")[0]) == (16, "the full signature has another session")


async def test_connections_sign_each_request_anew(tmp_path: Path) -> None:
    """Requests that clients send concurrently, as oneway requests, or a second time."""
    async with running(tmp_path, DEMANDING) as broker:
        pool = ConnectionPool(limits=ConnectionLimits(credentials=ROOT))
        address = f"127.0.0.1:{broker.port}"
        request = RemotingCommand(310, {name: str(value) for name, value in send_fields("orders").items()}, b"x")
        waiting = [pool.request(address, request, TIMEOUT) for _ in range(2)]
        assert [(await each).code for each in waiting] == [0, 0]
        await pool.close()


def test_it_needs_authentication() -> None:
    with pytest.raises(ConfigError, match="demandFullSignature=true needs authenticationEnabled=true"):
        AccessControl(demand_full_signature=True)
