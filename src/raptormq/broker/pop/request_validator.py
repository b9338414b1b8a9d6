"""Validates requests of POP consumption."""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import MATCH_ALL, SubscriptionFilters
from raptormq.broker.config import BrokerConfig
from raptormq.broker.pop.pop_service import PopRequest
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import no_read_queue, require_group, require_topic
from raptormq.protocol.bodies.pop import MAX_POPPED
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.headers.pop import NotificationRequestHeader, PopMessageRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused

MAX_INVISIBLE_MS = 24 * 3600 * 1000
_LATE_MS = 500
"""A pop that arrives more than this time in ms after the timeout of its client is refused, because the client would not
receive the messages.
"""


class PopRequestValidator:
    """Checks pops, peeks and notifications against topics, groups and settings."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        subscriptions: SubscriptionFilters,
        config: BrokerConfig,
        clock: Callable[[], int],
        host: str,
    ) -> None:
        """``host`` is the broker's address in remarks."""
        self._topics = topics
        self._groups = groups
        self._subscriptions = subscriptions
        self._policies = config.policies
        self._pulling = config.pulling
        self._clock = clock
        self._host = host

    def pop_request(self, connection: Connection, header: PopMessageRequestHeader) -> PopRequest:
        """Validate a pop request and return it as a :class:`PopRequest`.

        Raises:
            Refused: 29 for an invalid number of messages or invisible time, 23 or 1 for an invalid filter, 210 when
                the client has stopped waiting, and the codes of :meth:`require_readable`.
        """
        if self._clock() - header.born_time - max(header.poll_time, 0) > _LATE_MS:
            remark = f"the broker[{self._host}] pop message is timeout too much"
            raise Refused(ResponseCode.POLLING_TIMEOUT, remark)
        if header.max_msg_nums > MAX_POPPED:
            remark = f"the broker[{self._host}] pop message's num is greater than {MAX_POPPED}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if header.max_msg_nums <= 0:
            remark = f"a pop takes 1 to {MAX_POPPED} messages, not {header.max_msg_nums}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        check_invisible_time(header.invisible_time)
        self.require_readable(connection, header.topic, header.queue_id, header.consumer_group)
        subscription = MATCH_ALL
        if header.exp:
            subscription = self._subscriptions.from_request(header.topic, header.exp, header.exp_type)
        return PopRequest(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            header.invisible_time,
            from_oldest=header.init_mode == 0,
            orderly=bool(header.order),
            subscription=subscription,
            attempt=header.attempt_id,
        )

    def notification_tags(self, header: NotificationRequestHeader) -> frozenset[int] | None:
        """Return the tag codes of a notification's filter, or None if there is no filter or filters are disabled.

        Raises:
            Refused: 23 or 1 for an invalid filter.
        """
        if header.exp and header.exp_type and self._pulling.filter_notifications:
            return self._subscriptions.from_request(header.topic, header.exp, header.exp_type).tags
        return None

    def require_readable(self, connection: Connection, topic: str, queue_id: int, group: str) -> None:
        """Check that the group may pop from the queue. A ``queue_id`` below 0 means all queues.

        Raises:
            Refused: 16 without read permission, 17 for an unknown topic, 26 for an unknown group, 29 for an unknown
                queue or an invalid group name, 2 when there are too many groups.
        """
        if not self._policies.permission & Perm.READ:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker serves no messages (brokerPermission)")
        config = require_topic(self._topics, topic)
        if not config.perm & Perm.READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {topic} is not readable")
        if queue_id >= config.read_queue_nums:
            raise Refused(ResponseCode.INVALID_PARAMETER, no_read_queue(config, queue_id, connection))
        if not require_group(self._groups, group, auto_create=self._policies.auto_create_group).consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"group {group} may not consume")


def check_invisible_time(milliseconds: int) -> None:
    """Check an invisible time.

    Raises:
        Refused: 29, the time is negative or longer than :data:`MAX_INVISIBLE_MS`.
    """
    if not 0 <= milliseconds <= MAX_INVISIBLE_MS:
        remark = f"messages are invisible for up to {MAX_INVISIBLE_MS} ms, not {milliseconds}"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
