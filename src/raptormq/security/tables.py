"""Users and ACLs with the files they live in, ``users.json`` and ``acls.json`` (mode 0600)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raptormq.errors import BodyError, StoreDamaged
from raptormq.security.acls import AclTable
from raptormq.security.full_signatures import FullSignatures
from raptormq.security.gate import AccessGate, Demands
from raptormq.security.settings import AccessControl
from raptormq.security.users import SUPER, UserChange, UserTable
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.private_filesystem import PrivateFileSystem
from raptormq.storage.saving import TableSaver
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
    private = filesystem or PrivateFileSystem()
    _make_private(private, folder)
    users_file = JsonFile(str(folder / "users.json"), private)
    acls_file = JsonFile(str(folder / "acls.json"), private)
    try:
        users = UserTable(_shape(users_file.load()))
        acls = AclTable(_shape(acls_file.load()))
    except (BodyError, Refused) as error:
        raise StoreDamaged(f"the users or ACLs in {folder} do not have the expected shape: {error}") from error
    tables = SecurityTables(users, acls, TableSaver(users_file, users.to_dict), TableSaver(acls_file, acls.to_dict))
    users.listen(tables.users_saver.save_soon)
    acls.listen(tables.acls_saver.save_soon)
    for credentials in (settings.first_user, settings.own_credentials):
        if credentials is not None and users.get(credentials.access_key) is None:
            users.create(UserChange(credentials.access_key, credentials.secret_key, SUPER))
    return tables


def access_gate(
    settings: AccessControl, tables: SecurityTables, demands_of: Demands, clock: Callable[[], int]
) -> AccessGate:
    """Return the gate that the settings ask for; ``clock`` gives milliseconds since 1970."""
    demanded = settings.demand_full_signature
    return AccessGate(
        tables.users,
        tables.acls,
        demands_of,
        authentication=settings.authentication,
        authorization=settings.authorization,
        open_codes=(settings.unsigned_codes, settings.unjudged_codes),
        full_signatures=FullSignatures(settings.full_signature_window_ms, clock) if demanded else None,
    )


def _make_private(filesystem: FileSystem, folder: Path) -> None:
    """Open what is there: that takes it from others' eyes, also the backups, which are not read while all is well."""
    for name in ("users.json", "acls.json"):
        for path in (f"{folder / name}", f"{folder / name}.bak"):
            if filesystem.exists(path):
                filesystem.open(path).close()


def _shape(saved: dict[str, Any] | None) -> dict[str, Any] | None:
    for name, entries in (saved or {}).items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BodyError(f"{name} is not a list of objects")
    return saved
