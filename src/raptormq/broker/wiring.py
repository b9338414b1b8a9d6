"""Creates the components of a broker and connects them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from raptormq.broker.clients import QueueLocks
from raptormq.broker.config import BrokerConfig, apply_retention
from raptormq.broker.cooperative import steady_ms, steady_time_of_day
from raptormq.broker.core import Core, ha_port, own_credentials
from raptormq.broker.delay.delivery_checkpointer import DeliveryCheckpointer
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.handlers.assignments import AssignmentHandlers
from raptormq.broker.handlers.cleanup import CleanupHandlers
from raptormq.broker.handlers.clients import ClientHandlers
from raptormq.broker.handlers.consumers import ConsumerHandlers
from raptormq.broker.handlers.controller import ControllerHandlers
from raptormq.broker.handlers.conversions import ConversionHandlers
from raptormq.broker.handlers.group_progress import GroupProgressHandlers
from raptormq.broker.handlers.groups import GroupHandlers
from raptormq.broker.handlers.locks import LockHandlers
from raptormq.broker.handlers.offsets import OffsetHandlers
from raptormq.broker.handlers.producers import ProducerHandlers
from raptormq.broker.handlers.promotion import PromotionHandlers
from raptormq.broker.handlers.pull import PullHandlers
from raptormq.broker.handlers.queue_items import QueueItemHandlers
from raptormq.broker.handlers.recall import RecallHandlers
from raptormq.broker.handlers.records import RecordHandlers
from raptormq.broker.handlers.relays import RelayHandlers
from raptormq.broker.handlers.replication import ReplicationHandlers
from raptormq.broker.handlers.replies import ReplyHandlers
from raptormq.broker.handlers.resets import ResetHandlers
from raptormq.broker.handlers.runtime import RuntimeHandlers
from raptormq.broker.handlers.send_back import SendBackHandlers
from raptormq.broker.handlers.settings import SettingsHandlers
from raptormq.broker.handlers.slave_tables import SlaveTableHandlers
from raptormq.broker.handlers.staging import StagingHandlers
from raptormq.broker.handlers.statistics import StatisticsHandlers
from raptormq.broker.handlers.topics import TopicHandlers
from raptormq.broker.handlers.transactions import TransactionHandlers
from raptormq.broker.metrics import Rates, Statistics
from raptormq.broker.pull import OffsetResets, PullAnswers, PullService, ReadAdvice
from raptormq.broker.registration import BrokerAddress, Registrar
from raptormq.broker.reput import ReputService
from raptormq.broker.roles import ConfirmLeadership, LeaderWork
from raptormq.broker.scrubber import Scrubber
from raptormq.broker.send.pending_answers import PendingAnswers, SlaveWait
from raptormq.broker.send.queue_batches import QueueBatchHandlers
from raptormq.broker.send.send_service import SendService
from raptormq.broker.service import BackgroundService
from raptormq.broker.staging.staging_service import StagingService
from raptormq.broker.table_files import Tables, load_tables, restore_lost_topics
from raptormq.broker.tables import GroupTable, TopicTable, system_topics
from raptormq.broker.transaction.transaction_service import TransactionService
from raptormq.errors import StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.topic_names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from raptormq.security.acl_handlers import AclHandlers
from raptormq.security.tables import Confirmed
from raptormq.security.user_handlers import UserHandlers
from raptormq.storage.fs import FileSystem
from raptormq.storage.store import MessageStore
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.router import Router

if TYPE_CHECKING:
    from raptormq.broker.group_wiring import OpenedMember
    from raptormq.broker.ha import SlaveAcknowledgements
    from raptormq.broker.ha_wiring import HaParts
    from raptormq.broker.replication import Replication

logger = get_logger(__name__)


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
    resets: OffsetResets
    timers: TimerDelivery
    transactions: TransactionService
    staging: StagingService
    deliveries: DeliveryCheckpointer
    services: tuple[BackgroundService, ...]
    scrubber: Scrubber
    replication: Replication | None
    """Replication of the broker, or None if it is not a member of a group."""
    ha: HaParts | None
    """The parts of a master with slaves or of a slave, otherwise None."""

    def expire_locks(self) -> None:
        """Remove expired queue locks."""
        self.locks.expire(steady_ms())

    def start_services(self) -> None:
        """Start the background services."""
        for service in self.services:
            service.start()

    async def stop_services(self) -> None:
        """Stop the background services in reverse order, all of them even if one fails."""
        async with AsyncExitStack() as steps:
            for service in self.services:
                steps.push_async_callback(service.stop)

    def leader_work(self) -> LeaderWork:
        """Return the callbacks that start and stop the services which only a leader runs."""

        async def start() -> None:
            await self.deliveries.derive()
            self.start_services()

        def register(broker_id: int) -> None:
            for service in self.services:
                service.role_changed(leads=broker_id == MASTER_ID)
            self.locks.clear()
            self.resets.clear()
            self.registrar.register_as(broker_id)

        return LeaderWork(start, self.stop_services, register)

    async def check_history(self) -> None:
        """Compare this master with the other brokers of its name, to decide whether it may serve."""
        if self.ha is not None and (guard := self.ha.history) is not None:
            await guard.check()

    def start_registration(self) -> None:
        """Register with the name servers when this broker may serve."""
        if self.ha is not None and (guard := self.ha.history) is not None:
            guard.begin(self.registrar.start, self.registrar.unregister)
        else:
            self.registrar.start()

    @property
    def refusal(self) -> str:
        """Reason why this master does not serve clients; empty while it serves, and for other brokers."""
        return "" if self.ha is None else self.ha.refusal

    async def start_ha(self) -> None:
        """Serve slaves, or follow the master.

        Raises:
            ConfigError: the port for slaves is in use.
        """
        if self.ha is not None:
            await self.ha.start(self.leader_work())

    async def save_tables(self) -> None:
        """Save pending changes. Errors are logged, because no request reports them."""
        for saver in self.tables.savers:
            try:
                await saver.saved()
            except StorageError as error:
                logger.error("%s", error)


def assemble(
    config: BrokerConfig,
    store: MessageStore,
    store_host: bytes,
    address: str,
    filesystem: FileSystem | None,
    clock: Callable[[], int],
    member: OpenedMember | None = None,
) -> Assembly:
    """Create the components of a broker with an open store. A member of a group passes its state as ``member``.

    Raises:
        StoreDamaged: a table cannot be read.
        ConfigError: the list of name servers is malformed.
    """
    tables = restore_lost_topics(load_tables(config, filesystem, clock, store.save_deletions), store)
    registrar = _registrar(config, address, tables)
    core = Core(config, store, store_host, address, tables, registrar, clock)
    acknowledgements = _acknowledgements(core)
    sends = _sends(core, acknowledgements)
    pulls = _pulls(core)
    clients = ClientHandlers(core.registry, core.groups, core.topics, config.policies, steady_time_of_day(clock))
    core.reput.listen(pulls.arrived)
    core.reput.listen_topics(core.statistics.topics_arrived)
    router = Router()
    core.gate.protect(router)
    replication = None if member is None else _replication(core, router, registrar, member)
    confirm_leadership = None if replication is None else replication.confirm_leadership
    if replication is not None:
        pulls.attach_group(replication.member.reads.passed)
    ha = _ha(core, router, registrar, acknowledgements, filesystem)
    other_copies = replication or (None if ha is None else ha.copies)
    scrubber = Scrubber(
        store,
        config.storage,
        None if other_copies is None else other_copies.fetch,
        hand_over=None if replication is None else replication.lead_elsewhere,
        comparison=None if replication is None else replication.copies,
    )
    if replication is not None:
        replication.attach_scrub(scrubber.suspect, scrubber.copies_differ)
    resets = ResetHandlers(store, core.topics, core.groups, core.registry, core.resets, pulls, core.barrier, config)
    areas: list[Handlers] = [
        *_sending(core, sends),
        _staging(core, sends),
        PullHandlers(
            pulls,
            core.resets,
            core.topics,
            core.groups,
            core.registry,
            core.statistics,
            config,
            lambda: replication is None or replication.not_serving() is None,
        ),
        clients,
        resets,
        *core.pop.handlers(
            core.registry,
            core.resets,
            core.counters,
            core.statistics,
            confirm_leadership,
            None if replication is None else replication.tables.write_offsets,
        ),
        _assignments(core, registrar),
        *_consuming(core, confirm_leadership),
        *_administration(core, pulls, scrubber, replication, ha),
        PromotionHandlers(None if ha is None else ha.slave, core.running_config),
    ]
    for handlers in areas:
        handlers.register(router)
    core.running_config.listen(lambda changed: _settings_changed(core, registrar, changed))
    for topic_changed in (registrar.topic_changed, pulls.topic_changed, resets.topic_changed):
        core.topics.listen(topic_changed)
    core.topics.listen_to_deletions(core.statistics.forget)
    return Assembly(
        router, core.topics, core.groups, tables, core.rates, core.statistics, clients, pulls, sends, core.reput,
        registrar, core.locks, core.resets, core.timers, core.transactions, core.staging, core.deliveries,
        _services(core), scrubber, replication, ha,
    )  # fmt: skip


def _replication(core: Core, router: Router, registrar: Registrar, member: OpenedMember) -> Replication:
    from raptormq.broker.group_wiring import create_replication  # other brokers start faster without it

    return create_replication(core, router, registrar, member.files)


def _acknowledgements(core: Core) -> SlaveAcknowledgements | None:
    if not core.config.ha.needed_slaves:
        return None
    from raptormq.broker.ha_wiring import create_acknowledgements  # other brokers start faster without it

    return create_acknowledgements(core)


def _ha(
    core: Core,
    router: Router,
    registrar: Registrar,
    acknowledgements: SlaveAcknowledgements | None,
    filesystem: FileSystem | None,
) -> HaParts | None:
    config = core.config
    if not config.ha.is_slave and not config.serves_slaves:
        return None
    from raptormq.broker.ha_wiring import create_master, create_slave  # other brokers start faster without it

    if config.ha.is_slave:
        return create_slave(core, router, registrar, filesystem)
    return create_master(core, router, registrar, acknowledgements, filesystem)


def _settings_changed(core: Core, registrar: Registrar, changed: set[str]) -> None:
    """Apply settings to the components that do not read them on every use."""
    core.admission.settings_changed()
    apply_retention(core.config, core.store.config)
    if "autoCreateTopicEnable" in changed and core.config.policies.auto_create_topic:
        core.topics.add_missing(system_topics(core.config.identity, core.config.policies))
    if "brokerPermission" in changed:
        core.topics.bump_version()
        registrar.permission_changed()


def _set_queue_type(core: Core, topic: str) -> None:
    """Set the queue type of a topic in the store before it has queues."""
    config = core.topics.get(topic)
    if config is not None and config.is_batch:
        core.store.set_batch_topic(topic)


def _registrar(config: BrokerConfig, address: str, tables: Tables) -> Registrar:
    host = address.rpartition(":")[0]
    return Registrar(
        config.identity,
        BrokerAddress(address, f"{host}:{ha_port(config, address)}"),
        tables.topics,
        config.policies,
        ConnectionLimits(credentials=own_credentials(config)),
        config.outgoing_tls,
    )


def _sends(core: Core, slaves: SlaveAcknowledgements | None) -> SendService:
    """Return the handlers of sends."""
    config = core.config
    pending = PendingAnswers(
        core.store,
        core.answers,
        config.storage.sync_flush_timeout_ms / 1000,
        is_replicated=config.replication.enabled,
        slaves=None if slaves is None else SlaveWait(slaves, config.ha.slave_timeout_ms / 1000),
    )
    saver = core.tables.topics_saver
    return SendService(core.store, core.admission, core.answers, core.reput, core.counters, saver, pending)


def _pulls(core: Core) -> PullService:
    """Return the pull service."""
    advice = ReadAdvice(core.config.ha, core.groups, lambda: core.store.end_offset)
    answers = PullAnswers(core.topics, core.counters, core.statistics, advice.broker_id)
    return PullService(core.store, core.topics, core.resets, answers, core.config.pulling, core.counters, steady_ms)


def _sending(core: Core, sends: SendService) -> tuple[Handlers, ...]:
    """Return the handlers of single sends and of sends to several queues."""
    return sends, QueueBatchHandlers(sends, core.admission, core.answers, core.gate.authorize)


def _staging(core: Core, sends: SendService) -> StagingHandlers:
    """Return the handlers of staged messages."""
    return StagingHandlers(sends, core.admission, core.staging, core.gate.authorizer, core.config, core.clock)


def _consuming(core: Core, confirm_leadership: ConfirmLeadership | None) -> tuple[Handlers, ...]:
    """Return the handlers for consumers, except pulls."""
    return (
        LockHandlers(core.locks, core.registry, steady_ms, confirm_leadership),
        OffsetHandlers(core.store, core.topics, core.groups, core.resets, core.config.policies, confirm_leadership),
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
            core.statistics,
            core.config.policies,
        ),
        TransactionHandlers(core.records, core.transactions, core.clock),
        RecallHandlers(core.writer, core.topics, core.config, core.timer_rules, core.clock),
        _replies(core),
    )


def _begin_change(core: Core) -> Confirmed:
    """Begin a change of a table, and return what waits until the change is replicated."""
    return core.barrier.begin().confirmed


def _assignments(core: Core, registrar: Registrar) -> Handlers:
    """Return the handlers of queue assignments."""
    tables = core.tables
    return AssignmentHandlers(
        tables.modes, tables.modes_saver, partial(_begin_change, core), core.topics, core.groups, core.registry,
        registrar, core.config.identity,
    )  # fmt: skip


def _replies(core: Core) -> ReplyHandlers:
    """Return the handlers of replies."""
    return ReplyHandlers(core.admission, core.writer, core.registry, core.store_host, core.clock, core.config.policies)


def _administration(
    core: Core,
    pulls: PullService,
    scrubber: Scrubber,
    replication: Replication | None,
    ha: HaParts | None,
) -> tuple[Handlers, ...]:
    """Return the handlers of administration requests. At most one of ``replication`` and ``ha`` is given."""
    core.topics.listen(lambda topic: _set_queue_type(core, topic))
    config = core.config
    security = core.tables.security
    copies = replication or (None if ha is None else ha.role)
    facts = None if copies is None else copies.facts
    begin_change = partial(_begin_change, core)
    return (
        UserHandlers(security, core.gate, begin_change),
        AclHandlers(security.users, security.acls, security.acls_saver, begin_change),
        TopicHandlers(
            core.store, core.topics, core.groups, core.barrier, config.identity, config.policies, config.metadata
        ),
        GroupHandlers(core.store, core.groups, core.topics, core.barrier, pulls.reset, config.metadata),
        GroupProgressHandlers(
            core.store, core.topics, core.registry, core.barrier, config.identity, core.address, core.clock
        ),
        ProducerHandlers(core.registry),
        CleanupHandlers(
            core.store, core.topics, core.barrier, core.address, None if copies is None else copies.connections
        ),
        RuntimeHandlers(core.store, core.topics, config, core.running_config, core.tables.delays, core.rates, facts),
        SettingsHandlers(core.running_config, core.barrier),
        StatisticsHandlers(core.statistics),
        QueueItemHandlers(core.store, core.registry),
        ConversionHandlers(core.store, core.topics, core.conversions),
        ControllerHandlers(config, core.store, core.address, replication),
        ReplicationHandlers(
            config.identity.broker_name,
            core.address,
            core.store,
            replication,
            scrubber,
            None if ha is None else ha.status,
        ),
        SlaveTableHandlers(
            core.store, core.tables.delays, core.timers, _slave_addresses(core), serves_log=replication is None
        ),
    )


def _slave_addresses(core: Core) -> tuple[str, str | None]:
    """Return the broker's addresses for clients and, for a master with slaves, for slaves."""
    config, host = core.config, core.address.rpartition(":")[0]
    return core.address, f"{host}:{ha_port(config, core.address)}" if config.serves_slaves else None


def _services(core: Core) -> tuple[BackgroundService, ...]:
    """Connect the background services and return them in start order."""
    core.reput.listen(core.pop.held_pops.arrived)
    core.reput.listen(core.delayed.arrived, SCHEDULE_TOPIC)
    core.reput.listen(core.transactions.arrived, HALF_TOPIC)
    core.reput.listen(core.timers.arrived, TIMER_TOPIC)
    delivering = core.deliveries, core.delayed, core.timers, core.transactions, core.staging, core.pop.revival
    return core.conversions, *delivering
