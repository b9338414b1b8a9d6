"""Every request to a name server requires exactly the permissions in the table, and a valid signature first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.namesrv.service import NameServer
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import sign
from tests.namesrv.rights import BROKER, OTHER_BROKER, ROWS, TABLE, TOPICS, USER
from tests.namesrv.test_access_control import ALICE, INNER, ROOT, ask, make_alice, secured
from tests.namesrv.test_service import TIMEOUT_S, Peer, config_for, serving
from tests.rights import LACKING, PAGE, Grants, Row, Table, Trial


@asynccontextmanager
async def tried(folder: Path) -> AsyncIterator[Trial]:
    closed = secured(folder, authenticationWhitelist="", authorizationWhitelist="")
    server = NameServer(config_for(folder, **closed))
    await server.start()
    peer = Peer(f"127.0.0.1:{server.port}")

    async def registered() -> None:
        """Register both brokers again."""
        for fields in (BROKER, OTHER_BROKER):
            command = RemotingCommand(RequestCode.REGISTER_BROKER, {k: str(v) for k, v in fields.items()}, TOPICS)
            sign(command, INNER)
            answer = await peer.pool.request(peer.address, command, TIMEOUT_S)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    try:
        await make_alice(peer)
        await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, b'{"password":"x"}', username=USER)
        await registered()
        assert server._security is not None
        connection = await peer.pool.connection(peer.address)
        yield Trial(TABLE, connection, server._router, server._security._tables.acls, ALICE, registered)
    finally:
        await peer.pool.close()
        await server.stop()


async def test_the_table_has_every_code_that_is_served(tmp_path: Path) -> None:
    server = NameServer(config_for(tmp_path, **secured(tmp_path)))
    await server.start()
    served = {int(code) for code in (*server._router._handlers, *server._router._batch_handlers)}
    await server.stop()
    assert {int(row.code) for row in ROWS} == served


def test_the_page_has_the_table() -> None:
    assert TABLE.page() in PAGE.read_text(encoding="utf-8")


async def test_what_is_not_signed_reaches_no_handler(tmp_path: Path) -> None:
    async with tried(tmp_path) as trial:
        assert await trial.unsigned_that_pass() == []


async def test_a_user_without_rights_may_do_what_needs_none(tmp_path: Path) -> None:
    async with tried(tmp_path) as trial:
        assert await trial.otherwise_without_rights() == []


@pytest.mark.parametrize("lacking", LACKING)
async def test_nothing_else_replaces_what_is_needed(
    tmp_path: Path, lacking: Callable[[Table, Row], Iterator[Grants]]
) -> None:
    async with tried(tmp_path) as trial:
        assert await trial.passing_with(lacking) == []


async def test_what_is_needed_is_enough(tmp_path: Path) -> None:
    async with tried(tmp_path) as trial:
        assert await trial.refused_with_what_they_need() == []


async def test_a_code_that_nobody_knows_needs_what_changes_need(tmp_path: Path) -> None:
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        await make_alice(peer, **{"*": ["Get"]})
        assert (await ask(peer, ALICE, 9999)).code == ResponseCode.NO_PERMISSION
        assert (await ask(peer, ROOT, 9999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
