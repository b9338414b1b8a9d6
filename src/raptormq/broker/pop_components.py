"""Creates the components of POP consumption and connects them."""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry, SubscriptionFilters
from raptormq.broker.config import BrokerConfig
from raptormq.broker.handlers.acks import AckHandlers
from raptormq.broker.handlers.peek import PeekHandlers
from raptormq.broker.handlers.pop import PopHandlers
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pop.held_pops import HeldPops
from raptormq.broker.pop.orderly_pops import OrderlyPops
from raptormq.broker.pop.outstanding import Outstanding
from raptormq.broker.pop.pop_service import PopService
from raptormq.broker.pop.popped_messages import PoppedMessages
from raptormq.broker.pop.queue_order import QueueOrder
from raptormq.broker.pop.request_validator import PopRequestValidator
from raptormq.broker.pop.revive_log import ReviveLog
from raptormq.broker.pop.revive_service import PopReviveService
from raptormq.broker.pull import OffsetResets
from raptormq.broker.retries import RetryTopics
from raptormq.broker.roles import ConfirmLeadership
from raptormq.broker.table_files import Tables
from raptormq.protocol.message_id import decode_host
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection


class PopComponents:
    """POP consumption of one broker: held pops, unacknowledged messages, and the service that revives them."""

    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        writer: InternalWriter,
        tables: Tables,
        retries: RetryTopics,
        config: BrokerConfig,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._store_host = store_host
        self._writer = writer
        self._topics, self._groups = tables.topics, tables.groups
        self._config = config
        self._clock = clock
        outstanding = Outstanding(config.pulling.max_outstanding_pops)
        log = ReviveLog(store, writer, outstanding, config.identity.cluster_name, store_host)
        self._popped = PoppedMessages(log, OrderlyPops())
        self.held_pops = HeldPops(config.pulling.max_held)
        self.revival = PopReviveService(store, writer, retries, self._popped, self.held_pops, config.pulling, clock)
        self._topics.listen_to_deletions(self._popped.forget_topic)

    def handlers(
        self,
        registry: ClientRegistry[Connection],
        resets: OffsetResets,
        counters: Counters,
        statistics: Statistics,
        confirm_leadership: ConfirmLeadership | None,
        replicate_offsets: Callable[[], None] | None,
    ) -> tuple[PopHandlers, AckHandlers, PeekHandlers]:
        """Return the handlers of POP requests. The last two arguments are None without a group."""
        config = self._config
        order = QueueOrder(self._topics, self._groups, config)
        pop_service = PopService(self._store, order, self._popped, resets, self._writer.properties, config, self._clock)
        host, _ = decode_host(self._store_host)
        subscriptions = SubscriptionFilters(registry, config.policies)
        validator = PopRequestValidator(self._topics, self._groups, subscriptions, config, self._clock, host)
        return (
            PopHandlers(pop_service, self.held_pops, validator, counters, statistics, self._clock, confirm_leadership),
            AckHandlers(
                self._store,
                self._topics,
                self._popped,
                self.held_pops,
                self._clock,
                confirm_leadership,
                replicate_offsets,
            ),
            PeekHandlers(pop_service, validator),
        )
