"""END_TRANSACTION (37): a producer says what becomes of a transaction (``EndTransactionProcessor``).

Clients send it one-way; whoever waits gets an answer. "Not decided" changes nothing: the broker will ask.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.transaction.half import immunity_ms
from raptormq.broker.transaction.transactions import Transactions
from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.transaction import COMMIT, NOT_DECIDED, ROLLBACK, EndTransactionRequestHeader
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.protocol.topic_names import HALF_TOPIC
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class TransactionHandlers:
    """Takes decisions."""

    def __init__(self, store: MessageStore, transactions: Transactions, clock: Callable[[], int]) -> None:
        self._store = store
        self._transactions = transactions
        self._clock = clock

    def register(self, router: Router) -> None:
        """Enter the handler into the table."""
        router.add(RequestCode.END_TRANSACTION, EndTransactionRequestHeader, self.end)

    async def end(
        self, connection: Connection, command: RemotingCommand, header: EndTransactionRequestHeader
    ) -> RemotingCommand:
        """37: answered when message and decision are stored."""
        if header.commit_or_rollback == NOT_DECIDED:
            return response_to(command)
        if header.commit_or_rollback not in (COMMIT, ROLLBACK):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{header.commit_or_rollback} is no decision: 8 or 12 is")
        await self._transactions.ready()
        half = await self._find(header)
        if header.commit_or_rollback == COMMIT:
            await self._transactions.commit(half)
        else:
            await self._transactions.roll_back(half)
        return response_to(command)

    async def _find(self, header: EndTransactionRequestHeader) -> StoredMessage:
        data = await self._store.message_at_cold(header.commit_log_offset)
        try:
            half = decode_record(data) if data is not None else None
        except RecordError:
            half = None
        if half is None or half.topic != HALF_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if find_property(half.properties, names.PRODUCER_GROUP) != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        immune = immunity_ms(half)
        if not header.from_transaction_check and immune is not None and self._clock() - half.born_timestamp > immune:
            remark = f"the decision comes more than {immune} ms after the message: the broker asks from now on"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        if not self._transactions.is_open(half):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the transaction is decided already")
        return half
