"""The name server as something to start and stop; used by ``raptormq namesrv`` and, embedded, by ``raptormq dev`` and
tests.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.handlers import build_router
from raptormq.namesrv.kv_config import KvConfig
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.table import RouteTable
from raptormq.transport.router import Router
from raptormq.transport.server import Server, ServerLimits


class NameServer:
    """One name server in the running event loop."""

    def __init__(self, config: NameServerConfig) -> None:
        self._config = RunningConfig(config)
        self._table = RouteTable()
        self._kv = KvConfig(Path(config.kv_config_path))
        self._server: Server | None = None
        self._router = Router()
        self._expiry: asyncio.TimerHandle | None = None
        self._registered = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is bound, 0 before :meth:`start`."""
        return self._server.port if self._server else 0

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        host = self._config.current.bind_address
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    async def start(self) -> None:
        """Load the key-value store, listen and begin to look for silent brokers.

        Raises:
            ConfigError: the port is taken, or the key-value file cannot be read.
        """
        self._kv.load()
        config = self._config.current
        self._router = build_router(self._table, self._kv, self._config, _monotonic_ms, self._registered.set)
        limits = ServerLimits(idle_seconds=config.max_idle_seconds)
        server = Server(self._router, config.bind_address, config.listen_port, limits, config.tls)
        await server.start()
        self._server = server
        self._schedule_expiry()

    async def wait_for_broker(self, address: str) -> None:
        """Return when the broker at ``address`` is in the routes; a broker in the same process is of use only then."""
        while address not in self._table.live:
            self._registered.clear()
            await self._registered.wait()

    async def stop(self) -> None:
        """Close all connections and the port; stopping twice is allowed."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()
        await self._router.stop()

    def _schedule_expiry(self) -> None:
        interval_s = self._config.current.scan_not_active_broker_interval_ms / 1000
        self._expiry = asyncio.get_running_loop().call_later(interval_s, self._expire)

    def _expire(self) -> None:
        self._table.expire(_monotonic_ms())
        self._schedule_expiry()


def _monotonic_ms() -> int:
    """Liveness must not depend on a wall clock that somebody sets."""
    return time.monotonic_ns() // 1_000_000
