"""Creates the components of a broker and connects them. Contains no behaviour of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raptormq.broker.clients import ClientRegistry, QueueLocks
from raptormq.broker.config import BrokerConfig, RunningConfig, apply_retention
from raptormq.broker.conversions import Conversions
from raptormq.broker.cooperative import steady_ms, steady_time_of_day
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.delay.delivery import DelayedDelivery
from raptormq.broker.delay.delivery_checkpointer import DeliveryCheckpointer
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.delay.timer_message import TimerRules
from raptormq.broker.handlers.assignments import AssignmentHandlers, RequestModes, modes_file
from raptormq.broker.handlers.cleanup import CleanupHandlers
from raptormq.broker.handlers.clients import ClientHandlers
from raptormq.broker.handlers.consumers import ConsumerHandlers
from raptormq.broker.handlers.conversions import ConversionHandlers
from raptormq.broker.handlers.group_progress import GroupProgressHandlers
from raptormq.broker.handlers.groups import GroupHandlers
from raptormq.broker.handlers.locks import LockHandlers
from raptormq.broker.handlers.offsets import OffsetHandlers
from raptormq.broker.handlers.producers import ProducerHandlers
from raptormq.broker.handlers.pull import PullHandlers
from raptormq.broker.handlers.queue_items import QueueItemHandlers
from raptormq.broker.handlers.recall import RecallHandlers
from raptormq.broker.handlers.records import RecordHandlers
from raptormq.broker.handlers.relays import RelayHandlers
from raptormq.broker.handlers.replies import ReplyHandlers
from raptormq.broker.handlers.resets import ResetHandlers
from raptormq.broker.handlers.runtime import RuntimeHandlers
from raptormq.broker.handlers.send_back import SendBackHandlers
from raptormq.broker.handlers.settings import SettingsHandlers
from raptormq.broker.handlers.statistics import StatisticsHandlers
from raptormq.broker.handlers.topics import TopicHandlers
from raptormq.broker.handlers.transactions import TransactionHandlers
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics import Counters, Rates, Statistics
from raptormq.broker.pop_components import PopComponents
from raptormq.broker.pull import OffsetResets, PullAnswers, PullService
from raptormq.broker.registration import BrokerAddress, Registrar
from raptormq.broker.replication import (
    TABLES_TOPIC,
    LeaderWork,
    MemberFiles,
    Replication,
    TableRecords,
    leader_only,
)
from raptormq.broker.reput import ReputService
from raptormq.broker.retries import RetryTopics
from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.required_permissions import permission_resolver
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.auto_create import TopicCreator
from raptormq.broker.send.pending_answers import PendingAnswers
from raptormq.broker.send.queue_batches import QueueBatchHandlers
from raptormq.broker.send.send_service import SendService
from raptormq.broker.service import BackgroundService
from raptormq.broker.table_files import Tables, load_tables, restore_lost_topics
from raptormq.broker.tables import GroupTable, TopicTable, system_topics
from raptormq.broker.transaction.check_state_sender import CheckTransactionStateSender
from raptormq.broker.transaction.transaction_service import TransactionService
from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.signing import Credentials, CredentialSource
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from raptormq.security.acl_handlers import AclHandlers
from raptormq.security.mounted_users import MountedUser
from raptormq.security.tables import access_gate
from raptormq.security.user_handlers import UserHandlers
from raptormq.storage.fs import FileSystem
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.router import Router

logger = get_logger(__name__)

PROPAGATION_TIMEOUT_S = 2.0
"""Longest time a change waits for name servers; clients time out after 3 s."""
_REPLICATION_PORT_STEP = 1


class Handlers(Protocol):
    """The handlers of one area."""

    def register(self, router: Router) -> None:
        """Register the handlers with the router."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The components that the broker starts, stops and queries."""

    router: Router
    topics: TopicTable
    groups: GroupTable
    tables: Tables
    rates: Rates
    statistics: Statistics
    clients: ClientHandlers
    pulls: PullService
    sends: SendService
    reput: ReputService
    registrar: Registrar
    locks: QueueLocks
    timers: TimerDelivery
    transactions: TransactionService
    deliveries: DeliveryCheckpointer
    services: tuple[BackgroundService, ...]
    replication: Replication | None
    """The broker's part in its group; None without one."""

    def expire_locks(self) -> None:
        """Remove expired queue locks."""
        self.locks.expire(steady_ms())

    def start_services(self) -> None:
        """Start the background services."""
        for service in self.services:
            service.start()

    async def stop_services(self) -> None:
        """Stop the background services in reverse order."""
        for service in reversed(self.services):
            await service.stop()

    def leader_work(self) -> LeaderWork:
        """Return what the broker does only while it leads its group."""

        async def start() -> None:
            await self.deliveries.derive()
            self.start_services()

        return LeaderWork(start, self.stop_services, self.registrar.register_as)

    async def save_tables(self) -> None:
        """Save pending changes. An error is logged, because no request waits for it."""
        for saver in self.tables.savers:
            try:
                await saver.saved()
            except StorageError as error:
                logger.error("%s", error)


