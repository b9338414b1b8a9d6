"""CHECK_TRANSACTION_STATE (39): the broker asks a producer group what became of a transaction
(``AbstractTransactionalMessageCheckListener``, ``Broker2Client.checkProducerTransactionState``).

Any member of the group may answer, so they are asked in turn; the answer is an END_TRANSACTION of its own. A question
holds the message. Whoever signs may say that he produces for a group, so with access control only who may send to the
topic is asked; Apache RocketMQ asks, and shows the message to, everybody who says so.
"""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.security.required_permissions import to_send
from raptormq.broker.transaction.half import Producers, question
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

_MOST_TOLD = 1_000
"""Groups and topics that the log names, each once: both come from clients."""


class CheckTransactionStateSender:
    """Asks the connected producers."""

    def __init__(
        self, registry: ClientRegistry[Connection], broker_name: str, authorizer: UserAuthorizer | None = None
    ) -> None:
        """``judge`` None lets everybody see everything."""
        self._registry = registry
        self._broker_name = broker_name
        self._authorizer = authorizer
        self._turn = 0
        self._told: set[Producers] = set()

    def next_producer(self, producers: Producers) -> Connection | None:
        """Whom of ``producers`` to ask; None when nobody is there."""
        members = list(self._registry.producers.get(producers.group, {}).values())
        if self._authorizer is not None:
            needed, connected = to_send(producers.topic), len(members)
            members = [each for each in members if self._authorizer(each.user, each.connection.peer[0], needed)]
            if connected and not members:
                self._tell(producers, connected)
        return members[self._turn % len(members)].connection if members else None

    def _tell(self, producers: Producers, connected: int) -> None:
        if producers in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(producers)
        logger.warning(
            "transactions of group %s in topic %s stay open: none of its producers (%d) may send to the topic",
            producers.group,
            producers.topic,
            connected,
        )

    def ask(self, producer: Connection, half: StoredMessage) -> None:
        """Ask ``producer`` about ``half``; the next question is for the next one."""
        self._turn += 1
        unique_key = find_property(half.properties, names.UNIQUE_KEY)
        asked = question(half)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_key,
            transaction_id=find_property(half.properties, names.TRANSACTION_ID) or unique_key,
            offset_msg_id=offset_id(half.store_host, half.physical_offset),
            topic=half.topic,
            broker_name=self._broker_name,
        )
        producer.oneway(request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(asked), oneway=True))
