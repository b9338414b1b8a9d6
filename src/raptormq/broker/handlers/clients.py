"""Client management: heartbeats (34), unregistration (35), members of a group (38), validation of subscriptions (46),
and notifications to rebalance (40) (``ClientManageProcessor``, ``ConsumerManageProcessor``,
``DefaultConsumerIdsChangeListener``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from raptormq.broker.clients import (
    ClientRegistry,
    HeartbeatSender,
    Member,
    RepeatedHeartbeats,
    SubscriptionFilters,
    compiled,
    is_tag_type,
)
from raptormq.broker.config import Policies
from raptormq.broker.cooperative import LARGE_BODY_BYTES, run_cooperatively
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import require_group
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription, encode_consumer_ids
from raptormq.protocol.bodies.steps import Steps, run_steps
from raptormq.protocol.bodies.tolerant_json import loads_request
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.client import (
    ConsumerGroupRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from raptormq.protocol.signing import ACCESS_KEY
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Refused, Router

MAX_NEW_GROUPS = 1_000
"""Maximum number of groups that one heartbeat creates. The broker saves each group and creates its retry topic."""
MAX_CLIENTS_PER_GROUP = 10_000
"""Maximum number of members of a group. Every member requests the list of all members."""


class ClientHandlers:
    """Updates the client registry and notifies group members of changes."""

    def __init__(
        self,
        registry: ClientRegistry[Connection],
        groups: GroupTable,
        topics: TopicTable,
        policies: Policies,
        clock: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._subscriptions = SubscriptionFilters(registry, policies)
        self._groups = groups
        self._topics = topics
        self._policies = policies
        self._clock = clock
        self._repeats: RepeatedHeartbeats[Connection] = RepeatedHeartbeats(registry)
        groups.listen(self._repeats.clear)  # decode the next heartbeats, which recreate deleted groups and retry topics
        topics.listen(lambda _: self._repeats.clear())

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.HEART_BEAT, None, self.heartbeat)
        router.add(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, self.unregister)
        router.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader, self.members)
        router.add(RequestCode.CHECK_CLIENT_CONFIG, None, self.check_subscription)
        router.on_closed(self.connection_closed)

    def heartbeat(self, connection: Connection, command: RemotingCommand, _: None) -> Answer | Awaitable[Answer]:
        """34: register the client. The first heartbeat of a group creates the group and its retry topic."""
        content = command.body, command.language, command.version, command.ext_fields.get(ACCESS_KEY)
        now = self._clock()
        if not self._repeats.renew(connection, content, now):
            if len(command.body) >= LARGE_BODY_BYTES:
                return self._large_heartbeat(connection, command, now)
            self._repeats.remember(connection, content, run_steps(self._entering(connection, command, now)))
        return response_to(command, header=HeartbeatResponseHeader())

    async def _large_heartbeat(self, connection: Connection, command: RemotingCommand, now: int) -> RemotingCommand:
        await run_cooperatively(self._entering(connection, command, now))
        return response_to(command, header=HeartbeatResponseHeader())

    def _entering(self, connection: Connection, command: RemotingCommand, now: int) -> Steps[list[Member[Connection]]]:
        """Apply a heartbeat. Yields after each group and subscription."""
        data = yield from HeartbeatData.read_steps(command.body)
        user = command.ext_fields.get(ACCESS_KEY)
        sender = HeartbeatSender(data.client_id, connection, command.language, command.version, now, user)
        for consumer in data.consumers:
            for place, subscription in enumerate(consumer.subscriptions):
                consumer.subscriptions[place] = _compiled(subscription)
                yield
        for group in data.producer_groups:
            if connection.is_closed:
                return []  # closed during the previous steps
            self._registry.heartbeat_producer(group, sender)
            yield
        new_groups = 0
        for consumer in data.consumers:
            if connection.is_closed:
                break
            new_groups += self._groups.get(consumer.group) is None
            if new_groups > MAX_NEW_GROUPS:
                remark = f"a heartbeat creates at most {MAX_NEW_GROUPS} groups; the next one creates more"
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
            self._consumer_heartbeat(consumer, sender)
            yield
        return sender.members

    def _consumer_heartbeat(self, consumer: ConsumerData, sender: HeartbeatSender[Connection]) -> None:
        if not self._policies.auto_create_group and self._groups.get(consumer.group) is None:
            return  # pulls of this group are refused; the other groups of the client are not affected
        group = require_group(self._groups, consumer.group, auto_create=True)
        members = self._registry.client_ids(consumer.group)
        if len(members) >= MAX_CLIENTS_PER_GROUP and sender.client_id not in members:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"group {consumer.group} already has {len(members)} members")
        if group.retry_queue_nums:
            self._topics.ensure_retry_topic(consumer.group, group.retry_queue_nums)
        if self._registry.heartbeat_consumer(consumer, sender):
            self.notify([consumer.group])

    def unregister(
        self, connection: Connection, command: RemotingCommand, header: UnregisterClientRequestHeader
    ) -> RemotingCommand:
        """35: remove a client of this connection."""
        changed = self._registry.unregister(connection, header.client_id, header.producer_group, header.consumer_group)
        self.notify(changed)
        return response_to(command)

    def members(self, _: Connection, command: RemotingCommand, header: ConsumerGroupRequestHeader) -> RemotingCommand:
        """38: return the client ids of a group's members for rebalancing."""
        ids = self._registry.client_ids(header.consumer_group)
        if not ids:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return response_to(command, body=encode_consumer_ids(ids))

    def check_subscription(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """46: validate a filter expression before the first pull."""
        value = loads_request(command.body).get("subscriptionData")
        if value is not None:
            subscription = Subscription.from_dict(value)
            kind = subscription.expression_type
            if not is_tag_type(kind):
                self._subscriptions.require_property_filters(kind)
                compiled(kind, subscription.expression, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        return response_to(command)

    def connection_closed(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        self._repeats.forget(connection)
        self.notify(self._registry.connection_closed(connection))

    def expire(self) -> None:
        """Remove clients without a heartbeat for ``channelExpiredTimeout``."""
        self.notify(self._registry.expire(self._clock() - self._policies.client_expiry_ms))

    def notify(self, groups: Iterable[str]) -> None:
        """Notify the members of each group to rebalance (40)."""
        if not self._policies.notify_consumer_changes:
            return
        for name in groups:
            group = self._groups.get(name)
            if group is not None and not group.notify_consumer_ids_changed_enable:
                continue
            for connection in self._registry.connections(name):
                notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader(name), oneway=True)
                connection.oneway(notice)


def _compiled(subscription: Subscription) -> Subscription:
    """Return the subscription with tag hashes, which some clients do not send."""
    if not is_tag_type(subscription.expression_type):
        return subscription
    return Subscription.parse(subscription.topic, subscription.expression, subscription.version)
