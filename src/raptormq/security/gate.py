"""The one place where requests are judged: authentication first, then authorization (RocketMQ
``AuthenticationPipeline``, ``AuthorizationPipeline``).

The router asks it before any handler runs, so that no handler can forget to. What is refused is answered with 16 and
RocketMQ's text. Signatures are computed for every request; decisions about permissions are remembered until a table
changes.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.errors import ProtocolError
from raptormq.logs import get_logger
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import ACCESS_KEY, is_signed_with
from raptormq.security.acls import AclTable
from raptormq.security.full_signatures import FullSignatures
from raptormq.security.resources import RequiredPermission
from raptormq.security.users import UserTable, denied
from raptormq.transport.connection import Connection
from raptormq.transport.router import Guard, Refused, Router, failure

logger = get_logger(__name__)

_MAX_DECISIONS = 20_000

Authorizer = Callable[[Connection, RemotingCommand, list[RequiredPermission]], bool]
"""Whether the user of a request may do what is demanded."""

UserAuthorizer = Callable[[str | None, str, list[RequiredPermission]], bool]
"""Whether a user may do from an address what is demanded."""

PermissionResolver = Callable[[RemotingCommand], list[RequiredPermission]]
"""Returns all that a request needs, nothing for what every user may do; raises ProtocolError where nobody can tell."""


class AccessGate:
    """Judges requests by the tables of users and ACLs."""

    def __init__(
        self,
        users: UserTable,
        acls: AclTable,
        permissions_of: PermissionResolver,
        *,
        authentication: bool,
        authorization: bool,
        open_codes: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset()),
        full_signatures: FullSignatures | None = None,
    ) -> None:
        """``open_codes`` need no authentication (first) or no authorization (second). With ``full_signatures`` the
        classic one is not enough.
        """
        self._users = users
        self._acls = acls
        self._permissions_of = permissions_of
        self._full_signatures = full_signatures
        self._authentication = authentication
        self._authorization = authorization
        self._unsigned, self._authorization_free = open_codes
        self.refused_count = 0
        """Requests that did not pass."""
        self._decisions: dict[tuple[str, RequiredPermission, str], str | None] = {}
        users.on_change(self._decisions.clear)
        acls.on_change(self._decisions.clear)

    def protect(self, router: Router) -> None:
        """Let nothing through to the handlers of ``router`` that is refused here."""
        router.guard(self.guard)
        if self._full_signatures is not None:
            router.on_closed(self._full_signatures.closed)

    @property
    def guard(self) -> Guard | None:
        """What the router has to ask, None when everything is allowed."""
        return self.refusal if self._authentication or self._authorization else None

    @property
    def authenticates(self) -> bool:
        """Whether anybody is asked who he is."""
        return self._authentication

    def is_by_super_user(self, request: RemotingCommand) -> bool:
        """Whether a super user has signed ``request``, and his signature was looked at."""
        is_proved = self._authentication and request.code not in self._unsigned
        return is_proved and self._is_super(request.ext_fields.get(ACCESS_KEY))

    @property
    def authorize(self) -> Callable[[Connection, RemotingCommand], None] | None:
        """What judges the parts of a request that holds several (30320), None when everything is allowed."""
        return self._authorize_part if self._authorization else None

    def _authorize_part(self, connection: Connection, part: RemotingCommand) -> None:
        """Raise the refusal of a part that its user must not send; the whole request was authenticated."""
        if part.code not in self._authorization_free:
            self._authorize(part, connection.peer[0])

    @property
    def user_authorizer(self) -> UserAuthorizer | None:
        """What tells whether a user may do something now, who does not ask; None when everything is allowed."""
        return self._is_user_authorized if self._authorization else None

    def _is_user_authorized(self, username: str | None, source_ip: str, permissions: list[RequiredPermission]) -> bool:
        user = self._users.get(username) if username is not None else None
        if user is None or user.is_disabled:
            return False
        return user.is_super or self._has_permissions(username, permissions, source_ip)

    @property
    def authorizer(self) -> Authorizer | None:
        """What tells whether a request's user may do what turns out to be needed, None when everything is allowed."""
        return self._is_authorized if self._authorization else None

    def refusal(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Return the answer to a request that must not be carried out, None for one that may."""
        try:
            if self._authentication and request.code not in self._unsigned:
                self._authenticate(connection, request)
            if self._authorization and request.code not in self._authorization_free:
                self._authorize(request, connection.peer[0])
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here, the request does not pass
            self.refused_count += 1
            logger.info("refused request code %d from %s: %s", request.code, connection.peer_name, error)
            return failure(request, error)
        return None

    def _is_authorized(
        self, connection: Connection, request: RemotingCommand, permissions: list[RequiredPermission]
    ) -> bool:
        username = request.ext_fields.get(ACCESS_KEY)
        if request.code in self._authorization_free or self._is_super(username):
            return True
        try:
            self._require_permissions(username, permissions, connection.peer[0])
        except Refused as error:
            logger.info("refused a record to request code %d from %s: %s", request.code, connection.peer_name, error)
            return False
        return True

    def _authenticate(self, connection: Connection, request: RemotingCommand) -> None:
        username = request.ext_fields.get(ACCESS_KEY)
        if not username:
            raise denied("username cannot be null.")
        user = self._users.get(username)
        if user is None:
            raise denied(f"User:{username} is not found.")
        if user.is_disabled:
            raise denied(f"User:{username} is disabled.")
        if not is_signed_with(request, user.password):
            raise denied("check signature failed.")
        if self._full_signatures is not None:
            self._full_signatures.check(connection, request, user.password)

    def _authorize(self, request: RemotingCommand, source_ip: str) -> None:
        username = request.ext_fields.get(ACCESS_KEY)
        if self._is_super(username):  # before the demands are looked for: he may send what is too large to be judged
            return
        try:
            permissions = self._permissions_of(request)
        except ProtocolError:
            raise denied("parse authorization context error.") from None
        self._require_permissions(username, permissions, source_ip)

    def _is_super(self, username: str | None) -> bool:
        user = self._users.get(username) if username is not None else None
        return user is not None and user.is_super

    def _require_permissions(self, username: str | None, permissions: list[RequiredPermission], source_ip: str) -> None:
        """Raise the refusal unless a user who is no super user has all that is demanded."""
        if not permissions:
            return
        if username is None:
            raise denied("Authorization failed. Please verify your access rights and try again.")
        if self._users.get(username) is None:
            raise denied(f"User:{username} not found.")
        for permission in permissions:
            self._check_permission(username, permission, source_ip)

    def _has_permissions(self, username: str | None, permissions: list[RequiredPermission], source_ip: str) -> bool:
        try:
            self._require_permissions(username, permissions, source_ip)
        except Refused:
            return False
        return True

    def _check_permission(self, username: str, permission: RequiredPermission, source_ip: str) -> None:
        key = username, permission, source_ip
        if key in self._decisions:
            reason = self._decisions[key]
        else:
            if len(self._decisions) >= _MAX_DECISIONS:  # names come from clients: the memory must not grow with them
                self._decisions.clear()
            reason = self._acls.denial_reason(f"User:{username}", permission.resource, permission.actions, source_ip)
            self._decisions[key] = reason
        if reason is not None:
            raise denied(
                f"User:{username} has no permission to access {permission.resource.key} from {source_ip}, {reason}"
            )