class _ChangeBarrier:
    """Waits until the tables are on disk and the name servers have been informed."""

    def __init__(self, tables: Tables, registrar: Registrar) -> None:
        self._tables = tables
        self._registrar = registrar
        self.records: TableRecords | None = None
        """The tables of the group, where there is one."""

    async def passed(self) -> None:
        """Wait for the tables, the group and the name servers."""
        await asyncio.gather(self._tables.topics_saver.saved(), self._tables.groups_saver.saved())
        if self.records is not None:
            await self.records.confirmed()
        await self._registrar.synced(PROPAGATION_TIMEOUT_S)


def assemble(
    config: BrokerConfig,
    store: MessageStore,
    store_host: bytes,
    address: str,
    filesystem: FileSystem | None,
    clock: Callable[[], int],
    member_files: MemberFiles | None = None,
) -> Assembly:
    """Create the components around an open store; ``member_files`` are those of a member of a group.

    Raises:
        StoreDamaged: a table cannot be read.
        ConfigError: the list of name servers is malformed.
    """
    tables = restore_lost_topics(load_tables(config, filesystem, clock, store.save_deletions), store)
    registrar = _registrar(config, address, tables)
    core = _Core(config, store, store_host, address, tables, registrar, clock)
    sends = _sends(core)
    pulls = _pulls(core)
    clients = ClientHandlers(core.registry, core.groups, core.topics, config.policies, steady_time_of_day(clock))
    core.reput.listen(pulls.arrived)
    core.reput.listen_topics(core.statistics.topics_arrived)
    router = Router()
    core.gate.protect(router)
    replication = None if member_files is None else _replication(core, router, member_files)
    resets = ResetHandlers(store, core.topics, core.groups, core.registry, core.resets, pulls, config)
    areas: list[Handlers] = [
        *_sending(core, sends),
        PullHandlers(pulls, core.resets, core.topics, core.groups, core.registry, core.statistics, config),
        clients,
        resets,
        core.pop,
        _assignments(core, registrar, filesystem),
        *_consuming(core),
        *_administration(core, pulls, replication),
    ]
    for handlers in areas:
        handlers.register(router)
    core.running_config.listen(lambda changed: _settings_changed(core, registrar, changed))
    for topic_changed in (registrar.topic_changed, pulls.topic_changed, resets.topic_changed):
        core.topics.listen(topic_changed)
    core.topics.listen_to_deletions(core.statistics.forget)
    return Assembly(
        router, core.topics, core.groups, tables, core.rates, core.statistics, clients, pulls, sends, core.reput,
        registrar, core.locks, core.timers, core.transactions, core.deliveries, _services(core),
        replication,
    )  # fmt: skip


def _replication(core: _Core, router: Router, files: MemberFiles) -> Replication:
    """The broker's part in its group; requests that only a leader carries out are refused while it follows."""
    core.topics.add_missing([TopicConfig(TABLES_TOPIC, 1, 1, int(Perm.INHERIT))])
    tables = TableRecords(core.store, core.topics, core.groups, core.reput.schedule, time.monotonic)
    core.barrier.records = tables
    gate = core.gate

    def refusal(connection: Connection, request: RemotingCommand) -> str | None:
        """Return why a message of the group is refused: with access control a super user has to sign it."""
        if not gate.authenticates:
            return None
        refused = gate.refusal(connection, request)
        if refused is not None:
            return refused.remark
        return None if gate.is_by_super_user(request) else "it is not signed by a super user"

    replication = Replication(core.config, core.store, files, tables, refusal)
    router.guard(leader_only(replication.not_leader, gate.guard))
    core.reput.listen_runs(replication.member.dispatched)
    return replication


