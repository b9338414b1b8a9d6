"""Administration of users: 3001 create, 3002 update, 3003 delete, 3004 get, 3005 list (``AdminBrokerProcessor``).

A password is the secret key of signatures, so its reader can impersonate the user. Apache RocketMQ returns all
passwords to users with the permission to read the cluster. RaptorMQ returns them only to authenticated super users.
"""

from __future__ import annotations

from raptormq.protocol.bodies.tolerant_json import dumps, loads_request
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.auth import ListUsersRequestHeader, UserRequestHeader
from raptormq.protocol.signing import ACCESS_KEY
from raptormq.security.gate import AccessGate
from raptormq.security.tables import BeginChange, SecurityTables, not_replicated
from raptormq.security.users import SUPER, UserChange, denied
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class UserHandlers:
    """Creates, changes, deletes and lists users. Only a super user may change super users."""

    def __init__(self, tables: SecurityTables, gate: AccessGate, begin_change: BeginChange = not_replicated) -> None:
        self._begin_change = begin_change
        self._users = tables.users
        self._acls = tables.acls
        self._users_saver = tables.users_saver
        self._acls_saver = tables.acls_saver
        self._gate = gate

    def register(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.AUTH_CREATE_USER, UserRequestHeader, self.create)
        router.add(RequestCode.AUTH_UPDATE_USER, UserRequestHeader, self.update)
        router.add(RequestCode.AUTH_DELETE_USER, UserRequestHeader, self.delete)
        router.add(RequestCode.AUTH_GET_USER, UserRequestHeader, self.get)
        router.add(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader, self.list)

    async def create(self, _: Connection, command: RemotingCommand, header: UserRequestHeader) -> RemotingCommand:
        """3001: create a user."""
        change = UserChange.of(_required(header), loads_request(command.body))
        if change.type == SUPER and self._is_not_super(command):
            raise Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        confirmed = self._begin_change()
        self._users.create(change)
        await self._users_saver.saved()
        await confirmed()
        return response_to(command)

    async def update(self, _: Connection, command: RemotingCommand, header: UserRequestHeader) -> RemotingCommand:
        """3002: update a user."""
        change = UserChange.of(_required(header), loads_request(command.body))
        if change.type == SUPER and self._is_not_super(command):
            raise Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        self._require_may_change(change.username, command)
        confirmed = self._begin_change()
        self._users.update(change)
        await self._users_saver.saved()
        await confirmed()
        return response_to(command)

    async def delete(self, _: Connection, command: RemotingCommand, header: UserRequestHeader) -> RemotingCommand:
        """3003: delete a user and the user's ACL."""
        username = header.username or ""
        if not username.strip():
            raise denied("username can not be blank")
        self._require_may_change(username, command)
        self._users.check_not_fixed(username)
        confirmed = self._begin_change()
        # The ACL goes first. If only a part of the change survives, a user that is created with this name later must
        # not inherit the permissions.
        self._acls.delete(f"User:{username}")
        await self._acls_saver.saved()
        self._acls.delete(f"User:{username}")  # another request may have set it meanwhile
        self._users.delete(username)
        await self._users_saver.saved()
        await self._acls_saver.saved()
        await confirmed()
        return response_to(command)

    def get(self, _: Connection, command: RemotingCommand, header: UserRequestHeader) -> RemotingCommand:
        """3004: return one user. The body is empty if the user does not exist."""
        user = self._users.get(_required(header))
        shows = self._gate.is_by_super_user(command)
        return response_to(command, body=b"" if user is None else dumps(user.shown(password=shows)))

    def list(self, _: Connection, command: RemotingCommand, header: ListUsersRequestHeader) -> RemotingCommand:
        """3005: list users. The body is empty if there are none."""
        users = self._users.matching(header.filter)
        shows = self._gate.is_by_super_user(command)
        return response_to(command, body=dumps([user.shown(password=shows) for user in users]) if users else b"")

    def _require_may_change(self, username: str, command: RemotingCommand) -> None:
        user = self._users.get(username)
        if user is not None and user.is_super and self._is_not_super(command):
            raise denied("The super user can only be update by super user")

    def _is_not_super(self, command: RemotingCommand) -> bool:
        """Return whether the sender of a request is not a super user. With authentication, the verified signature
        identifies the sender. Without authentication, the access key does, and a request without one counts as sent by
        a super user.
        """
        if self._gate.authenticates:
            return not self._gate.is_by_super_user(command)
        username = command.ext_fields.get(ACCESS_KEY)
        user = self._users.get(username) if username else None
        return bool(username) and (user is None or not user.is_super)


def _required(header: UserRequestHeader) -> str:
    if not header.username or not header.username.strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return header.username
