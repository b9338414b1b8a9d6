"""Registry of producers and consumers, which send heartbeats (``ProducerManager``, ``ConsumerManager``).

:class:`ClientRegistry` contains the members of groups. The client id identifies a member within a group. A heartbeat on
another connection replaces the connection of a member: the client may reconnect before the broker detects the
disconnection. Methods that change members or subscriptions of consumer groups return the changed groups, or whether the
group has changed. The caller then notifies the members to rebalance (request 40).

:class:`RepeatedHeartbeats` recognises heartbeats that repeat the previous one of their connection. Clients send the
same bytes every 30 s. While no client joins, leaves or changes a subscription, such a heartbeat only renews the lease
of its client and is not decoded.

:mod:`raptormq.broker.handlers.clients` decodes the other heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from raptormq.protocol.bodies.heartbeat import ConsumerData, Subscription


class _Connection(Protocol):
    def __hash__(self) -> int: ...


C = TypeVar("C", bound=_Connection)

_PRODUCER, _CONSUMER = "producer", "consumer"
_Membership = tuple[str, str, str]
"""Kind, group and client id."""


@dataclass(slots=True)
class Member(Generic[C]):
    """A member of a group, with the data of its last heartbeat. ``seen_ms`` is the time of that heartbeat."""

    client_id: str
    connection: C
    language: int
    version: int
    seen_ms: int
    user: str | None = None
    """User who signed the last heartbeat."""


@dataclass(slots=True)
class ConsumerGroup(Generic[C]):
    """The members of a consumer group and their common settings."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    members: dict[str, Member[C]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    filters: dict[str, Subscription] = field(default_factory=dict)
    """Last subscription with an expression of another type than TAG, by topic."""


@dataclass(frozen=True, slots=True)
class HeartbeatSender(Generic[C]):
    """The sender of a heartbeat, and the time of the heartbeat."""

    client_id: str
    connection: C
    language: int
    version: int
    now_ms: int
    user: str | None = None
    """User who signed the heartbeat."""
    members: list[Member[C]] = field(default_factory=list)
    """Members that the heartbeat created or renewed."""

    def enter(self, members: dict[str, Member[C]]) -> bool:
        """Create or renew the client in ``members`` of a group. Return whether the client is new or has another
        connection than before.
        """
        known = members.get(self.client_id)
        is_new = known is None or known.connection is not self.connection
        if known is None or is_new:
            known = Member(self.client_id, self.connection, self.language, self.version, self.now_ms, self.user)
            members[self.client_id] = known
        else:
            known.language, known.version, known.seen_ms = self.language, self.version, self.now_ms
            known.user = self.user
        self.members.append(known)
        return is_new


