"""VIEW_MESSAGE_BY_ID (33): one record by its place in the log (``QueryMessageProcessor``)."""

from __future__ import annotations

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.offset import ViewMessageRequestHeader
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class RecordHandlers:
    """Looks records up."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def register(self, router: Router) -> None:
        """Enter the handler into the table."""
        router.add(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, self.view)

    async def view(
        self, connection: Connection, command: RemotingCommand, header: ViewMessageRequestHeader
    ) -> RemotingCommand | None:
        """33: the record that starts at a physical offset, which the offset id of its message holds."""
        record = await self._store.message_at_cold(header.offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message at offset {header.offset}")
        if not command.is_oneway:
            connection.send(response_to(command), record)
        return None
