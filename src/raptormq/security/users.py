"""Users and their secrets (RocketMQ ``User``, ``AuthenticationMetadataManager``), kept in ``users.json``.

RocketMQ keeps them in RocksDB; here they are in a JSON file that only the server's account can read. Invalid changes
are refused with code 16 and RocketMQ's text.
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
    """One user; ``password`` is the secret key of its signatures."""

    username: str
    password: str = field(repr=False)
    type: str = NORMAL
    status: str = "enable"
    other_password: str = field(default="", repr=False)
    """Accepted as well, while one password replaces the other; only of users in files (``superUserPaths``)."""

    @property
    def passwords(self) -> tuple[str, ...]:
        """All passwords that are accepted."""
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
        """Return the user in the form that mqadmin reads. Without ``password`` the password is empty: brokers refuse an
        empty password, so a tool that copies users to another cluster fails instead of setting one that everybody
        knows.
        """
        return self.to_dict() if password else self.to_dict() | {"password": ""}

    def to_dict(self) -> dict[str, str]:
        """Return the user as it is kept in the file."""
        return {
            "password": self.password,
            "userStatus": self.status,
            "userType": self.type,
            "username": self.username,
        }


@dataclass(frozen=True, slots=True)
class UserChange:
    """The fields of a user that a request sets; None for the others."""

    username: str
    password: str | None = field(default=None, repr=False)
    type: str | None = None
    status: str | None = None

    @classmethod
    def of(cls, username: str, body: dict[str, Any]) -> UserChange:
        """Parse a request body. Types and statuses that do not exist count as not given, as in RocketMQ."""
        password = body.get("password")
        return cls(
            username,
            str(password) if password is not None and str(password).strip() else None,
            _TYPES.get(str(body.get("userType")).lower()),
            _STATUSES.get(str(body.get("userStatus")).lower()),
        )


class FixedUsers(Protocol):
    """Users who are not in the table, and whom no request changes (:mod:`raptormq.security.mounted_users`)."""

    def get(self, username: str) -> User | None:
        """Return the user; None when there is none of that name."""

    def all(self) -> list[User]:
        """Return all of them."""


class UserTable:
    """All users by name. A fixed user counts instead of one of the table that has the same name."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        """
        Raises:
            BodyError: a saved user has no name or no password.
        """
        self.users: dict[str, User] = {}
        self.fixed: FixedUsers | None = None
        self._changed: list[Callable[[], None]] = []
        for entry in (saved or {}).get("users", []):
            change = UserChange.of(str(entry.get("username", "")), entry)
            if not change.username or change.password is None:
                raise BodyError("a user without name or password")
            self.users[change.username] = User(
                change.username, change.password, change.type or NORMAL, change.status or "enable"
            )

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every change."""
        self._changed.append(callback)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {"users": [user.to_dict() for user in self.users.values()]}

    def get(self, username: str) -> User | None:
        """Return the user; None when there is none."""
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
            Refused: there is no such user, or it is fixed.
        """
        self._refuse_fixed(change.username)
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
        """Delete a user; nothing happens when there is none.

        Raises:
            Refused: the user is fixed.
        """
        self._refuse_fixed(username)
        if self.users.pop(username, None) is not None:
            self._notify()

    def _refuse_fixed(self, username: str) -> None:
        if self.fixed is not None and self.fixed.get(username) is not None:
            raise denied(f"User:{username} is defined by files of this server (superUserPaths), change those")

    def _put(self, user: User) -> None:
        self.users[user.username] = user
        self._notify()

    def _notify(self) -> None:
        for callback in self._changed:
            callback()


def denied(remark: str) -> Refused:
    """Return a refusal with code 16, NO_PERMISSION."""
    return Refused(ResponseCode.NO_PERMISSION, remark)
