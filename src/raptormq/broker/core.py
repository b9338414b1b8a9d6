"""Components of a broker that several areas share: the tables, the registries and the services without handlers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from raptormq.broker.clients import ClientRegistry, QueueLocks
from raptormq.broker.config import BrokerConfig, RunningConfig
from raptormq.broker.conversions import Conversions
from raptormq.broker.cooperative import steady_ms
from raptormq.broker.delay.delivery import DelayedDelivery
from raptormq.broker.delay.delivery_checkpointer import DeliveryCheckpointer
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.delay.timer_message import TimerRules
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics import Counters, Rates, Statistics
from raptormq.broker.pop_components import PopComponents
from raptormq.broker.pull import OffsetResets
from raptormq.broker.registration import Registrar
from raptormq.broker.reput import ReputService
from raptormq.broker.requests import permission_resolver
from raptormq.broker.retries import RetryTopics
from raptormq.broker.roles import ConfirmLeadership
from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.peer_requests import unsigned_peer_codes
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.staging.staging_service import StagingService
from raptormq.broker.table_files import Tables
from raptormq.broker.transaction.check_state_sender import CheckTransactionStateSender
from raptormq.broker.transaction.transaction_service import GROUP as TRANSACTIONS_GROUP
from raptormq.broker.transaction.transaction_service import TransactionService
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.signing import Credentials, CredentialSource
from raptormq.protocol.topic_names import HALF_TOPIC
from raptormq.security.mounted_users import MountedUser
from raptormq.security.tables import access_gate
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

if TYPE_CHECKING:
    from raptormq.broker.replication import TableRecords

PROPAGATION_TIMEOUT_S = 2.0
"""Maximum time in seconds that a change waits for the name servers. Clients time out after 3 s."""
_HA_PORT_STEP = 1


class TableChangeBarrier:
    """Waits until changes are on disk, replicated and registered with the name servers."""

    def __init__(self, store: MessageStore, tables: Tables, registrar: Registrar) -> None:
        self._store = store
        self._tables = tables
        self._registrar = registrar
        self.records: TableRecords | None = None
        """Replicated tables, or None if the broker is not a member of a group."""
        self.confirm_leadership: ConfirmLeadership | None = None
        """Set with :attr:`records`."""

    def delete_queues(self, topic: str) -> None:
        """Delete the queues of a topic (ChangeBarrier)."""
        if self.records is None:
            self._store.delete_topic(topic)
        else:
            self.records.delete_queues(topic)

    def begin(self) -> TableChange:
        """Begin a change (ChangeBarrier)."""
        return TableChange(self, self._store.leadership)

    def check(self, leadership: int) -> None:
        """Check that this member still leads its group, under ``leadership``.

        Raises:
            NotLeader: it does not, or it leads again.
        """
        if self.records is None:
            self._store.check_leadership(leadership)
        else:
            self.records.check_leads(leadership)

    async def registered(self) -> None:
        """Wait for the table files and the name servers (ChangeBarrier)."""
        await self.saved()
        await self.synced()

    async def saved(self) -> None:
        """Wait for the table files.

        Raises:
            StorageError: a table could not be saved.
        """
        await asyncio.gather(self._tables.topics_saver.saved(), self._tables.groups_saver.saved())

    async def synced(self) -> None:
        """Wait for the reachable name servers, at most :data:`PROPAGATION_TIMEOUT_S`."""
        await self._registrar.synced(PROPAGATION_TIMEOUT_S)


class TableChange:
    """A change of tables that began under ``leadership`` (Change)."""

    def __init__(self, barrier: TableChangeBarrier, leadership: int) -> None:
        self._barrier = barrier
        self._leadership = leadership

    def check(self) -> None:
        """Check that this member still leads its group (Change)."""
        self._barrier.check(self._leadership)

    async def confirmed(self) -> None:
        """Wait until a majority of the group has the change.

        Raises:
            StorageError: the change was not replicated, or its replication is unknown.
        """
        if (records := self._barrier.records) is not None:
            await records.confirmed(self._leadership)
        if (confirm_leadership := self._barrier.confirm_leadership) is not None:
            await confirm_leadership()  # a request that changes nothing has no record, and another leader may differ
            self.check()

    async def passed(self) -> None:
        """Wait for the table files, the replication group and the name servers (Change)."""
        await self._barrier.saved()
        await self.confirmed()
        await self._barrier.synced()


def own_credentials(config: BrokerConfig) -> Credentials | CredentialSource | None:
    """Return the credentials with which the broker signs its own requests, or None without credentials."""
    path = config.security.own_credentials_path
    return MountedUser(Path(path)).credentials if path else config.security.own_credentials


def ha_port(config: BrokerConfig, address: str) -> int:
    """Return the port for slaves of the broker at ``address``."""
    return config.ha.listen_port or int(address.rpartition(":")[2]) + _HA_PORT_STEP


class Core:
    """Components that several areas share. Only the functions that create the areas use it. A component gets only the
    parts that it uses.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        store_host: bytes,
        address: str,
        tables: Tables,
        registrar: Registrar,
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self.store = store
        self.store_host = store_host
        self.address = address
        self.tables = tables
        self.topics, self.groups = tables.topics, tables.groups
        self.clock = clock
        self.counters = Counters()
        self.rates = Rates(self.counters, clock)
        self.statistics = Statistics(store, self.counters, config.identity.cluster_name, clock)
        self.locks = QueueLocks(config.policies.queue_lock_ms)
        self.registry = ClientRegistry[Connection]()
        self.resets = OffsetResets(store.consumer_offsets, self.registry, self.statistics, steady_ms)
        self.barrier = TableChangeBarrier(store, tables, registrar)
        self.conversions = Conversions(store, self.topics, self.barrier)
        self.reput = ReputService(store)
        self.running_config = RunningConfig(config)
        self.retries = RetryTopics(self.topics, tables.topics_saver, self.groups, config.policies)
        self.gate = access_gate(
            config.security,
            tables.security,
            permission_resolver(config.identity.cluster_name),
            clock,
            unsigned_peer_codes(config),
        )
        self.records = AuthorizedRecords(store, self.gate.authorizer)
        self.timer_rules = TimerRules(config.timers, clock)
        self.writer = InternalWriter(store, self.reput, self.counters)
        self.timers = _timers(self)
        check_sender = CheckTransactionStateSender(
            self.registry, config.identity.broker_name, self.gate.user_authorizer
        )
        self.transactions = TransactionService(
            store, self.writer, self.topics, config.transactions, check_sender, clock
        )
        self.staging = StagingService(
            store, self.writer, self.topics, config.staging, config.identity.broker_name, clock
        )
        self.pop = PopComponents(store, store_host, self.writer, tables, self.retries, config, clock)
        self.delayed = DelayedDelivery(store, self.writer, self.topics, tables.delays, clock)
        self.deliveries = DeliveryCheckpointer(
            store,
            tables.delays,
            self.timers,
            (self.delayed, self.transactions, self.pop.revival),
            {HALF_TOPIC: TRANSACTIONS_GROUP},
        )
        unique_ids = UniqueIdFactory(store_host[:-4], os.getpid(), id(self))
        self.answers = SendAnswers(store_host, config.policies.region_id, trace_on=config.policies.trace_on)
        self.admission = Admission(
            config, self.topics, unique_ids, clock, self.retries, self.timer_rules, self.writer.properties
        )


def _timers(core: Core) -> TimerDelivery:
    precision = core.config.timers.precision_ms
    return TimerDelivery(core.store, core.writer, core.topics, core.tables.timers_file, precision, core.clock)
