"""Every request that the broker takes needs what the table of rights says: no more, no less, and a signature first."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.service import Broker
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.queue_batches import decode_answers
from raptormq.protocol.signing import ACCESS_KEY, Credentials, sign
from raptormq.security.acls import AclTable, parse_policies
from raptormq.security.resources import ACTIONS
from tests.broker.harness import Peer, assembly_of, connected, running
from tests.broker.security.rights import RESOURCES, ROWS, USER, Row, page_table
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, ask, create_alice

PAGE = Path(__file__).resolve().parents[3] / "docs" / "access-control.md"
EVERY_ACTION = set(ACTIONS) - {"Unknown", "All", "Any"}
Grants = dict[str, set[str]]
"""Resource -> actions."""


class Trial:
    """A broker with access control on, and what its handlers got to see."""

    def __init__(self, broker: Broker, peer: Peer) -> None:
        self.peer = peer
        self.reached: list[int] = []
        assembly = assembly_of(broker)
        self._acls: AclTable = assembly.tables.security.acls
        router = assembly.router
        for code, (header, handler) in router._handlers.items():
            router._handlers[code] = header, self._noting(code, handler)
        for code, group in router._groups.items():
            router._groups[code] = self._noting(code, group)

    def _noting(self, code: int, handler: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.reached.append(int(code))
            return handler(*arguments)

        return noted

    def allow(self, grants: Grants) -> None:
        """Let alice do this and nothing else."""
        self._acls.delete("User:alice")
        entries = [
            {"resource": resource, "actions": sorted(actions), "decision": "Allow"}
            for resource, actions in grants.items()
            if actions
        ]
        if entries:
            self._acls.put("User:alice", parse_policies({"policies": [{"entries": entries}]}))

    async def passes(self, row: Row) -> bool:
        """Whether alice may send the row's request; one that is refused has reached no handler."""
        self.reached.clear()
        answer = await ask(self.peer, ALICE, row.code, dict(row.fields), row.body)
        if row.code == RequestCode.SEND_QUEUE_BATCHES:  # its parts are judged by its handler
            return decode_answers(answer.body, 1)[0].code != ResponseCode.NO_PERMISSION
        passed = answer.code != ResponseCode.NO_PERMISSION
        assert bool(self.reached) is passed, (row, answer)
        return passed


@asynccontextmanager
async def tried(root: Path) -> AsyncIterator[Trial]:
    settings = SECURED | {"recallMessageEnable": "true"}
    async with running(root, settings) as broker, connected(broker) as peer:
        await create_alice(peer)
        await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, {"username": USER}, b'{"password":"x"}')
        yield Trial(broker, peer)


def demands(row: Row) -> list[tuple[str, list[str]]]:
    """Resource and the actions of which one is needed."""
    return [(RESOURCES[kind], actions.split(" or ")) for kind, actions in row.needs.items()]


def exact(row: Row) -> Iterator[Grants]:
    """Every set of rights that has one action for each demand."""
    named = [[(resource, action) for action in actions] for resource, actions in demands(row)]
    for choice in itertools.product(*named):
        yield {resource: {action} for resource, action in choice}


def with_another_action(row: Row) -> Iterator[Grants]:
    """All that is needed but for one resource, on which everything else is allowed."""
    for resource, actions in demands(row):
        yield next(exact(row)) | {resource: EVERY_ACTION - set(actions)}


def with_another_resource(row: Row) -> Iterator[Grants]:
    """All that is needed but for one resource, and everything on others of its kind."""
    for missing, _ in demands(row):
        others = {resource: granted for resource, granted in next(exact(row)).items() if resource != missing}
        yield others | {f"{missing}x": {"All"}, f"{missing.partition(':')[0]}:a*": {"All"}}


async def test_the_table_has_every_code_that_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        router = assembly_of(broker).router
        served = {int(code) for code in (*router._handlers, *router._groups)}
    assert {int(row.code) for row in ROWS} == served


def test_the_page_has_the_table() -> None:
    assert page_table() in PAGE.read_text(encoding="utf-8")


async def test_what_is_not_signed_reaches_no_handler(tmp_path: Path) -> None:
    passed: list[str] = []
    async with tried(tmp_path) as trial:
        connection = trial.peer.connection
        for row in ROWS:
            trial.reached.clear()
            fields = {name: str(value) for name, value in row.fields.items()}
            unsigned = RemotingCommand(row.code, fields, row.body)
            named = RemotingCommand(row.code, fields | {ACCESS_KEY: "root"}, row.body)
            guessed = RemotingCommand(row.code, dict(fields), row.body)
            sign(guessed, Credentials("root", "guessed"))
            for command in (unsigned, named, guessed):
                ext = dict(command.ext_fields)
                connection.oneway(RemotingCommand(row.code, ext, row.body, flag=CommandFlag.ONEWAY))
                answer = await connection.request(command, 10.0)
                if trial.reached or (answer.code, answer.body) != (ResponseCode.NO_PERMISSION, b""):
                    passed.append(f"{row.code!r} {row.about}: {answer.code} {answer.remark}")
    assert passed == []


async def test_a_user_without_rights_may_do_what_needs_none(tmp_path: Path) -> None:
    async with tried(tmp_path) as trial:
        trial.allow({})
        wrong = [f"{row.code!r} {row.about}" for row in ROWS if await trial.passes(row) is bool(row.needs)]
    assert wrong == []


@pytest.mark.parametrize("lacking", [with_another_action, with_another_resource])
async def test_nothing_else_replaces_what_is_needed(tmp_path: Path, lacking: Callable[[Row], Iterator[Grants]]) -> None:
    passed: list[str] = []
    async with tried(tmp_path) as trial:
        for row in ROWS:
            for grants in lacking(row):
                trial.allow(grants)
                if await trial.passes(row):
                    passed.append(f"{row.code!r} {row.about} with {grants}")
    assert passed == []


async def test_what_is_needed_is_enough(tmp_path: Path) -> None:
    refused: list[str] = []
    async with tried(tmp_path) as trial:
        for row in ROWS:
            for grants in exact(row):
                trial.allow(grants)
                if not await trial.passes(row):
                    refused.append(f"{row.code!r} {row.about} with {grants}")
    assert refused == []
