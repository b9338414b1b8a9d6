"""The filter of a consumer: from its request, or from its group's heartbeats (``PullMessageProcessor``,
``ConsumerFilterManager``).

Tags are compared by their hash in the queue, SQL92 expressions with the properties of the record. SQL92 must be enabled
(``enablePropertyFilter``). An invalid filter is refused with 27 when it comes from a heartbeat and with 23 when it
comes with the request; with 28 when a later heartbeat had no expression.
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
    """A filter; both parts None for everything."""

    tags: frozenset[int] | None = None
    properties: MessageFilter | None = None


MATCH_ALL = SubscriptionFilter()


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether the filter language is tags, which is also the default."""
    return expression_type in (None, "", TAG)


class SubscriptionFilters:
    """Finds the filters of consumers."""

    def __init__(self, registry: ClientRegistry[Connection], policies: Policies) -> None:
        self._registry = registry
        self._policies = policies

    def from_request(
        self, topic: str, expression: str | None, expression_type: str | None, version: int = 0
    ) -> SubscriptionFilter:
        """Return the filter of a request; refuse with 1 or 23."""
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
        """Return the filter of the group's heartbeats, which must be at least as new as ``version``; refuse with 24,
        25, 27, 28 or 1.
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
        """RocketMQ ignores an empty expression as a change and considers the earlier filter outdated."""
        before = self._registry.filter_before(group, topic)
        if before is not None:
            compiled(before.expression_type, before.expression, ResponseCode.FILTER_DATA_NOT_EXIST)
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")

    def require_property_filters(self, expression_type: str | None) -> None:
        """Refuse with 1 unless property filters are enabled."""
        if not self._policies.property_filters:
            remark = f"The broker does not support consumer to filter message by {expression_type}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)


def compiled(expression_type: str | None, expression: str | None, code: int) -> MessageFilter:
    """Return the compiled expression of a language other than tags; refuse with ``code``."""
    if expression_type != SQL92:
        raise Refused(code, f"there is no filter language {expression_type}")
    try:
        return compile_filter(expression or "")
    except FilterError as error:
        raise Refused(code, str(error)) from None
