"""Creates and connects the parts of a master with slaves, or of a slave.

Only such brokers import this module, because other brokers start faster without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raptormq.broker.config import BrokerConfig
from raptormq.broker.core import Core, ha_port, own_credentials
from raptormq.broker.ha import (
    AcceptedCommits,
    HaMaster,
    HaSlave,
    HaStatus,
    HistoryGuard,
    LogCopies,
    MasterClient,
    PromotionRecord,
    SlaveAcknowledgements,
    SyncedTables,
    TableSync,
    master_only,
)
from raptormq.broker.registration import Registrar
from raptormq.broker.roles import LeaderWork
from raptormq.storage.fs import FileSystem
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.router import Router


@dataclass(frozen=True, slots=True)
class HaParts:
    """The parts of a master with slaves, or of a slave."""

    role: HaMaster | HaSlave
    status: HaStatus
    copies: LogCopies | None
    """The other copies of the log, from which damage is repaired; None without name servers."""

    @property
    def slave(self) -> HaSlave | None:
        """The slave, or None for a master."""
        return self.role if isinstance(self.role, HaSlave) else None

    @property
    def history(self) -> HistoryGuard | None:
        """The guard that decides whether this master may serve; None for a slave, which begins it at its promotion."""
        return self.role.history if isinstance(self.role, HaMaster) else None

    @property
    def refusal(self) -> str:
        """Reason why a master does not serve clients; empty while it does."""
        return self.role.refusal

    async def start(self, work: LeaderWork) -> None:
        """Serve slaves, or follow the master. A promotion of the slave starts the services in ``work``.

        Raises:
            ConfigError: the port for slaves is in use.
        """
        if isinstance(self.role, HaSlave):
            await self.role.start(work)
        else:
            await self.role.start()

    async def stop(self) -> None:
        """Close the connections to and from other brokers."""
        if self.copies is not None:
            await self.copies.close()
        await self.role.stop()


def create_acknowledgements(core: Core) -> SlaveAcknowledgements:
    """Return the acknowledgements that a SYNC_MASTER waits for."""
    ha, store = core.config.ha, core.store
    return SlaveAcknowledgements(ha.needed_slaves, ha.max_gap_bytes, lambda: store.end_offset)


def create_master(
    core: Core,
    router: Router,
    registrar: Registrar,
    acknowledgements: SlaveAcknowledgements | None,
    filesystem: FileSystem | None,
) -> HaParts:
    """Return the parts of a master that serves slaves."""
    config = core.config
    master = _ha_master(core, acknowledgements)
    _guard_history(core, router, registrar, master, _promotion_record(config, filesystem))
    return _parts(core, registrar, master)


def _guard_history(
    core: Core, router: Router, registrar: Registrar, master: HaMaster, promotion: PromotionRecord
) -> None:
    """Let a master refuse to serve while another broker of its name has messages that it lacks."""
    identity = core.config.identity
    if identity.name_servers and not core.config.ha.may_start_behind:
        master.history = HistoryGuard(
            registrar.look_up_members, _client_of_copies(core), core.store, promotion, identity.broker_name,
            core.address, registrar.register_again,
        )  # fmt: skip
        router.add_guard(master.history.refusal)


def _promotion_record(config: BrokerConfig, filesystem: FileSystem | None) -> PromotionRecord:
    return PromotionRecord(Path(config.storage.root_dir) / "config", filesystem)


def _parts(core: Core, registrar: Registrar, role: HaMaster | HaSlave) -> HaParts:
    identity, copies = core.config.identity, None
    status = HaStatus(role, identity.broker_name, core.store, core.address, is_sync=bool(core.config.ha.needed_slaves))
    if identity.name_servers:
        copies = LogCopies(core.store, registrar.look_up_members, _client_of_copies(core), core.address)
    return HaParts(role, status, copies)


def _topic_id(core: Core, topic: str) -> str | None:
    config = core.topics.get(topic)
    return None if config is None else config.topic_id or None


def _client_of_copies(core: Core) -> MasterClient:
    """Return a client that sends requests to other brokers of this name."""
    limits = ConnectionLimits(credentials=own_credentials(core.config))
    return MasterClient(ConnectionPool(None, limits, tls=core.config.outgoing_tls))


def _ha_master(core: Core, acknowledgements: SlaveAcknowledgements | None) -> HaMaster:
    config = core.config
    port = ha_port(config, core.address)
    bind, needed = config.network.bind_address, config.needs_ha_port
    master = HaMaster(config.ha, bind, port, core.store, acknowledgements, is_needed=needed)
    core.reput.listen_runs(master.wake)
    return master


def create_slave(core: Core, router: Router, registrar: Registrar, filesystem: FileSystem | None) -> HaParts:
    """Return the parts of a slave, and add a guard that refuses requests which only a master handles."""
    config, tables = core.config, core.tables
    limits = ConnectionLimits(credentials=own_credentials(config))
    client = MasterClient(ConnectionPool(None, limits, tls=config.outgoing_tls))
    registrar.on_master = client.found
    folder = Path(config.storage.root_dir) / "config"
    commits = AcceptedCommits(folder, core.store.consumer_offsets, partial(_topic_id, core), filesystem)
    synced = SyncedTables(core.topics, core.groups, tables.delays, tables.timers_file, tables.modes, commits)
    sync = TableSync(synced, core.store, client)
    master, promotion = _ha_master(core, None), _promotion_record(config, filesystem)
    _guard_history(core, router, registrar, master, promotion)

    def watch() -> None:
        if master.history is not None:
            master.history.watch(registrar.start, registrar.unregister)

    slave = HaSlave(
        config.ha, core.store, client, sync, registrar.register_again, registrar.look_up_master, core.clock, master,
        promotion, watch,
    )  # fmt: skip
    router.add_guard(master_only(slave.not_master))
    return _parts(core, registrar, slave)
