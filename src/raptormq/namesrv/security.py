"""Access control of a name server: authentication, authorization, and administration of users and ACLs (3001 to 3010).

mqadmin sends these requests to a name server like to a broker (``-b``). RocketMQ's name servers have no access control.
Each name server has separate tables, so users must be created on each name server, or defined in its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raptormq.errors import ConfigError, StorageError
from raptormq.logs import get_logger
from raptormq.namesrv.config import NameServerAccess
from raptormq.namesrv.required_permissions import permission_resolver
from raptormq.namesrv.table import RouteTable
from raptormq.security.acl_handlers import AclHandlers
from raptormq.security.gate import AccessGate
from raptormq.security.tables import access_gate, load_security
from raptormq.security.user_handlers import UserHandlers
from raptormq.transport.router import Router

logger = get_logger(__name__)


class NameServerSecurity:
    """Tables of users and ACLs, and the gate that checks all requests."""

    def __init__(self, access: NameServerAccess, table: RouteTable, clock: Callable[[], int]) -> None:
        """Load the tables. ``clock`` returns ms since 1970.

        Raises:
            ConfigError: the directory of the tables cannot be created.
            StoreDamaged: a table and its backup cannot be read.
        """
        folder = Path(access.auth_config_path)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"authConfigPath: cannot create {folder}: {error.strerror}") from error
        self._tables = load_security(access, folder)
        self.gate: AccessGate = access_gate(access, self._tables, permission_resolver(table), clock)

    def protect(self, router: Router) -> None:
        """Register the administration handlers, and guard all handlers of ``router``."""
        tables = self._tables
        UserHandlers(tables, self.gate).register(router)
        AclHandlers(tables.users, tables.acls, tables.acls_saver).register(router)
        self.gate.protect(router)

    def retry_save(self) -> None:
        """Retry failed writes of the tables."""
        for saver in (self._tables.users_saver, self._tables.acls_saver):
            saver.retry_save()

    async def save(self) -> None:
        """Write pending changes of the tables before the server stops. Errors are logged."""
        for saver in (self._tables.users_saver, self._tables.acls_saver):
            try:
                await saver.saved()
            except StorageError as error:
                logger.error("%s", error)
