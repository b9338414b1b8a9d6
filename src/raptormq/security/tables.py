"""The tables of users and ACLs and their files, ``users.json`` and ``acls.json`` (mode 0600).

Each file has a marker file, ``users.made`` and ``acls.made``. If the marker exists without its table, the start fails.
Backups have the same version as the files. Without these rules the loss of a file could restore the initial passwords.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raptormq.errors import BodyError
from raptormq.files import Files, PrivateFiles
from raptormq.json_file import JsonFile
from raptormq.protocol.signing import Credentials
from raptormq.security.acls import AclTable
from raptormq.security.full_signatures import FullSignatures
from raptormq.security.gate import AccessGate, PermissionResolver
from raptormq.security.mounted_users import MountedUsers
from raptormq.security.settings import AccessControl
from raptormq.security.users import SUPER, UserChange, UserTable
from raptormq.storage.fs import FileSystem, TableSaver
from raptormq.transport.router import Refused

Confirmed = Callable[[], Awaitable[None]]
"""Waits until a change that this server has saved is replicated."""
BeginChange = Callable[[], Confirmed]
"""Called before a change."""


async def _at_once() -> None:
    """Return at once."""


def not_replicated() -> Confirmed:
    """Begin a change of tables that are not replicated."""
    return _at_once


@dataclass(frozen=True, slots=True)
class SecurityTables:
    """The tables of users and ACLs, and the writers of their files."""

    users: UserTable
    acls: AclTable
    users_saver: TableSaver
    acls_saver: TableSaver
    settings: AccessControl

    def create_missing_users(self) -> None:
        """Create the super users of the settings that do not exist."""
        self._create_missing(self.settings.first_user)
        self._create_missing(self.settings.own_credentials)

    def _create_missing(self, credentials: Credentials | None) -> None:
        if credentials is not None and self.users.get(credentials.access_key) is None:
            self.users.create(UserChange(credentials.access_key, credentials.secret_key, SUPER))

    def to_dict(self) -> dict[str, Any]:
        """Return both tables, with the passwords."""
        return self.users.to_dict() | self.acls.to_dict()

    def adopt(self, saved: dict[str, Any]) -> None:
        """Replace both tables by those of another copy, in the form of :meth:`to_dict`. Users defined by files
        (``superUserPaths``) are unchanged. The user of ``innerClientAuthenticationCredentials`` is created again if the
        copy lacks it. Otherwise a member of a group would refuse the messages of the others, and with them the tables
        that have this user.

        Raises:
            BodyError: a table does not have the expected shape; nothing is changed.
        """
        try:
            shaped = _shape(saved)
            AclTable(shaped)
            self.users.adopt(shaped)
            self.acls.adopt(shaped)
            self._create_missing(self.settings.own_credentials)
        except (Refused, AttributeError) as error:
            raise BodyError(str(error)) from error


def load_security(settings: AccessControl, folder: Path, filesystem: FileSystem | None = None) -> SecurityTables:
    """Read the tables in ``folder``, and create missing super users of the settings.

    Raises:
        ConfigError: a folder of ``superUserPaths`` or ``innerClientCredentialsPath`` is invalid.
        StoreDamaged: a file and its backup cannot be read.
    """
    files = filesystem or PrivateFiles()
    _make_private(files, folder)
    users_file = JsonFile(
        str(folder / "users.json"),
        files,
        key="users",
        without="without it only the users of the settings exist, with their initial passwords",
        marker=str(folder / "users.made"),
    )
    acls_file = JsonFile(
        str(folder / "acls.json"),
        files,
        key="acls",
        without="without it only super users have permissions",
        marker=str(folder / "acls.made"),
    )
    users = users_file.load(_users) or UserTable()
    if folders := settings.user_folders:
        users.fixed = MountedUsers(folders)
    acls = acls_file.load(_acls) or AclTable()
    tables = SecurityTables(
        users, acls, TableSaver(users_file, users.to_dict), TableSaver(acls_file, acls.to_dict), settings
    )
    users.on_change(tables.users_saver.save_soon)
    acls.on_change(tables.acls_saver.save_soon)
    tables.create_missing_users()
    for file, saver in ((users_file, tables.users_saver), (acls_file, tables.acls_saver)):
        if file.wants_save:  # written by an older version, or a crash interrupted a save
            saver.save_soon()
    return tables


def access_gate(
    settings: AccessControl,
    tables: SecurityTables,
    permissions_of: PermissionResolver,
    clock: Callable[[], int],
    open_codes: frozenset[int] = frozenset(),
) -> AccessGate:
    """Return the gate for ``settings``. ``clock`` returns ms since 1970. ``open_codes`` are further request codes
    without authentication and authorization.
    """
    demanded = settings.demand_full_signature
    return AccessGate(
        tables.users,
        tables.acls,
        permissions_of,
        authentication=settings.authentication,
        authorization=settings.authorization,
        open_codes=(settings.unsigned_codes | open_codes, settings.authorization_free_codes | open_codes),
        full_signatures=FullSignatures(settings.full_signature_window_ms, clock) if demanded else None,
    )


def _make_private(files: Files, folder: Path) -> None:
    """Restrict the mode of existing files and backups by opening them."""
    for name in ("users.json", "acls.json"):
        for path in (f"{folder / name}", f"{folder / name}.bak"):
            if files.exists(path):
                files.open(path).close()


def _users(saved: dict[str, Any]) -> UserTable:
    return UserTable(_shape(saved))


def _acls(saved: dict[str, Any]) -> AclTable:
    try:
        return AclTable(_shape(saved))
    except Refused as error:
        raise BodyError(str(error)) from error


def _shape(saved: dict[str, Any]) -> dict[str, Any]:
    for name, entries in saved.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BodyError(f"{name} is not a list of objects")
    return saved
