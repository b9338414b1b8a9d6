"""Client registry: connected clients, their subscriptions, and the groups that must be notified of a change."""

from __future__ import annotations

from raptormq.broker.clients.registry import ClientRegistry, HeartbeatSender
from raptormq.protocol.bodies.heartbeat import ConsumerData, Subscription


def consume(
    registry: ClientRegistry[str],
    client: str,
    *subscriptions: Subscription,
    connection: str | None = None,
    now_ms: int = 0,
) -> bool:
    announced = ConsumerData("g", subscriptions=list(subscriptions))
    return registry.heartbeat_consumer(announced, HeartbeatSender(client, connection or client, 0, 479, now_ms))


def test_a_new_member_changes_its_group_and_a_repeated_heartbeat_does_not() -> None:
    registry = ClientRegistry[str]()
    assert consume(registry, "one", Subscription.parse("t", "*", 1))
    assert not consume(registry, "one", Subscription.parse("t", "*", 1))
    assert consume(registry, "two", Subscription.parse("t", "*", 1))
    assert registry.client_ids("g") == ["one", "two"]
    assert registry.connections("g") == ["one", "two"]


def test_a_changed_expression_or_topic_changes_the_group() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one", Subscription.parse("t", "A", 1))
    assert consume(registry, "one", Subscription.parse("t", "B", 2))
    assert consume(registry, "one", Subscription.parse("t", "B", 2), Subscription.parse("u", "*", 2))
    assert consume(registry, "one", Subscription.parse("u", "*", 2))
    assert registry.subscription("g", "t") is None
    assert registry.subscription("g", "u") is not None


def test_an_older_subscription_never_replaces_a_newer_one() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one", Subscription.parse("t", "NEW", 5))
    assert not consume(registry, "one", Subscription.parse("t", "OLD", 4))
    found = registry.subscription("g", "t")
    assert found is not None
    assert found.expression == "NEW"


def test_a_closed_connection_takes_its_members_along() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one", connection="x")
    consume(registry, "two", connection="y")
    registry.heartbeat_producer("p", HeartbeatSender("one", "x", 0, 479, 0))
    assert registry.connection_closed("x") == ["g"]
    assert registry.client_ids("g") == ["two"]
    assert registry.producers == {}
    assert registry.connection_closed("x") == []


def test_a_client_that_came_back_on_a_new_connection_survives_the_end_of_the_old_one() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one", connection="old")
    assert consume(registry, "one", connection="new")
    assert registry.connection_closed("old") == []
    assert registry.connections("g") == ["new"]


def test_silence_expires_members() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one", now_ms=0)
    consume(registry, "two", now_ms=100)
    registry.heartbeat_producer("p", HeartbeatSender("one", "one", 0, 479, 0))
    assert registry.expire(100) == ["g"]
    assert registry.client_ids("g") == ["two"]
    assert registry.producers == {}
    assert registry.expire(101) == ["g"]
    assert registry.consumers == {}


def test_unregistering() -> None:
    registry = ClientRegistry[str]()
    consume(registry, "one")
    registry.heartbeat_producer("p", HeartbeatSender("one", "one", 0, 479, 0))
    assert registry.unregister("one", "one", "p", None) == []
    assert registry.producers == {}
    assert registry.unregister("one", "one", None, "g") == ["g"]
    assert registry.unregister("one", "one", None, "g") == []
    assert registry.client_ids("g") == []
