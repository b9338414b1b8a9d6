"""VIEW_MESSAGE_BY_ID (33): a record by log offset. QUERY_MESSAGE (12): records by key (``QueryMessageProcessor``)."""

from __future__ import annotations

from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.required_permissions import to_view
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.offset import ViewMessageRequestHeader
from raptormq.protocol.headers.query import QueryMessageRequestHeader, QueryMessageResponseHeader
from raptormq.protocol.inner_batch import understands_encrypted_batches
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading
from raptormq.transport.router import Refused, Router

UNIQUE_KEY_LIMIT = 32
"""Maximum number of messages for a query by unique key (``defaultQueryMaxNum``)."""
LIMIT = 64
"""Maximum number of messages for other queries (``maxMsgsNumBatch``)."""
MAX_BYTES = 8 << 20
"""Maximum size of a response in bytes. A single larger message is still returned."""


class RecordHandlers:
    """Returns records by log offset or by key."""

    def __init__(self, store: MessageStore, records: AuthorizedRecords) -> None:
        self._store = store
        self._records = records

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, self.view)
        router.add(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader, self.query)

    async def view(
        self, connection: Connection, command: RemotingCommand, header: ViewMessageRequestHeader
    ) -> RemotingCommand | None:
        """33: return the record at a log offset, which is part of an offset id."""
        with Reading(connection.answers, connection) as reading:
            await _reserve_memory(reading)
            record = await self._records.message_at(
                connection, command, to_view, header.offset, allow_encrypted=_unpacks_batches(command)
            )
            if record is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
            if not command.is_oneway:
                connection.send(response_to(command), record)
        return None

    async def query(
        self, connection: Connection, command: RemotingCommand, header: QueryMessageRequestHeader
    ) -> RemotingCommand | None:
        """12: return the newest messages with a key, in no particular order."""
        with Reading(connection.answers, connection) as reading:
            await _reserve_memory(reading)
            return await self._found(connection, command, header)

    async def _found(
        self, connection: Connection, command: RemotingCommand, header: QueryMessageRequestHeader
    ) -> RemotingCommand | None:
        limit = UNIQUE_KEY_LIMIT if header.unique_key_query else min(header.max_num, LIMIT)
        records = await self._store.find_by_key(
            *(header.topic, header.key, header.begin_timestamp, header.end_timestamp, limit),
            whole_batches=_unpacks_batches(command),
        )
        timestamp, offset = self._store.index_position()
        found = QueryMessageResponseHeader(timestamp, offset)
        if not records:
            remark = "can not find message, maybe time range not correct"
            return response_to(command, ResponseCode.QUERY_NOT_FOUND, remark, found)
        size, count = 0, 0
        for record in records:
            size += len(record)
            if count and size > MAX_BYTES:
                break
            count += 1
        if not command.is_oneway:
            connection.send(response_to(command, header=found), *records[:count])
        return None


def _unpacks_batches(command: RemotingCommand) -> bool:
    """Return whether the client unpacks batches. Other clients get an error for encrypted batches."""
    return understands_encrypted_batches(command.language, command.version)


async def _reserve_memory(reading: Reading) -> None:
    if not reading.may_copy and not await reading.granted(0):
        raise Refused(ResponseCode.SYSTEM_BUSY, "unread responses use too much memory; retry later")
