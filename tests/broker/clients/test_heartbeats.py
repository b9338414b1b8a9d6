"""Repeated heartbeats: the registry has the same state as if it had decoded each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.clients.registry import MAX_BODY_BYTES, ClientRegistry, HeartbeatSender, RepeatedHeartbeats
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription


@dataclass
class Side:
    """A registry that receives heartbeats, with or without the cache of repeated ones."""

    registry: ClientRegistry[str] = field(default_factory=ClientRegistry)
    repeats: RepeatedHeartbeats[str] | None = None
    read: int = 0

    def hear(self, connection: str, body: bytes, now_ms: int) -> None:
        said = body, 0, 479, None
        if self.repeats is not None and self.repeats.renew(connection, said, now_ms):
            return
        self.read += 1
        data = HeartbeatData.from_json(body)
        presence = HeartbeatSender(data.client_id, connection, 0, 479, now_ms)
        for group in data.producer_groups:
            self.registry.heartbeat_producer(group, presence)
        for consumer in data.consumers:
            self.registry.heartbeat_consumer(consumer, presence)
        if self.repeats is not None:
            self.repeats.remember(connection, said, presence.members)

    def leave(self, connection: str) -> None:
        if self.repeats is not None:
            self.repeats.forget(connection)
        self.registry.connection_closed(connection)


def with_memory() -> Side:
    registry = ClientRegistry[str]()
    return Side(registry, RepeatedHeartbeats(registry))


def body_of(client: str, topics: tuple[str, ...], expression: str = "*", consume_type: str = "x") -> bytes:
    subscriptions = [Subscription.parse(topic, expression, 1) for topic in topics]
    consumer = ConsumerData("g", consume_type, subscriptions=subscriptions)
    return HeartbeatData(client, ["p"], [consumer]).to_json()


bodies = st.builds(
    body_of,
    st.sampled_from("ab"),
    st.sampled_from([("t",), ("t", "u"), ()]),
    st.sampled_from("*A"),
    st.sampled_from("xy"),
)
steps = st.lists(
    st.tuples(st.sampled_from("hhhhles"), st.sampled_from(["one", "two"]), st.one_of(st.none(), bodies)), max_size=30
)


@given(steps)
def test_the_registry_ends_as_if_everything_had_been_read(script: list[tuple[str, str, bytes | None]]) -> None:
    plain, remembering = Side(), with_memory()
    last = {"one": body_of("a", ("t",)), "two": body_of("b", ("t",))}
    for now, (what, connection, body) in enumerate(script):
        last[connection] = body or last[connection]
        for side in (plain, remembering):
            if what == "h":
                side.hear(connection, last[connection], now)
            elif what == "l":
                side.leave(connection)
            elif what == "e":
                side.registry.expire(now - 5)
            else:
                side.registry.unregister(connection, "a", "p", "g")
    assert remembering.registry.consumers == plain.registry.consumers
    assert remembering.registry.producers == plain.registry.producers
    assert remembering.read <= plain.read


def test_what_is_repeated_is_not_read_until_something_changes() -> None:
    side = with_memory()
    for now in range(3):
        side.hear("one", body_of("a", ("t",)), now)
    assert side.read == 1
    assert side.registry.consumers["g"].members["a"].seen_ms == 2
    side.hear("two", body_of("b", ("t",)), 3)
    side.hear("one", body_of("a", ("t",)), 4)
    side.hear("one", body_of("a", ("t",)), 5)
    assert side.read == 3


def test_very_long_heartbeats_are_not_kept() -> None:
    side = with_memory()
    for _ in range(2):
        side.hear("one", body_of("a" * MAX_BODY_BYTES, ("t",)), 0)
    assert side.read == 2
