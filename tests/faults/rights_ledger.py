"""Changes of users and permissions, and the check that every change that was answered is in force on each member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence

from raptormq.client import AdminClient
from raptormq.errors import RaptorMQError
from raptormq.protocol.bodies.access import AclEntry

_CHANGE_S = 0.05
"""Pause in seconds between two changes. Each of them is a record of all users."""
_MOST = 60
"""Number of users that exist at most."""
_APPLIED_S = 30.0


class RightsLedger:
    """Creates users with a permission and deletes every second one. Each name is used once."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.existing: set[str] = set()
        """Users whose creation was answered and whose deletion was not attempted."""
        self.permitted: set[str] = set()
        """Those of them whose permission was answered."""
        self.deleted: set[str] = set()
        """Users whose deletion was answered."""
        self.answered = 0
        """Number of changes that were answered with success."""
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.ensure_future(self._change())

    async def _change(self) -> None:
        number = 0
        while True:
            name, number = f"user{number}", number + 1
            if await self._is_done(self._admin.create_user(name, "secret-password")):
                self.existing.add(name)
                if await self._is_done(self._admin.put_acl(name, [AclEntry("Topic:orders", ("Pub",))])):
                    self.permitted.add(name)
                if number % 2 or len(self.existing) > _MOST:
                    self.existing.discard(name)
                    self.permitted.discard(name)
                    if await self._is_done(self._admin.delete_user(name)):
                        self.deleted.add(name)
            await asyncio.sleep(_CHANGE_S)

    async def _is_done(self, change: Awaitable[None]) -> bool:
        try:
            await change
        except RaptorMQError:
            return False
        self.answered += 1
        return True

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def violations(self, members: Sequence[str]) -> list[str]:
        """Return what the members with these addresses lack, and what they should not have.

        A member may apply the last changes later than the others, so that what is found is checked again for a while.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_APPLIED_S):
                while await self._violations(members):
                    await asyncio.sleep(_CHANGE_S)
        return await self._violations(members)

    async def _violations(self, members: Sequence[str]) -> list[str]:
        found: list[str] = []
        tables = []
        for member in members:
            users = {each.username for each in (await self._admin.users(servers=[member]))[member]}
            acls = {each.username for each in (await self._admin.acls(servers=[member]))[member]}
            found += [f"{member}: {name} is missing" for name in sorted(self.existing - users)]
            found += [f"{member}: the permission of {name} is missing" for name in sorted(self.permitted - acls)]
            found += [f"{member}: {name} is not deleted" for name in sorted(self.deleted & users)]
            found += [f"{member}: the permission of {name} has no user" for name in sorted(acls - users)]
            tables.append((users, acls))
        if any(table != tables[0] for table in tables):
            found.append("the members have different users or permissions")
        return found
