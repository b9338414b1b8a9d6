"""Expressions that consumers subscribe with: tags as a string, or a filter by properties as `Sql`."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.errors import FilterError, MessageError
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.sql92.message_filter import compile_filter
from raptormq.protocol.tags import find_condition

SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter by properties in RocketMQ's SQL92, evaluated by the broker (`enablePropertyFilter=true`).

        Sql("price > 100 AND region IN ('north', 'south')")

    Raises:
        MessageError: the text is not a valid expression.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise MessageError(f"the filter must be text, not {self.text!r}")
        try:
            compile_filter(self.text)
        except FilterError as error:
            raise MessageError(f"not a filter: {error}") from None


def subscription_to(topic: str, expression: str | Sql, version: int = 0) -> Subscription:
    """Return the subscription for heartbeats and pulls.

    Raises:
        MessageError: the expression has no tag, or one that is a condition: brokers would accept it and match nothing.
    """
    if isinstance(expression, Sql):
        return Subscription(topic, expression.text, version=version, expression_type=SQL92)
    if not isinstance(expression, str):
        raise MessageError(f"a subscription must be text or Sql, not {expression!r}")
    if (condition := find_condition(expression)) is not None:
        raise MessageError(
            f"{condition!r:.80} is not a tag: join tags by || only, and give a filter by properties as an Sql(...)"
        )
    return Subscription.parse(topic, expression, version)
