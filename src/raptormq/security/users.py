"""Users and their passwords (``User``, ``AuthenticationMetadataManager``), stored in ``users.json``.

RocketMQ stores users in RocksDB. RaptorMQ stores them in a JSON file that only the account of the server can read.
Invalid changes are refused with code 16 and RocketMQ's remark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from raptormq.errors import BodyError
from raptormq.protocol.codes import ResponseCode
from raptormq.transport.router import Refused

SUPER, NORMAL = "Super", "Normal"
_TYPES = {"super": SUPER, "normal": NORMAL}
_STATUSES = {"enable": "enable", "disable": "disable"}


@dataclass(frozen=True, slots=True)
class User:
    """One user. ``password`` is the secret key of the user's signatures."""

    username: str
    password: str = field(repr=False)
    type: str = NORMAL
    status: str = "enable"
    other_password: str = field(default="", repr=False)
    """Second valid password, for the time of a password change. Only users of ``superUserPaths`` have one."""

    @property
    def passwords(self) -> tuple[str, ...]:
        """All valid passwords."""
        return (self.password, self.other_password) if self.other_password else (self.password,)

    @property
    def is_super(self) -> bool:
        """Whether the user has all permissions."""
        return self.type == SUPER

    @property
    def is_disabled(self) -> bool:
        """Whether the user is disabled."""
        return self.status == "disable"

    def shown(self, *, password: bool) -> dict[str, str]:
        """Return the user in the format of mqadmin. Without ``password``, the password is empty.

        Brokers refuse an empty password. A tool that copies users to another cluster therefore fails, and does not
        create users with a known password.
        """
        return self.to_dict() if password else self.to_dict() | {"password": ""}

    def to_dict(self) -> dict[str, str]:
        """Return the user in the format of the file."""
        return {
            "password": self.password,
            "userStatus": self.status,
            "userType": self.type,
            "username": self.username,
        }


@dataclass(frozen=True, slots=True)
class UserChange:
    """Fields of a user that a request sets. Fields that do not change are None."""

    username: str
    password: str | None = field(default=None, repr=False)
    type: str | None = None
    status: str | None = None

    @classmethod
    def of(cls, username: str, body: dict[str, Any]) -> UserChange:
        """Decode a request body. As in RocketMQ, unknown types and statuses are ignored."""
        password = body.get("password")
        return cls(
            username,
            str(password) if password is not None and str(password).strip() else None,
            _TYPES.get(str(body.get("userType")).lower()),
            _STATUSES.get(str(body.get("userStatus")).lower()),
        )


class FixedUsers(Protocol):
    """Users that are not in the table and that no request can change (:mod:`raptormq.security.mounted_users`)."""

    def get(self, username: str) -> User | None:
        """Return the user with this name, or None."""

    def all(self) -> list[User]:
        """Return all users."""


class UserTable:
    """All users by name. A fixed user takes precedence over a user of the table with the same name."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        """Load a saved table.

        Raises:
            BodyError: a saved user has no name or no password.
        """
        self.users = _parse_users(saved or {})
        self.fixed: FixedUsers | None = None
        self._changed: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every change."""
        self._changed.append(callback)

    def adopt(self, saved: dict[str, Any]) -> None:
        """Replace all users by those of another copy, in the form of :meth:`to_dict`.

        Raises:
            BodyError: a user has no name or no password; nothing is changed.
        """
        users = _parse_users(saved)
        if users != self.users:
            self.users = users
            self._notify()

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {"users": [user.to_dict() for user in self.users.values()]}

    def get(self, username: str) -> User | None:
        """Return the user with this name, or None."""
        fixed = self.fixed.get(username) if self.fixed is not None else None
        return fixed or self.users.get(username)

    def matching(self, text: str | None) -> list[User]:
        """Return the users whose name contains ``text``, sorted by name."""
        fixed = {user.username: user for user in self.fixed.all()} if self.fixed is not None else {}
        users = self.users | fixed
        return [users[name] for name in sorted(users) if not text or text in name]

    def create(self, change: UserChange) -> None:
        """Create a user.

        Raises:
            Refused: the user exists, or the password is missing.
        """
        if change.password is None:
            raise denied("password can not be blank")
        if self.get(change.username) is not None:
            raise denied("The user is existed")
        self._put(User(change.username, change.password, change.type or NORMAL, change.status or "enable"))

    def update(self, change: UserChange) -> None:
        """Change the given fields of a user.

        Raises:
            Refused: the user does not exist or is fixed.
        """
        self.check_not_fixed(change.username)
        user = self.users.get(change.username)
        if user is None:
            raise denied("The user is not exist")
        self._put(
            replace(
                user,
                password=change.password or user.password,
                type=change.type or user.type,
                status=change.status or user.status,
            )
        )

    def delete(self, username: str) -> None:
        """Delete a user if it exists.

        Raises:
            Refused: the user is fixed.
        """
        self.check_not_fixed(username)
        if self.users.pop(username, None) is not None:
            self._notify()

    def check_not_fixed(self, username: str) -> None:
        """Check that a user may be changed.

        Raises:
            Refused: the user is fixed.
        """
        if self.fixed is not None and self.fixed.get(username) is not None:
            raise denied(f"User:{username} is defined by files of this server (superUserPaths); change the files")

    def _put(self, user: User) -> None:
        self.users[user.username] = user
        self._notify()

    def _notify(self) -> None:
        for callback in self._changed:
            callback()


def _parse_users(saved: dict[str, Any]) -> dict[str, User]:
    users: dict[str, User] = {}
    for entry in saved.get("users", []):
        change = UserChange.of(str(entry.get("username", "")), entry)
        if not change.username or change.password is None:
            raise BodyError("a user must have a name and a password")
        users[change.username] = User(
            change.username, change.password, change.type or NORMAL, change.status or "enable"
        )
    return users


def denied(remark: str) -> Refused:
    """Return a refusal with code 16, NO_PERMISSION."""
    return Refused(ResponseCode.NO_PERMISSION, remark)