def _settings_changed(core: _Core, registrar: Registrar, changed: set[str]) -> None:
    """Apply settings to the components that do not read them on every use."""
    core.admission.settings_changed()
    apply_retention(core.config, core.store.config)
    if "autoCreateTopicEnable" in changed and core.config.policies.auto_create_topic:
        core.topics.add_missing(system_topics(core.config.identity, core.config.policies))
    if "brokerPermission" in changed:
        core.topics.bump_version()
        registrar.permission_changed()


def _set_queue_type(core: _Core, topic: str) -> None:
    """Set the queue type of a topic in the store before it has queues."""
    config = core.topics.get(topic)
    if config is not None and config.attributes.get(QUEUE_TYPE) == BATCH_CQ:
        core.store.set_batch_topic(topic)


def _registrar(config: BrokerConfig, address: str, tables: Tables) -> Registrar:
    host, _, port = address.rpartition(":")
    return Registrar(
        config.identity,
        BrokerAddress(address, f"{host}:{int(port) + _REPLICATION_PORT_STEP}"),
        tables.topics,
        config.policies,
        ConnectionLimits(credentials=_own_credentials(config)),
        config.outgoing_tls,
    )


def _own_credentials(config: BrokerConfig) -> Credentials | CredentialSource | None:
    path = config.security.own_credentials_path
    return MountedUser(Path(path)).credentials if path else config.security.own_credentials


