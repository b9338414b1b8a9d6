"""Users and ACLs with the files they live in, ``users.json`` and ``acls.json`` (mode 0600).

Beside each is a marker, ``users.made`` and ``acls.made``: a start that finds it refuses to begin without the table, and
backups are never a version behind. Else a volume that loses a file, or what was in it, would bring the first password
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raptormq.errors import BodyError
from raptormq.files import Files, PrivateFiles
from raptormq.json_file import JsonFile
from raptormq.security.acls import AclTable
from raptormq.security.full_signatures import FullSignatures
from raptormq.security.gate import AccessGate, PermissionResolver
from raptormq.security.settings import AccessControl
from raptormq.security.users import SUPER, UserChange, UserTable
from raptormq.storage.fs import FileSystem, TableSaver
from raptormq.transport.router import Refused


@dataclass(frozen=True, slots=True)
class SecurityTables:
    """Who is who, and who may what."""

    users: UserTable
    acls: AclTable
    users_saver: TableSaver
    acls_saver: TableSaver


def load_security(settings: AccessControl, folder: Path, filesystem: FileSystem | None = None) -> SecurityTables:
    """Read the tables in ``folder`` and add the super users of the settings that are missing.

    Raises:
        StoreDamaged: a file and its backup cannot be read.
    """
    files = filesystem or PrivateFiles()
    _make_private(files, folder)
    users_file = JsonFile(
        str(folder / "users.json"),
        files,
        key="users",
        without="without them there are no users but the first ones of the settings, with their first passwords",
        marker=str(folder / "users.made"),
    )
    acls_file = JsonFile(
        str(folder / "acls.json"),
        files,
        key="acls",
        without="without them nobody but super users may do anything",
        marker=str(folder / "acls.made"),
    )
    users = users_file.load(_users) or UserTable()
    acls = acls_file.load(_acls) or AclTable()
    tables = SecurityTables(users, acls, TableSaver(users_file, users.to_dict), TableSaver(acls_file, acls.to_dict))
    users.on_change(tables.users_saver.save_soon)
    acls.on_change(tables.acls_saver.save_soon)
    for credentials in (settings.first_user, settings.own_credentials):
        if credentials is not None and users.get(credentials.access_key) is None:
            users.create(UserChange(credentials.access_key, credentials.secret_key, SUPER))
    for file, saver in ((users_file, tables.users_saver), (acls_file, tables.acls_saver)):
        if file.wants_save:  # of an earlier version, or of a crash in a save
            saver.save_soon()
    return tables


def access_gate(
    settings: AccessControl, tables: SecurityTables, permissions_of: PermissionResolver, clock: Callable[[], int]
) -> AccessGate:
    """Return the gate that the settings ask for; ``clock`` gives milliseconds since 1970."""
    demanded = settings.demand_full_signature
    return AccessGate(
        tables.users,
        tables.acls,
        permissions_of,
        authentication=settings.authentication,
        authorization=settings.authorization,
        open_codes=(settings.unsigned_codes, settings.authorization_free_codes),
        full_signatures=FullSignatures(settings.full_signature_window_ms, clock) if demanded else None,
    )


def _make_private(files: Files, folder: Path) -> None:
    """Open what is there: that takes it from others' eyes, also the backups, which are not read while all is well."""
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
