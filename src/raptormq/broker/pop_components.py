"""Creates and connects the components of POP consumption."""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry, SubscriptionFilters
from raptormq.broker.config import BrokerConfig
from raptormq.broker.copy_properties import CopyProperties
from raptormq.broker.handlers.acks import AckHandlers
from raptormq.broker.handlers.peek import PeekHandlers
from raptormq.broker.handlers.pop import PopHandlers
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pop.held_pops import HeldPops
from raptormq.broker.pop.orderly_pops import OrderlyPops
from raptormq.broker.pop.outstanding import Outstanding
from raptormq.broker.pop.pop_service import PopService
from raptormq.broker.pop.revive_log import ReviveLog, revive_topic
from raptormq.broker.pop.revive_service import PopReviveService
from raptormq.broker.pull import OffsetResets
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.protocol.message_id import decode_host
from raptormq.storage.fs import TableSaver
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router


class PopComponents:
    """POP consumption of one broker: handlers, held pops, and the service that revives unacknowledged messages."""

    def __init__(
        self,
        store: MessageStore,
        writer: InternalWriter,
        topics: TopicTable,
        topics_saver: TableSaver,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        resets: OffsetResets,
        counters: Counters,
        statistics: Statistics,
        copies: CopyProperties,
        config: BrokerConfig,
        store_host: bytes,
        clock: Callable[[], int],
    ) -> None:
        identity, policies = config.identity, config.policies
        outstanding, orderly = Outstanding(config.pulling.max_outstanding_pops), OrderlyPops()
        checkpoints = ReviveLog(store, writer, outstanding, identity.cluster_name, store_host)
        self.held_pops = HeldPops(config.pulling.max_held)
        self.revival = PopReviveService(
            store, writer, topics, topics_saver, groups, outstanding, checkpoints,
            revive_topic(identity.cluster_name), copies, config.pulling, clock,
        )  # fmt: skip
        pop_service = PopService(
            store, topics, groups, checkpoints, orderly, resets, identity.broker_name, copies, config.pulling,
            config.pop_order, clock,
        )  # fmt: skip
        ready = self.revival.ready
        subscriptions = SubscriptionFilters(registry, policies)
        host, _ = decode_host(store_host)
        self._pops = PopHandlers(
            pop_service,
            self.held_pops,
            ready,
            topics,
            groups,
            subscriptions,
            policies,
            config.pulling,
            counters,
            statistics,
            clock,
            host,
        )
        self._peeks = PeekHandlers(pop_service, ready, topics, groups, policies)
        self._acks = AckHandlers(store, topics, checkpoints, orderly, self.held_pops, ready, clock)
        topics.listen_to_deletions(orderly.forget_topic)
        topics.listen_to_deletions(outstanding.forget_topic)

    def register(self, router: Router) -> None:
        """Register the handlers with the router."""
        self._pops.register(router)
        self._acks.register(router)
        self._peeks.register(router)