class _Core:
    """Components shared by several areas. Passed only to the functions below: each component gets just what it
    needs.
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
        self.copies = CopyProperties(self.counters)
        self.rates = Rates(self.counters, clock)
        self.statistics = Statistics(store, self.counters, config.identity.cluster_name, clock)
        self.locks = QueueLocks(config.policies.queue_lock_ms)
        self.registry = ClientRegistry[Connection]()
        self.resets = OffsetResets(store.consumer_offsets, self.registry, self.statistics, steady_ms)
        self.barrier = _ChangeBarrier(tables, registrar)
        self.conversions = Conversions(store, self.topics, self.barrier)
        self.reput = ReputService(store)
        self.running_config = RunningConfig(config)
        self.retries = RetryTopics(self.topics, self.groups, config.policies)
        self.gate = access_gate(
            config.security, tables.security, permission_resolver(config.identity.cluster_name), clock
        )
        self.records = AuthorizedRecords(store, self.gate.authorizer)
        self.timer_rules = TimerRules(config.timers, clock)
        self.writer = InternalWriter(store, self.reput, self.counters)
        self.timers = _timers(self)
        questions = CheckTransactionStateSender(self.registry, config.identity.broker_name, self.gate.user_authorizer)
        self.transactions = TransactionService(
            store, self.writer, self.topics, config.transactions, questions, self.copies, clock
        )
        self.pop = PopComponents(
            store, self.writer, self.topics, tables.topics_saver, self.groups, self.registry, self.resets,
            self.counters, self.statistics, self.copies, config, store_host, clock,
        )  # fmt: skip
        self.delayed = DelayedDelivery(store, self.writer, self.topics, tables.delays, clock)
        self.deliveries = DeliveryCheckpointer(
            store, tables.delays, self.timers, (self.delayed, self.transactions, self.pop.revival)
        )
        unique_ids = UniqueIdFactory(store_host[:-4], os.getpid(), id(self))
        creator = TopicCreator(self.topics, config.policies)
        self.answers = SendAnswers(store_host, config.policies.region_id, trace_on=config.policies.trace_on)
        self.admission = Admission(
            config, self.topics, creator, unique_ids, clock, self.retries, self.timer_rules, self.copies
        )


def _timers(core: _Core) -> TimerDelivery:
    precision = core.config.timers.precision_ms
    return TimerDelivery(core.store, core.writer, core.topics, core.tables.timers_file, precision, core.clock)


def _sends(core: _Core) -> SendService:
    """Handlers of sends."""
    timeout = core.config.storage.sync_flush_timeout_ms / 1000
    pending = PendingAnswers(core.store, core.answers, timeout, is_replicated=core.config.replication.enabled)
    saver = core.tables.topics_saver
    return SendService(core.store, core.admission, core.answers, core.reput, core.counters, saver, pending)


def _pulls(core: _Core) -> PullService:
    """The service that answers pulls."""
    answers = PullAnswers(core.topics, core.counters, core.statistics)
    return PullService(core.store, core.topics, core.resets, answers, core.config.pulling, core.counters, steady_ms)


def _sending(core: _Core, sends: SendService) -> tuple[Handlers, ...]:
    """Handlers of single sends and of sends to several queues."""
    return sends, QueueBatchHandlers(sends, core.admission, core.answers, core.gate.authorize)


def _consuming(core: _Core) -> tuple[Handlers, ...]:
    """Handlers for consumers, other than pulls."""
    return (
        LockHandlers(core.locks, core.registry, steady_ms),
        OffsetHandlers(core.store, core.topics, core.groups, core.resets, core.config.policies),
        RelayHandlers(core.records, core.topics, core.groups, core.registry, core.config.identity),
        ConsumerHandlers(
            core.store, core.topics, core.registry, core.statistics, core.config.identity.broker_name, core.address
        ),
        RecordHandlers(core.store, core.records),
        SendBackHandlers(
            core.store,
            core.records,
            core.writer,
            core.retries,
            core.tables.topics_saver,
            core.statistics,
            core.copies,
            core.config.policies,
        ),
        TransactionHandlers(core.records, core.transactions, core.clock),
        RecallHandlers(core.writer, core.topics, core.config, core.timer_rules, core.clock),
        _replies(core),
    )


def _assignments(core: _Core, registrar: Registrar, filesystem: FileSystem | None) -> Handlers:
    """Handlers of queue assignments."""
    path = Path(core.config.storage.root_dir) / "config" / "messageRequestMode.json"
    modes = RequestModes(modes_file(str(path), filesystem))
    return AssignmentHandlers(modes, core.topics, core.groups, core.registry, registrar, core.config.identity)


def _replies(core: _Core) -> ReplyHandlers:
    """Handlers of replies."""
    return ReplyHandlers(
        core.admission, core.writer, core.registry, core.store_host, core.clock, core.copies, core.config.policies
    )


def _administration(core: _Core, pulls: PullService, replication: Replication | None) -> tuple[Handlers, ...]:
    """Handlers of administration requests."""
    core.topics.listen(lambda topic: _set_queue_type(core, topic))
    config = core.config
    security = core.tables.security
    facts = None if replication is None else replication.facts
    return (
        UserHandlers(security, core.gate),
        AclHandlers(security.users, security.acls, security.acls_saver),
        TopicHandlers(
            core.store, core.topics, core.groups, core.barrier, config.identity, config.policies, config.metadata
        ),
        GroupHandlers(core.store, core.groups, core.topics, core.barrier, pulls.reset, config.metadata),
        GroupProgressHandlers(core.store, core.topics, core.registry, config.identity, core.address, core.clock),
        ProducerHandlers(core.registry),
        CleanupHandlers(
            core.store, core.topics, core.address, None if replication is None else replication.connections
        ),
        RuntimeHandlers(core.store, core.topics, config, core.running_config, core.tables.delays, core.rates, facts),
        SettingsHandlers(core.running_config, core.barrier),
        StatisticsHandlers(core.statistics),
        QueueItemHandlers(core.store, core.registry),
        ConversionHandlers(core.store, core.topics, core.conversions),
    )


def _services(core: _Core) -> tuple[BackgroundService, ...]:
    """Background services in the order of their start."""
    core.reput.listen(core.pop.held_pops.arrived)
    core.reput.listen(core.delayed.arrived, SCHEDULE_TOPIC)
    core.reput.listen(core.transactions.arrived, HALF_TOPIC)
    core.reput.listen(core.timers.arrived, TIMER_TOPIC)
    return core.conversions, core.deliveries, core.delayed, core.timers, core.transactions, core.pop.revival