class ClientRegistry(Generic[C]):
    """All clients of one broker."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup[C]] = {}
        self.producers: dict[str, dict[str, Member[C]]] = {}
        self._announced: dict[C, set[_Membership]] = {}
        self.revision = 0
        """Incremented by every change of members, subscriptions or group settings."""

    def heartbeat_producer(self, group: str, sender: HeartbeatSender[C]) -> None:
        """Create or renew a member of the producer group ``group``."""
        self.revision += sender.enter(self.producers.setdefault(group, {}))
        self._announced.setdefault(sender.connection, set()).add((_PRODUCER, group, sender.client_id))

    def heartbeat_consumer(self, from_heartbeats: ConsumerData, sender: HeartbeatSender[C]) -> bool:
        """Create or renew a member of a consumer group. Return whether members or subscriptions have changed.

        The subscriptions of the heartbeat replace those of the group. Topics that the heartbeat does not contain are
        removed. An older version of a subscription does not replace a newer one.
        """
        group = self.consumers.setdefault(from_heartbeats.group, ConsumerGroup(from_heartbeats.group))
        consumes = from_heartbeats.consume_type, from_heartbeats.message_model, from_heartbeats.consume_from_where
        if consumes != (group.consume_type, group.message_model, group.consume_from_where):
            group.consume_type, group.message_model, group.consume_from_where = consumes
            self.revision += 1
        changed = sender.enter(group.members)
        self._announced.setdefault(sender.connection, set()).add((_CONSUMER, group.name, sender.client_id))
        changed |= _subscribe(group, from_heartbeats.subscriptions)
        self.revision += changed
        return changed

    def unregister(
        self, connection: C, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> list[str]:
        """Remove a client from groups, unless it has reconnected with another connection. Return the changed consumer
        groups.
        """
        changed: list[str] = []
        for kind, name in ((_PRODUCER, producer_group), (_CONSUMER, consumer_group)):
            if name is not None:
                changed += self._remove(connection, kind, name, client_id)
        return changed

    def connection_closed(self, connection: C) -> list[str]:
        """Remove members whose last heartbeat was received on ``connection``. Return the changed consumer groups."""
        changed: list[str] = []
        for kind, name, client_id in self._announced.pop(connection, ()):
            changed += self._remove(connection, kind, name, client_id)
        return list(dict.fromkeys(changed))

    def expire(self, seen_before_ms: int) -> list[str]:
        """Remove members whose last heartbeat is older than ``seen_before_ms``. Return the changed consumer groups."""
        for name, producers in list(self.producers.items()):
            for client_id in [key for key, member in producers.items() if member.seen_ms < seen_before_ms]:
                self._remove_producer(name, client_id)
        changed: list[str] = []
        for name, group in list(self.consumers.items()):
            silent = [key for key, member in group.members.items() if member.seen_ms < seen_before_ms]
            for client_id in silent:
                self._remove_consumer(name, client_id)
            if silent:
                changed.append(name)
        return changed

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of ``group`` to ``topic`` from its heartbeats, or None."""
        consumers = self.consumers.get(group)
        return consumers.subscriptions.get(topic) if consumers is not None else None

    def filter_before(self, group: str, topic: str) -> Subscription | None:
        """Return the last subscription of ``group`` to ``topic`` with an expression of another type than TAG, or None.
        A later heartbeat may have replaced this subscription.
        """
        consumers = self.consumers.get(group)
        return consumers.filters.get(topic) if consumers is not None else None

    def client_ids(self, group: str) -> list[str]:
        """Return the client ids of the members of a consumer group."""
        consumers = self.consumers.get(group)
        return list(consumers.members) if consumers is not None else []

    def connections(self, group: str) -> list[C]:
        """Return the connections of the members of a consumer group."""
        consumers = self.consumers.get(group)
        return [member.connection for member in consumers.members.values()] if consumers is not None else []

    def producer_connection(self, client_id: str) -> C | None:
        """Return the connection of a producer in any group, or None."""
        members = (group.get(client_id) for group in self.producers.values())
        return next((member.connection for member in members if member is not None), None)

    def _remove(self, connection: C, kind: str, name: str, client_id: str) -> list[str]:
        member = self._members(kind, name).get(client_id)
        if member is None or member.connection is not connection:
            return []  # reconnected with another connection, or already removed
        if kind == _PRODUCER:
            self._remove_producer(name, client_id)
            return []
        return [name] if self._remove_consumer(name, client_id) else []

    def _members(self, kind: str, name: str) -> dict[str, Member[C]]:
        if kind == _PRODUCER:
            return self.producers.get(name, {})
        group = self.consumers.get(name)
        return group.members if group is not None else {}

    def _remove_producer(self, group: str, client_id: str) -> None:
        members = self.producers.get(group)
        if members is None or members.pop(client_id, None) is None:
            return
        self.revision += 1
        if not members:
            del self.producers[group]

    def _remove_consumer(self, name: str, client_id: str) -> bool:
        group = self.consumers.get(name)
        if group is None or group.members.pop(client_id, None) is None:
            return False
        self.revision += 1
        if not group.members:
            del self.consumers[name]
        return True


def _subscribe(group: ConsumerGroup[C], subscriptions: Iterable[Subscription]) -> bool:
    changed = False
    from_heartbeats: set[str] = set()
    for subscription in subscriptions:
        from_heartbeats.add(subscription.topic)
        known = group.subscriptions.get(subscription.topic)
        if known is None or subscription.version > known.version:
            changed |= known is None or known.expression != subscription.expression
            group.subscriptions[subscription.topic] = subscription
            if subscription.expression and subscription.expression_type not in (None, "", "TAG"):
                group.filters[subscription.topic] = subscription
    for topic in group.subscriptions.keys() - from_heartbeats:
        del group.subscriptions[topic]
        changed = True
    return changed


MAX_BODY_BYTES = 16 * 1024
"""Maximum size of a cached heartbeat, which limits the memory per connection."""

HeartbeatContent = tuple[bytes, int, int, str | None]
"""Body, language and version of a heartbeat, and the user who signed it."""


@dataclass(frozen=True, slots=True)
class _Heartbeat(Generic[C]):
    content: HeartbeatContent
    members: Sequence[Member[C]]
    revision: int


class RepeatedHeartbeats(Generic[C]):
    """Cache of the last heartbeat of each connection, with the members that it created or renewed."""

    def __init__(self, registry: ClientRegistry[C]) -> None:
        self._registry = registry
        self._last: dict[C, _Heartbeat[C]] = {}

    def renew(self, connection: C, content: HeartbeatContent, now_ms: int) -> bool:
        """Renew the members of a repeated heartbeat. Return False if the heartbeat must be decoded."""
        last = self._last.get(connection)
        if last is None or last.revision != self._registry.revision or last.content != content:
            return False
        for member in last.members:
            member.seen_ms = now_ms
        return True

    def remember(self, connection: C, content: HeartbeatContent, members: Sequence[Member[C]]) -> None:
        """Cache a decoded heartbeat with the members that it created or renewed."""
        if len(content[0]) <= MAX_BODY_BYTES:
            self._last[connection] = _Heartbeat(content, members, self._registry.revision)
        else:
            self._last.pop(connection, None)

    def forget(self, connection: C) -> None:
        """Remove the heartbeat of a closed connection."""
        self._last.pop(connection, None)

    def clear(self) -> None:
        """Remove all cached heartbeats, so that the next ones are decoded and recreate deleted topics and groups."""
        self._last.clear()
