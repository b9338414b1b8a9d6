"""What a group wants of a topic: the tags, and the hashes of them that the broker filters by. Pure.

The broker compares hashes alone, so a consumer compares the tags themselves once more.
Neighbours: `push_consumer` (heartbeats and re-check), `pull_consumer`.
Source: RocketMQ `FilterAPI`, `SubscriptionData`.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.tags import SUBSCRIBE_ALL, parse_expression, tag_hash


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of one topic."""

    topic: str
    expression: str
    """`*`, or tags separated by `||`."""
    version: int
    """Milliseconds since 1970 when it was made: the broker keeps the newest."""
    tags: frozenset[str]
    """The wanted tags; empty means all messages."""

    def wants(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted."""
        return not self.tags or tag in self.tags

    @property
    def codes(self) -> list[int]:
        """Hashes of the tags, ascending, for the broker's filter."""
        return sorted({tag_hash(tag) for tag in self.tags})


def parse_subscription(topic: str, expression: str, version: int) -> Subscription:
    """Return the subscription of a tag expression; an empty one means all messages, as in RocketMQ.

    Raises:
        MessageError: the expression holds separators only.
    """
    tags = parse_expression(expression)
    return Subscription(topic, expression.strip() if tags else SUBSCRIBE_ALL, version, tags)
