"""Permissions that each request to a server requires with access control, as a table, and a test of a server against
it.

The tables of brokers and of name servers are :mod:`tests.broker.security.rights` and :mod:`tests.namesrv.rights`. Both
are independent of the rules in the servers, which they test. ``docs/reference/access-control.md`` contains both.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.signing import ACCESS_KEY, Credentials, sign
from raptormq.security.acls import AclTable, parse_policies
from raptormq.security.resources import ACTIONS
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "access-control.md"
SAME = "the same"
TIMEOUT_S = 10.0
EVERY_ACTION = set(ACTIONS) - {"Unknown", "All", "Any"}
Grants = dict[str, set[str]]
"""Resource -> actions."""


def is_allowed(answer: RemotingCommand) -> bool:
    """Return whether a request was not refused for lack of permissions."""
    return answer.code != ResponseCode.NO_PERMISSION


@dataclass(frozen=True)
class Row:
    """One row. ``needs`` is ``{"topic": "Sub or Get"}``, and empty if every user with a valid signature may send the
    request. A code may have several rows for different resources.
    """

    code: RequestCode
    about: str
    needs: Mapping[str, str]
    apache: str = SAME
    why: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    body: bytes = b""
    passes: Callable[[RemotingCommand], bool] = is_allowed
    """Code that the response must have."""
    judged_by_handler: bool = False

    def __str__(self) -> str:
        return f"{int(self.code)} ({self.about})"

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the row in the format of the documentation page."""
        needed = "; ".join(f"{actions} on the {kind}" for kind, actions in self.needs.items())
        needed = needed.replace("the every cluster", "`Cluster:*`").replace("the everything", "`*`")
        return str(int(self.code)), self.about, needed or "only a signature", self.apache, self.why

    def command(self) -> RemotingCommand:
        """Return the unsigned request."""
        return RemotingCommand(self.code, {name: str(value) for name, value in self.fields.items()}, self.body)


@dataclass(frozen=True)
class Table:
    """The rows for one kind of server, and their resources."""

    rows: Sequence[Row]
    resources: Mapping[str, str]

    def page(self) -> str:
        """Return the table in the format of the documentation page."""
        head = ("code", "request", "needs", "in Apache RocketMQ", "reason for the difference; additional checks")
        text = [f"| {' | '.join(cells)} |" for cells in (head, *(row.cells for row in self.rows))]
        return "\n".join([text[0], "|---" * len(head) + "|", *text[1:]])

    def _demands(self, row: Row) -> list[tuple[str, list[str]]]:
        return [(self.resources[kind], actions.split(" or ")) for kind, actions in row.needs.items()]

    def exact(self, row: Row) -> Iterator[Grants]:
        """Return every set of permissions that has one action for each requirement."""
        named = [[(resource, action) for action in actions] for resource, actions in self._demands(row)]
        for choice in itertools.product(*named):
            yield {resource: {action} for resource, action in choice}

    def with_another_action(self, row: Row) -> Iterator[Grants]:
        """Return all required permissions except one, with all other actions on its resource."""
        for resource, actions in self._demands(row):
            yield next(self.exact(row)) | {resource: EVERY_ACTION - set(actions)}

    def with_another_resource(self, row: Row) -> Iterator[Grants]:
        """Return all required permissions except one, with permissions on other resources of its kind."""
        for missing, _ in self._demands(row):
            others = {resource: granted for resource, granted in next(self.exact(row)).items() if resource != missing}
            kind = missing.partition(":")[0]
            near = (f"{missing}x", f"{kind}:a*") if kind != "*" else ("Topic:*", "Group:*", "Cluster:*")
            yield others | {resource: {"All"} for resource in near}


class Trial:
    """A server with access control, of which only ``table`` is known, and the requests that reached its handlers.

    ``user`` has no permissions; ``before`` is called before each request.
    """

    def __init__(
        self,
        table: Table,
        connection: Connection,
        router: Router,
        acls: AclTable,
        user: Credentials,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._table = table
        self._connection = connection
        self._acls = acls
        self._user = user
        self._before = before
        self._reached: list[int] = []
        for code, (header, handler) in router._handlers.items():
            router._handlers[code] = header, self._noting(code, handler)
        for code, group in router._batch_handlers.items():
            router._batch_handlers[code] = self._noting(code, group)

    def _noting(self, code: int, handler: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self._reached.append(int(code))
            return handler(*arguments)

        return noted

    def _allow(self, grants: Grants) -> None:
        """Set the permissions of the user."""
        subject = f"User:{self._user.access_key}"
        self._acls.delete(subject)
        entries = [
            {"resource": resource, "actions": sorted(actions), "decision": "Allow"}
            for resource, actions in grants.items()
            if actions
        ]
        if entries:
            self._acls.put(subject, parse_policies({"policies": [{"entries": entries}]}))

    async def _passes(self, row: Row, grants: Grants) -> bool:
        """Return whether the user may send the request of the row with these permissions. A refused request must not
        reach a handler.
        """
        if self._before is not None:
            await self._before()
        self._allow(grants)
        self._reached.clear()
        command = row.command()
        sign(command, self._user)
        answer = await self._connection.request(command, TIMEOUT_S)
        passed = row.passes(answer)
        assert row.judged_by_handler or bool(self._reached) is passed, (str(row), answer)
        return passed

    async def unsigned_that_pass(self) -> list[str]:
        """Return the rows whose request reaches a handler, or is not answered with code 16, without a valid
        signature.
        """
        passed: list[str] = []
        for row in self._table.rows:
            unsigned, named, guessed = (row.command() for _ in range(3))
            named.ext_fields[ACCESS_KEY] = "root"
            sign(guessed, Credentials("root", "guessed"))
            for command in (unsigned, named, guessed):
                self._reached.clear()
                oneway = RemotingCommand(row.code, dict(command.ext_fields), row.body, flag=CommandFlag.ONEWAY)
                self._connection.oneway(oneway)
                answer = await self._connection.request(command, TIMEOUT_S)
                if self._reached or (answer.code, answer.body) != (ResponseCode.NO_PERMISSION, b""):
                    passed.append(f"{row}: {answer.code} {answer.remark}")
        return passed

    async def otherwise_without_rights(self) -> list[str]:
        """Return the rows that require nothing but are refused without permissions, and those that require permissions
        but are not refused.
        """
        return [str(row) for row in self._table.rows if await self._passes(row, {}) is bool(row.needs)]

    async def passing_with(self, lacking: Callable[[Table, Row], Iterator[Grants]]) -> list[str]:
        """Return the rows that are accepted with insufficient permissions."""
        rows = [(row, grants) for row in self._table.rows for grants in lacking(self._table, row)]
        return [f"{row} with {grants}" for row, grants in rows if await self._passes(row, grants)]

    async def refused_with_what_they_need(self) -> list[str]:
        """Return the rows that are refused with exactly the required permissions."""
        rows = [(row, grants) for row in self._table.rows for grants in self._table.exact(row)]
        return [f"{row} with {grants}" for row, grants in rows if not await self._passes(row, grants)]


LACKING = [Table.with_another_action, Table.with_another_resource]
