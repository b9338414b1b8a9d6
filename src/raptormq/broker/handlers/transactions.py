"""END_TRANSACTION (37): a producer commits or rolls back a transaction (``EndTransactionProcessor``).
RESUME_CHECK_HALF_MESSAGE (323): an administrator resumes the checks of a transaction (``AdminBrokerProcessor``).

Clients send END_TRANSACTION as a one-way request. Other requests get a response. A request with the state unknown does
not change the transaction, which the broker checks later.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.security.authorized_records import AuthorizedRecords, Needs
from raptormq.broker.security.required_permissions import to_change, to_send
from raptormq.broker.transaction.half_message import immunity_ms
from raptormq.broker.transaction.transaction_service import TransactionService
from raptormq.errors import MessageError, RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.transaction import (
    COMMIT,
    NOT_DECIDED,
    ROLLBACK,
    EndTransactionRequestHeader,
    ResumeCheckRequestHeader,
)
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import find_property
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.protocol.topic_names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_HALVES = (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
"""Topics of half messages: the half topic, and the topic of discarded half messages."""


class TransactionHandlers:
    """Handles the end of transactions."""

    def __init__(self, records: AuthorizedRecords, transactions: TransactionService, clock: Callable[[], int]) -> None:
        self._records = records
        self._transactions = transactions
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.END_TRANSACTION, EndTransactionRequestHeader, self.end)
        router.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckRequestHeader, self.resume)

    async def end(
        self, connection: Connection, command: RemotingCommand, header: EndTransactionRequestHeader
    ) -> RemotingCommand:
        """37: store the decision and, for a commit, the message."""
        if header.commit_or_rollback == NOT_DECIDED:
            return response_to(command)
        if header.commit_or_rollback not in (COMMIT, ROLLBACK):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"invalid decision {header.commit_or_rollback}; expected 8 (commit) or 12 (rollback)",
            )
        await self._transactions.ready()
        half = await self._find(connection, command, header)
        if header.commit_or_rollback == COMMIT:
            await self._transactions.commit(half)
        else:
            await self._transactions.roll_back(half)
        return response_to(command)

    async def resume(
        self, connection: Connection, command: RemotingCommand, header: ResumeCheckRequestHeader
    ) -> RemotingCommand:
        """323: restart the checks of an open or discarded transaction with a count of 0."""
        try:
            place = parse_offset_id(header.msg_id).physical_offset
        except MessageError:
            place = -1
        await self._transactions.ready()
        half = await self._read(connection, command, to_change, place)
        if half is None or half.topic not in _HALVES or find_property(half.properties, names.REAL_TOPIC) is None:
            remark = f"Exception was thrown when putting message back to {HALF_TOPIC}."
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if half.topic == HALF_TOPIC:
            half = await self._current(half)
        elif self._transactions.is_resumed(half):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the checks of the transaction are already resumed")
        await self._transactions.resume(half)
        return response_to(command)

    async def _read(
        self, connection: Connection, command: RemotingCommand, needs: Needs, place: int
    ) -> StoredMessage | None:
        data = await self._records.message_at(connection, command, needs, place)
        try:
            return decode_record(data) if data is not None else None
        except RecordError:
            return None

    async def _find(
        self, connection: Connection, command: RemotingCommand, header: EndTransactionRequestHeader
    ) -> StoredMessage:
        half = await self._read(connection, command, to_send, header.commit_log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if find_property(half.properties, names.PRODUCER_GROUP) != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        immune = immunity_ms(half)
        if not header.from_transaction_check and immune is not None and self._clock() - half.born_timestamp > immune:
            remark = f"the decision arrived more than {immune} ms after the message; the broker checks the transaction"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        return await self._current(half)

    async def _current(self, half: StoredMessage) -> StoredMessage:
        current = await self._transactions.current(half)
        if current is None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the transaction is already decided or discarded")
        return current
