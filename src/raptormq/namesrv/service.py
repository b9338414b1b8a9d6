"""Starts and stops a name server. Used by ``raptormq namesrv``, ``raptormq dev`` and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from raptormq.logs import get_logger
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.handlers import build_router
from raptormq.namesrv.handlers.registration import RegistrationHandlers
from raptormq.namesrv.http import Pages
from raptormq.namesrv.kv_config import KvConfig
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.security import NameServerSecurity
from raptormq.namesrv.table import RouteTable
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.storage.store import now_ms
from raptormq.transport.descriptors import descriptor_limit, share
from raptormq.transport.http import HealthServer
from raptormq.transport.router import Router
from raptormq.transport.server import MAX_CONNECTIONS, Server, ServerLimits

logger = get_logger(__name__)


class NameServer:
    """One name server in the running event loop."""

    def __init__(
        self, config: NameServerConfig, clock: Callable[[], int] = now_ms, *, descriptors: int | None = None
    ) -> None:
        """Create a name server.

        Args:
            config: settings.
            clock: returns ms since 1970.
            descriptors: maximum number of open files, by default the limit of the process.

        Raises:
            ConfigError: the limit of open files is too low.
        """
        self._clock = clock
        limit = descriptor_limit() if descriptors is None else descriptors
        self._descriptors = share(limit, MAX_CONNECTIONS)
        self._config = RunningConfig(config)
        self._table = RouteTable()
        self._kv = KvConfig(Path(config.kv_config_path))
        self._server: Server | None = None
        self._security: NameServerSecurity | None = None
        self._health: HealthServer | None = None
        self._router = Router()
        self._expiry: asyncio.TimerHandle | None = None
        self._registered = asyncio.Event()

    @property
    def port(self) -> int:
        """The listening port, 0 before :meth:`start`."""
        return self._server.port if self._server else 0

    @property
    def address(self) -> str:
        """The listening address, ``host:port``."""
        host = self._config.current.bind_address
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def metrics_address(self) -> str | None:
        """The address of /metrics, ``host:port``, or None if it is disabled."""
        return f"{self._config.current.metrics_host}:{self._health.port}" if self._health is not None else None

    async def start(self) -> None:
        """Load the key-value store and the users, listen, and start the expiry of brokers.

        Raises:
            ConfigError: a port is in use, or the key-value file cannot be read.
            StoreDamaged: the tables of users cannot be read.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._kv.load()
        config = self._config.current
        registrations = RegistrationHandlers(self._table, self._kv, self._config, _monotonic_ms, self._registered.set)
        self._router = build_router(self._table, self._kv, self._config, _monotonic_ms, registrations)
        if config.access.is_on:
            self._security = NameServerSecurity(config.access, self._table, self._clock)
            self._security.protect(self._router)
        limits = ServerLimits(self._descriptors.connections, config.max_idle_seconds)
        server = Server(self._router, config.bind_address, config.listen_port, limits, config.tls)
        await server.start()
        self._server = server
        logger.info("%s", self._descriptors)
        if config.metrics_port >= 0:
            gate = self._security.gate if self._security is not None else None
            pages = Pages(self._table, registrations, gate, server)
            health = HealthServer(pages.by_path(), config.metrics_host, config.metrics_port)
            await health.start()
            self._health = health
        self._schedule_expiry()

    async def wait_for_broker(self, address: str) -> None:
        """Wait until the broker at ``address`` is registered."""
        while address not in self._table.live:
            self._registered.clear()
            await self._registered.wait()

    async def wait_for_master(self, broker_name: str, *, other_than: str = "") -> str:
        """Wait until the broker has a master whose address is not ``other_than``, and return the address."""
        while True:
            group = self._table.groups.get(broker_name)
            address = group.addresses.get(MASTER_ID) if group is not None else None
            if address is not None and address != other_than:
                return address
            self._registered.clear()
            await self._registered.wait()

    async def stop(self) -> None:
        """Close the listening port and all connections. May be called twice."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()
        await self._router.stop()
        if self._health is not None:
            health, self._health = self._health, None
            await health.stop()
        if self._security is not None:
            security, self._security = self._security, None
            await security.save()

    def _schedule_expiry(self) -> None:
        interval_s = self._config.current.scan_not_active_broker_interval_ms / 1000
        self._expiry = asyncio.get_running_loop().call_later(interval_s, self._expire)

    def _expire(self) -> None:
        self._table.expire(_monotonic_ms())
        if self._security is not None:
            self._security.retry_save()
        self._schedule_expiry()


def _monotonic_ms() -> int:
    """Return the time of a monotonic clock in ms. Changes of the system clock must not expire brokers."""
    return time.monotonic_ns() // 1_000_000
