"""Request handlers of a name server, one module per family of requests.

Each module has a class that registers its handlers with a :class:`~raptormq.transport.router.Router`.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.namesrv.handlers.kv import KvHandlers
from raptormq.namesrv.handlers.permissions import PermissionHandlers
from raptormq.namesrv.handlers.registration import RegistrationHandlers
from raptormq.namesrv.handlers.routes import RouteHandlers
from raptormq.namesrv.handlers.settings import SettingsHandlers
from raptormq.namesrv.handlers.topics import TopicHandlers
from raptormq.namesrv.kv_config import KvConfig
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.table import RouteTable
from raptormq.transport.router import Router


def build_router(
    table: RouteTable,
    kv: KvConfig,
    config: RunningConfig,
    now_ms: Callable[[], int],
    registrations: RegistrationHandlers,
) -> Router:
    """Return the router of a name server. ``now_ms`` returns the time of a monotonic clock in ms."""
    router = Router()
    KvHandlers(kv).add_to(router)
    registrations.add_to(router)
    RouteHandlers(table, kv, config, now_ms).add_to(router)
    TopicHandlers(table, config).add_to(router)
    PermissionHandlers(table).add_to(router)
    SettingsHandlers(config).add_to(router)
    return router
