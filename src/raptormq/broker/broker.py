"""The broker: created from its settings, started and stopped in an event loop.

``raptormq broker`` runs one broker, ``raptormq dev`` one broker and a name server, tests several brokers. Data flow::

    connections --> Router --+--> SendService --> MessageStore --> ReputService --> PullService
                             `--> handlers/*  --> tables, registry, store         Registrar --> name servers

:class:`PeriodicJobs` samples the counters and removes expired clients and locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from raptormq.broker.addresses import client_address, reserve_port, store_host
from raptormq.broker.config import BrokerConfig, store_config
from raptormq.broker.core import PROPAGATION_TIMEOUT_S
from raptormq.broker.http import Pages
from raptormq.broker.in_thread import run_to_completion
from raptormq.broker.metrics import SAMPLE_S
from raptormq.broker.wiring import Assembly, assemble
from raptormq.files import DiskFiles
from raptormq.logs import get_logger
from raptormq.storage.fs import FileSystem
from raptormq.storage.replica import EVERYTHING
from raptormq.storage.store import MessageStore, now_ms
from raptormq.transport.descriptors import descriptor_limit, share
from raptormq.transport.http import HealthServer
from raptormq.transport.server import Server, ServerLimits

if TYPE_CHECKING:
    from raptormq.broker.group_wiring import OpenedMember

logger = get_logger(__name__)

_MEMBER_FILE = "config/dledger.json"
"""The file of a group member in its store (:mod:`raptormq.broker.replication.member_files`)."""


class PeriodicJobs:
    """Runs short jobs every ``period_s`` seconds in the event loop."""

    def __init__(self, jobs: Sequence[Callable[[], None]], period_s: float) -> None:
        self._jobs = jobs
        self._period_s = period_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Schedule the first run after one period."""
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._run)

    def stop(self) -> None:
        """Cancel the next run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        for job in self._jobs:
            try:
                job()
            except Exception:
                logger.exception("a periodic job of the broker failed")
        self.start()


_VIP_PORT_STEP = 2
"""Difference between the listening port and the VIP port. Java clients before 4.5 send to the VIP port by default,
later clients with ``com.rocketmq.sendMessageWithVIPChannel``.
"""


class Broker:
    """One broker. Tests can replace ``filesystem`` and ``clock`` (ms since 1970)."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        filesystem: FileSystem | None = None,
        clock: Callable[[], int] = now_ms,
        descriptors: int | None = None,
    ) -> None:
        """Create a broker. ``descriptors`` is the maximum number of open files, by default the limit of the process.

        Raises:
            ConfigError: the limit of open files is too low, or settings contradict each other.
        """
        self.config = config
        self._clock = clock
        self._port = config.network.listen_port
        host = store_host(config.network.advertised_host, self._port)
        self._descriptors = share(
            descriptor_limit() if descriptors is None else descriptors,
            config.network.max_connections,
            config.storage.max_open_queue_files,
        )
        self._store = MessageStore(store_config(config, host, self._descriptors), fs=filesystem, clock=clock)
        self._pages = Pages(config, self._store)
        self._filesystem = filesystem
        self._store_host = host
        self._member: OpenedMember | None = None
        """Saved state of this member of a Dledger group; None for other brokers."""
        self._assembly: Assembly | None = None
        self._server: Server | None = None
        self._health: HealthServer | None = None
        self._maintenance: PeriodicJobs | None = None

    @property
    def port(self) -> int:
        """The listening port. With port 0 in the settings, the port is known after the start."""
        return self._port

    @property
    def address(self) -> str:
        """The ``host:port`` that is registered with the name servers."""
        return client_address(self.config.network.advertised_host, self._port)

    @property
    def metrics_port(self) -> int | None:
        """The port of /metrics, or None if it is disabled."""
        return self._health.port if self._health is not None else None

    async def start(self) -> None:
        """Open the store, serve clients and register with the name servers. On return, clients are served.

        Raises:
            StorageError: the store cannot be opened.
            ConfigError: a port is in use, or a setting is malformed.
        """
        network = self.config.network
        reserved = reserve_port(network.bind_address) if not network.listen_port else None
        try:
            if reserved is not None:
                self._port = reserved.getsockname()[1]
                self._store_host = store_host(network.advertised_host, self._port)
                self._store.set_store_host(self._store_host)
            await self._start_health()
            await self._open_store()
            await self._serve()
        except BaseException:
            await self.stop()
            raise
        finally:
            if reserved is not None:
                reserved.close()

    def _log_descriptors(self) -> None:
        logger.info("%s", self._descriptors)
        if (
            "maxConnections" in self.config.given
            and self._descriptors.connections < self.config.network.max_connections
        ):
            logger.warning(
                "maxConnections is %d, but the limit of open files (ulimit -n) leaves %d: %s",
                self.config.network.max_connections,
                self._descriptors.connections,
                self._descriptors,
            )

    async def _start_health(self) -> None:
        """Serve probes and metrics before the recovery, which may take long."""
        network = self.config.network
        if network.metrics_port >= 0:
            health = HealthServer(self._pages.by_path(), network.metrics_host, network.metrics_port)
            await health.start()
            self._health = health

    async def _open_store(self) -> None:
        """Open the store in a thread. No other component uses the store during the recovery."""
        await run_to_completion(self._open_replica if self.config.replication.enabled else self._open_alone)

    def _open_alone(self) -> None:
        """Open the store of a broker without a group, which may have been that of a member before."""
        self._store.open(confirmed_offset=EVERYTHING if self.config.ha.is_slave else None)
        if (self._filesystem or DiskFiles()).exists(str(Path(self.config.storage.root_dir, _MEMBER_FILE))):
            from raptormq.broker.group_wiring import leave_group  # other brokers start faster without it

            leave_group(self.config, self._store, self._filesystem)

    def _open_replica(self) -> None:
        from raptormq.broker.group_wiring import open_member  # other brokers start faster without it

        self._member = open_member(self.config, self._store, self._filesystem)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        config, network = self.config, self.config.network
        assembly = assemble(
            config, self._store, self._store_host, self.address, self._filesystem, self._clock,
            self._member,
        )  # fmt: skip
        self._assembly = assembly
        is_lone = assembly.replication is None and not config.ha.is_slave
        if is_lone:
            await assembly.deliveries.derive()
        self._store.set_loop(loop, assembly.reput.schedule)
        assembly.statistics.start()
        if is_lone:
            assembly.start_services()
        limits = ServerLimits(
            max_connections=self._descriptors.connections,
            idle_seconds=network.idle_seconds,
            max_unfinished_bytes=network.max_unfinished_bytes,
            unfinished_patience_seconds=network.unfinished_patience_ms / 1000,
            max_unread_bytes=network.max_unread_bytes,
            unread_patience_seconds=network.unread_patience_ms / 1000,
        )
        vip_port = network.listen_port - _VIP_PORT_STEP if network.listen_port > _VIP_PORT_STEP else None
        await assembly.check_history()
        server = Server(assembly.router, network.bind_address, self._port, limits, config.tls, vip_port)
        await server.start()
        self._server = server
        self._pages.serving(assembly, server, self.address)
        self._maintenance = PeriodicJobs(
            (
                assembly.rates.sample,
                assembly.statistics.sample,
                assembly.clients.expire,
                assembly.expire_locks,
                assembly.tables.retry_save,
            ),
            SAMPLE_S,
        )
        self._maintenance.start()
        if assembly.replication is not None and (member := self._member) is not None:
            assembly.registrar.register_as(config.replication.broker_id)
            await assembly.replication.start(member.progress, assembly.leader_work(), server, clean=member.was_clean)
        await assembly.start_ha()
        assembly.scrubber.start()
        assembly.start_registration()
        logger.info("broker %s serves on %s", config.identity.broker_name, self.address)
        self._log_descriptors()

    async def wait_restart_wanted(self) -> None:
        """Wait until this broker must be stopped and started again to replace the contents of its store
        (:attr:`Replication.wants_restart`). Never returns for a broker that is not a group member.
        """
        replication = self._assembly.replication if self._assembly is not None else None
        await (asyncio.Event() if replication is None else replication.wants_restart).wait()

    async def registered(self) -> None:
        """Wait until the broker is registered with the name servers, at most ``PROPAGATION_TIMEOUT_S``."""
        if self._assembly is not None:
            await self._assembly.registrar.synced(PROPAGATION_TIMEOUT_S)

    async def stop(self) -> None:
        """Unregister, answer held pulls, and close the store cleanly. Takes less than 5 s.

        Raises:
            StorageError: a write failed. The next start recovers the store like after a crash.
        """
        async with AsyncExitStack() as steps:  # runs all steps, the last one first, even if one fails
            steps.callback(self._store.close)
            if self._health is not None:
                steps.push_async_callback(self._health.stop)
            if (assembly := self._assembly) is not None:
                steps.push_async_callback(self._stop_serving, assembly)
                steps.push_async_callback(assembly.registrar.unregister)
                if assembly.replication is not None:
                    steps.push_async_callback(assembly.replication.stop_leading)
            if self._maintenance is not None:
                steps.callback(self._maintenance.stop)

    async def _stop_serving(self, assembly: Assembly) -> None:
        """Stop all components of the broker. The connections to the name servers are closed meanwhile."""
        closing = asyncio.ensure_future(assembly.registrar.close())
        async with AsyncExitStack() as steps:  # as in stop()
            steps.push_async_callback(lambda: closing)
            steps.push_async_callback(assembly.save_tables)
            if assembly.ha is not None:
                steps.push_async_callback(assembly.ha.stop)
            if assembly.replication is not None:
                steps.push_async_callback(assembly.replication.stop)
            steps.push_async_callback(assembly.stop_services)
            steps.push_async_callback(assembly.scrubber.stop)
            steps.push_async_callback(assembly.router.stop)
            if self._server is not None:
                steps.push_async_callback(self._server.stop)
            steps.push_async_callback(assembly.sends.stop)
            steps.push_async_callback(assembly.pulls.stop)
