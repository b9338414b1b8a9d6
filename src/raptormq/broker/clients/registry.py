"""The producers and consumers that heartbeats announce (``ProducerManager``, ``ConsumerManager``).

:class:`ClientRegistry` contains the group members. A member is identified by its client id within a group. Its
connection may be replaced, when a client reconnects before the broker notices the disconnection. Every method that can
change the members or subscriptions of consumer groups returns the groups that changed; the caller notifies their
members to rebalance (request 40). The time is passed in.

:class:`RepeatedHeartbeats` recognises heartbeats that repeat the previous one of their connection. Clients send the
same bytes every 30 s. As long as no client joins, leaves or changes a subscription, such a heartbeat only renews the
client's lease, so it is not decoded.

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
_Place = tuple[str, str, str]
"""Kind, group and client id."""


@dataclass(slots=True)
class Member(Generic[C]):
    """A client of a group, as of its last heartbeat."""

    client_id: str
    connection: C
    language: int
    version: int
    seen_ms: int
    user: str | None = None
    """User that signed the last heartbeat."""


@dataclass(slots=True)
class ConsumerGroup(Generic[C]):
    """The members of a consumer group and the settings they share."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    members: dict[str, Member[C]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    filters: dict[str, Subscription] = field(default_factory=dict)
    """The last subscription to each topic whose expression was not a tag expression."""


@dataclass(frozen=True, slots=True)
class HeartbeatSender(Generic[C]):
    """The client that sends a heartbeat, and the time."""

    client_id: str
    connection: C
    language: int
    version: int
    now_ms: int
    user: str | None = None
    """User that signed it."""
    members: list[Member[C]] = field(default_factory=list)
    """The members that this heartbeat created or renewed."""

    def enter(self, members: dict[str, Member[C]]) -> bool:
        """Create or renew the client among the members of a group; True when it is new on this connection."""
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
        self._announced: dict[C, set[_Place]] = {}
        self.revision = 0
        """Grows with every change of members, subscriptions or how a group consumes."""

    def heartbeat_producer(self, group: str, presence: HeartbeatSender[C]) -> None:
        """Note that a client produces as ``group``."""
        self.revision += presence.enter(self.producers.setdefault(group, {}))
        self._announced.setdefault(presence.connection, set()).add((_PRODUCER, group, presence.client_id))

    def heartbeat_consumer(self, from_heartbeats: ConsumerData, presence: HeartbeatSender[C]) -> bool:
        """Note that a client consumes as a group; True when its members or topics are others than before.

        The announced subscriptions replace those the group had: topics that are absent are dropped, and an older
        version of one never replaces a newer one.
        """
        group = self.consumers.setdefault(from_heartbeats.group, ConsumerGroup(from_heartbeats.group))
        consumes = from_heartbeats.consume_type, from_heartbeats.message_model, from_heartbeats.consume_from_where
        if consumes != (group.consume_type, group.message_model, group.consume_from_where):
            group.consume_type, group.message_model, group.consume_from_where = consumes
            self.revision += 1
        changed = presence.enter(group.members)
        self._announced.setdefault(presence.connection, set()).add((_CONSUMER, group.name, presence.client_id))
        changed |= _subscribe(group, from_heartbeats.subscriptions)
        self.revision += changed
        return changed

    def unregister(
        self, connection: C, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> list[str]:
        """Take a client out of its groups; nothing happens where another connection than its own asks for it."""
        changed: list[str] = []
        for kind, name in ((_PRODUCER, producer_group), (_CONSUMER, consumer_group)):
            if name is not None:
                changed += self._take_out(connection, kind, name, client_id)
        return changed

    def connection_closed(self, connection: C) -> list[str]:
        """Take everyone out who was last heard on ``connection``."""
        changed: list[str] = []
        for kind, name, client_id in self._announced.pop(connection, ()):
            changed += self._take_out(connection, kind, name, client_id)
        return list(dict.fromkeys(changed))

    def expire(self, seen_before_ms: int) -> list[str]:
        """Take everyone out whose last heartbeat is older."""
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
        """The group's subscription to a topic, as its heartbeats announced it."""
        consumers = self.consumers.get(group)
        return consumers.subscriptions.get(topic) if consumers is not None else None

    def filter_before(self, group: str, topic: str) -> Subscription | None:
        """The group's last subscription to a topic by an expression that is not of tags; it may be outdated."""
        consumers = self.consumers.get(group)
        return consumers.filters.get(topic) if consumers is not None else None

    def client_ids(self, group: str) -> list[str]:
        """Ids of the members of a consumer group."""
        consumers = self.consumers.get(group)
        return list(consumers.members) if consumers is not None else []

    def connections(self, group: str) -> list[C]:
        """Connections of the members of a consumer group."""
        consumers = self.consumers.get(group)
        return [member.connection for member in consumers.members.values()] if consumers is not None else []

    def producer_connection(self, client_id: str) -> C | None:
        """Connection of a client that produces, as whatever group."""
        members = (group.get(client_id) for group in self.producers.values())
        return next((member.connection for member in members if member is not None), None)

    def _take_out(self, connection: C, kind: str, name: str, client_id: str) -> list[str]:
        member = self._members(kind, name).get(client_id)
        if member is None or member.connection is not connection:
            return []  # it has come back on another connection, or is gone already
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
"""Longer ones are not kept: every connection may send one."""

Said = tuple[bytes, int, int, str | None]
"""Body, language and version of a heartbeat, and who has signed it."""


@dataclass(frozen=True, slots=True)
class _Heartbeat(Generic[C]):
    said: Said
    members: Sequence[Member[C]]
    revision: int


class RepeatedHeartbeats(Generic[C]):
    """The last heartbeat of every connection, and what came of it."""

    def __init__(self, registry: ClientRegistry[C]) -> None:
        self._registry = registry
        self._last: dict[C, _Heartbeat[C]] = {}

    def renew(self, connection: C, said: Said, now_ms: int) -> bool:
        """Note that the members are still there when the heartbeat is a repeated one; False when it is to be read."""
        last = self._last.get(connection)
        if last is None or last.revision != self._registry.revision or last.said != said:
            return False
        for member in last.members:
            member.seen_ms = now_ms
        return True

    def remember(self, connection: C, said: Said, members: Sequence[Member[C]]) -> None:
        """Keep a heartbeat that has been read, with the records that it has made or renewed."""
        if len(said[0]) <= MAX_BODY_BYTES:
            self._last[connection] = _Heartbeat(said, members, self._registry.revision)
        else:
            self._last.pop(connection, None)

    def forget(self, connection: C) -> None:
        """Drop what a connection has said: it has ended."""
        self._last.pop(connection, None)

    def clear(self) -> None:
        """Let every connection's next heartbeat be read: what they make may have been deleted."""
        self._last.clear()
