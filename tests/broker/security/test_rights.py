"""Every request to a broker requires exactly the permissions in the table, and a valid signature first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode
from tests.broker.harness import assembly_of, connected, running
from tests.broker.security.rights import ROWS, TABLE, USER
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, ask, create_alice
from tests.rights import LACKING, PAGE, Grants, Row, Table, Trial


@asynccontextmanager
async def tried(root: Path) -> AsyncIterator[Trial]:
    settings = SECURED | {"recallMessageEnable": "true"}
    async with running(root, settings) as broker, connected(broker) as peer:
        await create_alice(peer)
        await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, {"username": USER}, b'{"password":"x"}')
        parts = assembly_of(broker)
        yield Trial(TABLE, peer.connection, parts.router, parts.tables.security.acls, ALICE)


async def test_the_table_has_every_code_that_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        router = assembly_of(broker).router
        served = {int(code) for code in (*router._handlers, *router._batch_handlers)}
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
