"""Authenticates and authorizes all requests (``AuthenticationPipeline``, ``AuthorizationPipeline``).

The router calls the gate before each handler. The response to a refused request has code 16 and RocketMQ's remark.
Signatures are verified for every request. Authorization decisions are cached until a table changes.
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
from raptormq.transport.router import Refused, Router, failure

logger = get_logger(__name__)

_MAX_DECISIONS = 20_000

Authorizer = Callable[[Connection, RemotingCommand, list[RequiredPermission]], bool]
"""Returns whether the user of a request has the permissions."""

UserAuthorizer = Callable[[str | None, str, list[RequiredPermission]], bool]
"""Returns whether a user has the permissions when connected from an address."""

PermissionResolver = Callable[[RemotingCommand], list[RequiredPermission]]
"""Returns the permissions that a request requires. The list is empty if every user may send it. Raises ProtocolError if
the permissions cannot be determined.
"""


class AccessGate:
    """Authenticates and authorizes requests with the tables of users and ACLs."""

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
        """Create a gate.

        Args:
            users: table of users.
            acls: table of ACLs.
            permissions_of: returns the required permissions of a request.
            authentication: whether signatures are verified.
            authorization: whether permissions are checked.
            open_codes: request codes without authentication, and request codes without authorization.
            full_signatures: verifies full signatures, which are then required. None accepts RocketMQ's signatures.
        """
        self._users = users
        self._acls = acls
        self._permissions_of = permissions_of
        self._full_signatures = full_signatures
        self._authentication = authentication
        self._authorization = authorization
        self._unsigned, self._authorization_free = open_codes
        self.refused_count = 0
        """Number of refused requests."""
        self._decisions: dict[tuple[str, RequiredPermission, str], str | None] = {}
        users.on_change(self._decisions.clear)
        acls.on_change(self._decisions.clear)

    def protect(self, router: Router) -> None:
        """Guard the handlers of ``router``."""
        if self._authentication or self._authorization:
            router.add_guard(self.refusal)
        if self._full_signatures is not None:
            router.on_closed(self._full_signatures.closed)

    @property
    def authenticates(self) -> bool:
        """Whether requests are authenticated."""
        return self._authentication

    def is_by_super_user(self, request: RemotingCommand) -> bool:
        """Return whether ``request`` has the verified signature of a super user."""
        is_proved = self._authentication and request.code not in self._unsigned
        return is_proved and self._is_super(request.ext_fields.get(ACCESS_KEY))

    @property
    def authorize(self) -> Callable[[Connection, RemotingCommand], None] | None:
        """The function that authorizes one part of a composite request (30320). None if authorization is disabled."""
        return self._authorize_part if self._authorization else None

    def _authorize_part(self, connection: Connection, part: RemotingCommand) -> None:
        """Authorize one part of an authenticated request.

        Raises:
            Refused: the user is not allowed to send this part.
        """
        if part.code not in self._authorization_free:
            self._authorize(part, connection.peer[0])

    @property
    def user_authorizer(self) -> UserAuthorizer | None:
        """The function that authorizes a user independently of a request. None if authorization is disabled."""
        return self._is_user_authorized if self._authorization else None

    def _is_user_authorized(self, username: str | None, source_ip: str, permissions: list[RequiredPermission]) -> bool:
        user = self._users.get(username) if username is not None else None
        if user is None or user.is_disabled:
            return False
        return user.is_super or self._has_permissions(username, permissions, source_ip)

    @property
    def authorizer(self) -> Authorizer | None:
        """The function that authorizes the user of a request for permissions that its handler determines. None if
        authorization is disabled.
        """
        return self._is_authorized if self._authorization else None

    def refusal(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a refused request, or None if the request is allowed."""
        try:
            if self._authentication and request.code not in self._unsigned:
                self._authenticate(connection, request)
            if self._authorization and request.code not in self._authorization_free:
                self._authorize(request, connection.peer[0])
        except Exception as error:  # noqa: BLE001 - any error refuses the request
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
            logger.info(
                "refused to return a record for request code %d from %s: %s", request.code, connection.peer_name, error
            )
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
        password = next((each for each in user.passwords if is_signed_with(request, each)), None)
        if password is None:
            raise denied("check signature failed.")
        if self._full_signatures is not None:
            self._full_signatures.check(connection, request, password)

    def _authorize(self, request: RemotingCommand, source_ip: str) -> None:
        username = request.ext_fields.get(ACCESS_KEY)
        if self._is_super(username):  # first, because the next step refuses very large requests
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
        """Check that a normal user has all permissions.

        Raises:
            Refused: a permission is missing.
        """
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
            if len(self._decisions) >= _MAX_DECISIONS:  # clients choose the names: limit the memory
                self._decisions.clear()
            reason = self._acls.denial_reason(f"User:{username}", permission.resource, permission.actions, source_ip)
            self._decisions[key] = reason
        if reason is not None:
            raise denied(
                f"User:{username} has no permission to access {permission.resource.key} from {source_ip}, {reason}"
            )
