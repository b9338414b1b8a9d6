"""CHECK_TRANSACTION_STATE (39): the broker asks a producer group what became of a transaction
(``AbstractTransactionalMessageCheckListener``, ``Broker2Client.checkProducerTransactionState``).

Any member of the group may answer, so they are asked in turn; the answer is an END_TRANSACTION of its own.
"""

from __future__ import annotations

import logging

from raptormq.broker.clients import ClientRegistry, Member
from raptormq.broker.transaction.half import question
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.transport.connection import Connection

logger = logging.getLogger(__name__)


class ProducerQuestions:
    """Asks the connected producers."""

    def __init__(self, registry: ClientRegistry[Connection], broker_name: str) -> None:
        self._registry = registry
        self._broker_name = broker_name
        self._turn = 0

    def can_ask(self, half: StoredMessage) -> bool:
        """Whether a producer of the group of ``half`` is there."""
        return bool(self._members(half))

    def ask(self, half: StoredMessage) -> None:
        """Ask about ``half``, if anybody is there."""
        members = self._members(half)
        if not members:
            group = find_property(half.properties, names.PRODUCER_GROUP)
            logger.info("no producer of group %s is there to ask about offset %d", group, half.physical_offset)
            return
        self._turn += 1
        connection = members[self._turn % len(members)].connection
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
        connection.oneway(request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(asked), oneway=True))

    def _members(self, half: StoredMessage) -> list[Member[Connection]]:
        group = find_property(half.properties, names.PRODUCER_GROUP) or ""
        return list(self._registry.producers.get(group, {}).values())
