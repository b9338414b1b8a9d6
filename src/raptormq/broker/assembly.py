"""How a broker's parts are put together: who gets what, and who hears of whose changes. No behaviour of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.config import BrokerConfig
from raptormq.broker.counters import Counters
from raptormq.broker.dispatching import Dispatcher
from raptormq.broker.groups import GroupTable
from raptormq.broker.handlers.clients import ClientHandlers
from raptormq.broker.handlers.consumers import ConsumerHandlers
from raptormq.broker.handlers.groups import GroupHandlers
from raptormq.broker.handlers.locks import LockHandlers
from raptormq.broker.handlers.offsets import OffsetHandlers
from raptormq.broker.handlers.pull import PullHandlers
from raptormq.broker.handlers.records import RecordHandlers
from raptormq.broker.handlers.runtime import RuntimeHandlers
from raptormq.broker.handlers.topics import TopicHandlers
from raptormq.broker.queue_locks import QueueLocks
from raptormq.broker.rates import Rates
from raptormq.broker.registration import BrokerAddress, Registrar
from raptormq.broker.saving import TableSaver
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.answers import SendAnswers
from raptormq.broker.send.auto_create import TopicCreator
from raptormq.broker.send.flush_wait import FlushWaits
from raptormq.broker.send.group import SendGroups
from raptormq.broker.store_settings import max_body_bytes
from raptormq.broker.system_topics import system_topics
from raptormq.broker.topics import TopicTable
from raptormq.errors import BodyError, StorageError, StoreDamaged
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
"""Longest time an administrator's change waits for name servers; clients give up after 3 s."""
_REPLICATION_PORT_STEP = 1


@dataclass(frozen=True, slots=True)
class Tables:
    """The broker's own tables with the files they live in."""

    topics: TopicTable
    groups: GroupTable
    topics_saver: TableSaver
    groups_saver: TableSaver


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts that the service starts, stops and asks."""

    router: Router
    topics: TopicTable
    groups: GroupTable
    tables: Tables
    rates: Rates
    clients: ClientHandlers
    pulls: PullHandlers
    sends: SendGroups
    dispatcher: Dispatcher
    registrar: Registrar
    locks: QueueLocks
    clock: Callable[[], int]

    def expire_locks(self) -> None:
        """Forget queue locks that nobody renews."""
        self.locks.expire(self.clock())

    async def save_tables(self) -> None:
        """Write what is not written yet; an error is logged, since there is nobody left to tell."""
        for saver in (self.tables.topics_saver, self.tables.groups_saver):
            try:
                await saver.saved()
            except StorageError as error:
                logger.error("%s", error)


class _Settling:
    """A change is settled when the tables are on disk and the name servers have heard of it."""

    def __init__(self, tables: Tables, registrar: Registrar) -> None:
        self._tables = tables
        self._registrar = registrar

    async def settled(self) -> None:
        """Wait for both."""
        await asyncio.gather(self._tables.topics_saver.saved(), self._tables.groups_saver.saved())
        await self._registrar.settled(SETTLE_SECONDS)


def load_tables(config: BrokerConfig, filesystem: FileSystem | None, clock: Callable[[], int]) -> Tables:
    """Read the tables of an earlier run and add what is missing.

    Raises:
        StoreDamaged: a file and its backup cannot be read.
    """
    folder = Path(config.keeping.root_dir) / "config"
    topics_file = JsonFile(str(folder / "topics.json"), filesystem)
    groups_file = JsonFile(str(folder / "subscriptionGroup.json"), filesystem)
    try:
        topics = TopicTable(TopicConfigTable.from_dict(topics_file.load() or {}), clock)
        groups = GroupTable(groups_file.load(), clock)
    except BodyError as error:
        raise StoreDamaged(f"a table in {folder} does not have the expected shape: {error}") from error
    tables = Tables(
        topics,
        groups,
        TableSaver(topics_file, topics.to_dict),
        TableSaver(groups_file, groups.to_dict),
    )
    topics.listen(lambda _: tables.topics_saver.save_soon())
    groups.listen(tables.groups_saver.save_soon)
    if not config.policies.auto_create_topic:
        topics.delete("TBW102")
    topics.add_missing(system_topics(config.identity, config.policies))
    return tables


def assemble(
    config: BrokerConfig,
    store: MessageStore,
    store_host: bytes,
    address: str,
    filesystem: FileSystem | None,
    clock: Callable[[], int],
) -> Assembly:
    """Put a broker together around its open store.

    Raises:
        StoreDamaged: a table cannot be read.
        ConfigError: the list of name servers is malformed.
    """
    identity, policies = config.identity, config.policies
    host, _, port = address.rpartition(":")
    replication = f"{host}:{int(port) + _REPLICATION_PORT_STEP}"
    tables = load_tables(config, filesystem, clock)
    topics, groups = tables.topics, tables.groups
    registrar = Registrar(identity, BrokerAddress(address, replication), topics, policies.permission)
    settling = _Settling(tables, registrar)
    counters, locks, registry = Counters(), QueueLocks(), ClientRegistry[Connection]()
    rates = Rates(counters, clock)
    router = Router()
    pulls = PullHandlers(store, topics, groups, registry, config, counters, clock)
    clients = ClientHandlers(registry, groups, topics, policies, clock)
    dispatcher = Dispatcher(store, pulls.arrived)
    sync_flush = config.keeping.flush_disk_type == "SYNC_FLUSH"
    unique_ids = UniqueIdFactory(store_host[:-4], os.getpid(), id(router))
    creator = TopicCreator(topics, enabled=policies.auto_create_topic)
    admission = Admission(config, max_body_bytes(config), topics, creator, unique_ids, clock)
    answers = SendAnswers(store_host, policies.region_id, trace_on=policies.trace_on)
    waits = FlushWaits(store, answers, config.keeping.sync_flush_timeout_ms / 1000) if sync_flush else None
    sends = SendGroups(
        store,
        admission,
        answers,
        dispatcher,
        counters,
        tables.topics_saver.saved,
        waits,
    )
    for handlers in (
        sends,
        pulls,
        clients,
        LockHandlers(locks, clock),
        OffsetHandlers(store, topics, groups, policies),
        TopicHandlers(store, topics, settling, identity, policies),
        GroupHandlers(store, groups, topics, settling),
        ConsumerHandlers(store, topics, registry, identity),
        RecordHandlers(store),
        RuntimeHandlers(store, topics, config, rates),
    ):
        handlers.register(router)
    topics.listen(registrar.topic_changed)
    topics.listen(pulls.topic_changed)
    return Assembly(router, topics, groups, tables, rates, clients, pulls, sends, dispatcher, registrar, locks, clock)
