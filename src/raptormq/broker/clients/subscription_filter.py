"""Filters of consumers, from their requests or from the heartbeats of their group (``PullMessageProcessor``,
``ConsumerFilterManager``).

A tag filter compares the tag hash in the consume queue. An SQL92 expression is evaluated on the properties of the
record and requires ``enablePropertyFilter``. An invalid filter is refused with 23 if it is in the request, with 27 if
it is from a heartbeat, and with 28 if a later heartbeat had no expression.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.broker.clients.registry import ClientRegistry
from raptormq.broker.config import Policies
from raptormq.errors import FilterError, MessageError
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.sql92.message_filter import MessageFilter, compile_filter
from raptormq.protocol.tags import SUBSCRIBE_ALL
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused

TAG, SQL92 = "TAG", "SQL92"


class SubscriptionFilter(NamedTuple):
    """Message filter: tag codes or an SQL92 expression. Both are None if all messages match."""

    tags: frozenset[int] | None = None
    properties: MessageFilter | None = None


MATCH_ALL = SubscriptionFilter()


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether the expression type is TAG, the default."""
    return expression_type in (None, "", TAG)


class SubscriptionFilters:
    """Creates the filters of consumers."""

    def __init__(self, registry: ClientRegistry[Connection], policies: Policies) -> None:
        self._registry = registry
        self._policies = policies

    def from_request(
        self, topic: str, expression: str | None, expression_type: str | None, version: int = 0
    ) -> SubscriptionFilter:
        """Return the filter of a request.

        Raises:
            Refused: 1 if SQL92 is disabled, 23 for an invalid filter.
        """
        if expression == SUBSCRIBE_ALL and expression_type in (None, TAG):
            return MATCH_ALL
        if is_tag_type(expression_type):
            try:
                subscription = Subscription.parse(topic, expression or "*", version)
            except MessageError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
            return SubscriptionFilter(subscription.code_set or None)
        self.require_property_filters(expression_type)
        return SubscriptionFilter(None, compiled(expression_type, expression, ResponseCode.SUBSCRIPTION_PARSE_FAILED))

    def from_heartbeats(self, group: str, topic: str, version: int) -> SubscriptionFilter:
        """Return the filter of the group's heartbeats.

        Raises:
            Refused: 24 without a subscription, 25 if it is older than ``version``, 27 for an invalid filter, 28 if a
                later heartbeat had no expression, 1 if SQL92 is disabled.
        """
        known = self._registry.subscription(group, topic)
        if known is None:
            is_known = group in self._registry.consumers
            remark = f"the consumer's {'subscription' if is_known else 'group info'} not exist"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if known.version < version:
            remark = f"the subscription of group {group} to {topic} is not the latest"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        if is_tag_type(known.expression_type):
            return SubscriptionFilter(known.code_set) if known.code_set else MATCH_ALL
        if not known.expression:
            self._refuse_lost_filter(group, topic)
        wanted = compiled(known.expression_type, known.expression, ResponseCode.FILTER_DATA_NOT_EXIST)
        self.require_property_filters(known.expression_type)
        return SubscriptionFilter(None, wanted)

    def _refuse_lost_filter(self, group: str, topic: str) -> None:
        """Refuse with 28 if an earlier heartbeat had an expression, which RocketMQ then considers outdated."""
        before = self._registry.filter_before(group, topic)
        if before is not None:
            compiled(before.expression_type, before.expression, ResponseCode.FILTER_DATA_NOT_EXIST)
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")

    def require_property_filters(self, expression_type: str | None) -> None:
        """Raise :class:`Refused` with code 1 unless property filters are enabled."""
        if not self._policies.property_filters:
            remark = f"The broker does not support consumer to filter message by {expression_type}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)


def compiled(expression_type: str | None, expression: str | None, code: int) -> MessageFilter:
    """Return a compiled SQL92 expression.

    Raises:
        Refused: the expression is invalid or has another type. The response code is ``code``.
    """
    if expression_type != SQL92:
        raise Refused(code, f"unsupported expression type {expression_type}")
    try:
        return compile_filter(expression or "")
    except FilterError as error:
        raise Refused(code, str(error)) from None
