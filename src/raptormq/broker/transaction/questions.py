"""CHECK_TRANSACTION_STATE (39): the broker asks a producer group what became of a transaction
(``AbstractTransactionalMessageCheckListener``, ``Broker2Client.checkProducerTransactionState``).

Any member of the group may answer, so they are asked in turn; the answer is an END_TRANSACTION of its own.
"""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.transaction.half import question
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage, encode_record
from raptormq.transport.connection import Connection


class ProducerQuestions:
    """Asks the connected producers."""

    def __init__(self, registry: ClientRegistry[Connection], broker_name: str) -> None:
        self._registry = registry
        self._broker_name = broker_name
        self._turn = 0

    def next_producer(self, group: str) -> Connection | None:
        """Whom of ``group`` to ask; None when nobody is there."""
        members = list(self._registry.producers.get(group, {}).values())
        return members[self._turn % len(members)].connection if members else None

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
