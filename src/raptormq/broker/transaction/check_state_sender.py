"""CHECK_TRANSACTION_STATE (39): the broker asks a producer group for the state of a transaction
(``AbstractTransactionalMessageCheckListener``, ``Broker2Client.checkProducerTransactionState``).

Checks are sent to the members of the group round-robin, because any member may respond. The response is a separate
END_TRANSACTION request.

A check contains the message, and any authenticated client may register as a producer of any group. With access control,
checks are therefore sent only to clients with the permission to send to the topic. Apache RocketMQ sends them to every
registered producer.
"""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.security.required_permissions import to_send
from raptormq.broker.transaction.half_message import Producers, check_body
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.security.gate import UserAuthorizer
from raptormq.transport.connection import Connection

logger = get_logger(__name__)

_MAX_LOGGED_GROUPS = 1_000
"""Maximum number of pairs of group and topic that are logged, each once. Clients choose the names."""


class CheckTransactionStateSender:
    """Sends checks to connected producers."""

    def __init__(
        self, registry: ClientRegistry[Connection], broker_name: str, authorizer: UserAuthorizer | None = None
    ) -> None:
        """Create the sender. ``authorizer`` is None without access control."""
        self._registry = registry
        self._broker_name = broker_name
        self._authorizer = authorizer
        self._next_member = 0
        self._logged: set[Producers] = set()

    def next_producer(self, producers: Producers) -> Connection | None:
        """Return the connection of the next producer to check, or None if none of ``producers`` is connected."""
        members = list(self._registry.producers.get(producers.group, {}).values())
        if self._authorizer is not None:
            needed, connected = to_send(producers.topic), len(members)
            members = [each for each in members if self._authorizer(each.user, each.connection.peer[0], needed)]
            if connected and not members:
                self._log_forbidden(producers, connected)
        return members[self._next_member % len(members)].connection if members else None

    def _log_forbidden(self, producers: Producers, connected: int) -> None:
        if producers in self._logged or len(self._logged) >= _MAX_LOGGED_GROUPS:
            return
        self._logged.add(producers)
        logger.warning(
            "cannot check transactions of group %s: none of its %d connected producers may send to topic %s",
            producers.group,
            connected,
            producers.topic,
        )

    def ask(self, producer: Connection, half: StoredMessage) -> None:
        """Send a check of ``half`` to ``producer``. The next check goes to the next producer."""
        self._next_member += 1
        unique_key = find_property(half.properties, names.UNIQUE_KEY)
        body = check_body(half)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_key,
            transaction_id=find_property(half.properties, names.TRANSACTION_ID) or unique_key,
            offset_msg_id=offset_id(half.store_host, half.physical_offset),
            topic=half.topic,
            broker_name=self._broker_name,
        )
        producer.oneway(request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(body), oneway=True))
